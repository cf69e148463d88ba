"""Where the English text of litebert-en comes from: four public repositories, each at one commit, read with git alone.

A repository may be an ordinary clone or a bare one. Files that a partial copy lacks are counted, not fetched.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Source:
    """A repository at a commit, and which of its files hold text."""

    name: str  # of the text that is made of it
    repository: str
    commit: str
    files: str  # a pattern that the whole path must match


SOURCES = (
    Source(
        name="wiki-long",
        repository="jason-feng/wikiVisual",
        commit="1c0fac92f29f17c1603bfffbe864e0dfdff66897",  # later ones have the text no more
        files=r"text/A[A-Z]/wiki_\d+",
    ),
    Source(
        name="wiki-short",
        repository="ZhouYii/PatchedDistro",
        commit="961716d8a5a0df1a6373a4d61e360a0b5d1b85cd",
        files=r"data/A[A-Z]/wiki_\d+",
    ),
    Source(
        name="books",
        repository="mlschmitt/classic-books-markdown",
        commit="944882722e9a96fa6cf2739dc2ea757e101f412f",
        files=r"[^/]+/.*\.md",
    ),
    Source(
        name="gutenberg",
        repository="rcdm-uga/Gutenberg_Text",
        commit="a0b16d35a9851168ce9ac649851c17b7ab08d48e",
        files=r"[^/]+/.*\.txt",
    ),
)


@dataclass(frozen=True)
class File:
    """One file of a source; ``text`` is None where this copy of the repository lacks it."""

    path: str
    text: str | None


@dataclass(frozen=True)
class Listing:
    """The distinct files of a source as (path, hash), and how many paths only repeat another's content."""

    files: list[tuple[str, str]]
    repeated: int


def listing(clone: Path, source: Source) -> Listing:
    """What there is to read, in the order of the paths; of several paths with the same content the first counts."""
    names = _git(clone, "ls-tree", "-r", "-z", source.commit).stdout.decode("utf-8").split("\0")
    rows = [name.split("\t", 1) for name in names if name]
    wanted = sorted((path, entry.split()[2]) for entry, path in rows if re.fullmatch(source.files, path, re.S))
    distinct: dict[str, str] = {}
    for path, digest in wanted:
        distinct.setdefault(digest, path)
    return Listing([(path, digest) for digest, path in distinct.items()], len(wanted) - len(distinct))


def read(clone: Path, files: list[tuple[str, str]]) -> Iterator[File]:
    """The files one after the other, out of one process of git."""
    command = ["git", "-C", str(clone), "cat-file", "--batch"]
    environment = os.environ | {"GIT_NO_LAZY_FETCH": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdin is not None and process.stdout is not None
        for path, digest in files:
            process.stdin.write(f"{digest}\n".encode())
            process.stdin.flush()
            answer = process.stdout.readline().split()
            if answer[-1] == b"missing":
                yield File(path, None)
                continue
            content = process.stdout.read(int(answer[2]))
            process.stdout.read(1)  # the line end after it
            yield File(path, content.decode("utf-8", "replace"))


def _git(clone: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(clone), *words], capture_output=True, check=True)
