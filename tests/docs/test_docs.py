"""Every Python block and every command of README and docs runs, on small inputs, page by page in the order of the page.

A page runs in a folder of its own that has the files its commands name: text, a table of tickets, a token store, a
pretrained and a fine-tuned model of a few thousand weights. A block that cannot run here stands behind a comment
``<!-- not run: REASON -->``; a block of output has the language ``text``.
"""

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from small_world import SmallWorld

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").glob("*.md") if path.name != "LOG.md")]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\s*$")
COMMANDS = ("litebert", "litebert-lab")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: where it begins, its language, its text and why it does not run, if it does not."""

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


def commands(text: str) -> Iterator[list[str]]:
    """The commands of litebert in a block: comments cut, lines joined, globs expanded."""
    for line in text.replace("\\\n", " ").splitlines():
        for part in line.removeprefix("$ ").split("&&"):
            words = shlex.split(part, comments=True)
            if words and words[0] in COMMANDS:
                yield [match for word in words for match in (_matches(word) or [word])]


def _matches(word: str) -> list[str]:
    """The files that a word with a star in it names."""
    return sorted(str(path) for path in Path().glob(word)) if "*" in word and not word.startswith("/") else []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_runs(page, small_world: SmallWorld, monkeypatch, tmp_path):
    shutil.copytree(small_world.folder, tmp_path, dirs_exist_ok=True, symlinks=True)
    monkeypatch.chdir(tmp_path)
    small_world.install(monkeypatch)
    names: dict[str, object] = {}
    for block in blocks(page):
        if block.not_run or block.language == "text":
            continue
        where = f"{page.name}:{block.line}"
        if block.language == "python":
            exec(compile(small_world.smaller(block.text), where, "exec"), names)
            continue
        for words in commands(block.text):
            run_command(small_world.smaller_command(words), where, monkeypatch)


def run_command(words: list[str], where: str, monkeypatch) -> None:
    """Run a command in this process; it must end well."""
    if words[0] == "litebert":
        from litebert.cli import main
    else:
        from litebert_lab.cli import main
    for flag, out in pairwise(words):
        if flag in ("-o", "--out") and "--resume" not in words and Path(out).is_dir():
            shutil.rmtree(out)
    monkeypatch.setattr(sys, "argv", words)
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, f"{where}: {shlex.join(words)} ended with {ended.code}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_has_a_language_or_commands(page):
    for block in blocks(page):
        assert block.language or list(commands(block.text)) or block.not_run, f"{page.name}:{block.line}"
