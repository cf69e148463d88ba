"""Every Python block and every command of README and docs runs, on small inputs, page by page in the order of the page.

A page runs in a folder of its own with the files that its commands name (``conftest.py``). A block that cannot run here
stands behind a comment ``<!-- not run: REASON -->``; a block of output has the language ``text``.
"""

import io
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from litebert import cli
from litebert_lab import cli as lab_cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").glob("*.md") if path.name != "LOG.md")]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\s*$")
PROGRAMS = {"litebert": cli.main, "litebert-lab": lab_cli.main}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: where it begins, its language, its text, and why it is not run, if it is not."""

    line: int
    language: str
    text: str
    not_run: str


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page."""
    content = page.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(content):
        before = content[: match.start()]
        reason = NOT_RUN.search(before)
        found.append(Block(before.count("\n") + 1, match[1], match[2], reason[1] if reason else ""))
    return found


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of litebert in a block, each with the shell command that is piped into it, if any."""
    for line in text.replace("\\\n", " ").splitlines():
        for part in line.removeprefix("$ ").split("&&"):
            before, pipe, last = part.rpartition(" | ")
            words = shlex.split(last if pipe else part, comments=True)
            if words and words[0] in PROGRAMS:
                yield before, words


def expand(words: list[str]) -> list[str]:
    """The words with files in place of globs."""
    return [str(match) for word in words for match in (sorted(Path().glob(word)) if "*" in word else []) or [word]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_runs(page, small_world, smaller, names, monkeypatch, tmp_path):
    shutil.copytree(small_world, tmp_path, dirs_exist_ok=True, symlinks=True)
    monkeypatch.chdir(tmp_path)
    for block in blocks(page):
        if block.not_run or block.language in ("text", "yaml"):
            continue
        where = f"{page.name}:{block.line}"
        if block.language == "python":
            for out in re.findall(r'out="(\w+)"', block.text):
                make_way(Path(out))
            exec(compile(smaller.block(block.text), where, "exec"), names)
            continue
        for before, words in commands(block.text):
            given = (
                subprocess.run(before, shell=True, capture_output=True, text=True, check=True).stdout if before else ""
            )
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode()), encoding="utf-8"))
            run_command(smaller.command(expand(words)), where, monkeypatch)


def make_way(out: Path) -> None:
    """Remove a folder that is there already but that the page makes itself."""
    if out.is_symlink():
        out.unlink()
    elif out.is_dir():
        shutil.rmtree(out)


def run_command(words: list[str], where: str, monkeypatch) -> None:
    """Run a command in this process; it must end well."""
    for flag, out in pairwise(words):
        if flag in ("-o", "--out") and "--resume" not in words:
            make_way(Path(out))
    monkeypatch.setattr(sys, "argv", words)
    try:
        PROGRAMS[words[0]]()
    except SystemExit as ended:
        assert not ended.code, f"{where}: {shlex.join(words)} ended with {ended.code}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_has_a_language_or_commands(page):
    for block in blocks(page):
        assert block.language or list(commands(block.text)) or block.not_run, f"{page.name}:{block.line}"


def test_the_quickstart_runs(small_world, smaller, monkeypatch, tmp_path):
    shutil.copytree(small_world, tmp_path, dirs_exist_ok=True, symlinks=True)
    monkeypatch.chdir(tmp_path)
    cells = (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8")
    exec(compile(smaller.block(cells), "quickstart.py", "exec"), {})
    assert (tmp_path / "quickstart" / "small" / "model.safetensors").is_file()
