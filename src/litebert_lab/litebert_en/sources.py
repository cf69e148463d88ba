"""Where the English text of litebert-en comes from: public repositories, each at one commit, read with git alone.

A repository may be an ordinary clone or a bare one. Files that a partial copy lacks are counted, not fetched.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """A repository at a commit, and which of its files hold text."""

    name: str  # of the text that is made of it
    repository: str
    commit: str
    files: str  # a pattern that the whole path must match
    licence: str


SHARE_ALIKE, MODULES = "CC BY-SA", r"modules/[^/]+/index\.cnxml"


def _textbook(name: str, commit: str) -> Source:
    """A book of OpenStax. Most are CC BY-NC-SA today; these are CC BY 4.0 at the commit named."""
    return Source(f"textbook-{name}", f"openstax/osbooks-{name}", commit, MODULES, "CC BY 4.0")


# Of each line's sources, the cleaner come first: of two copies the first is kept.
SOURCES = (
    # At later commits the text is gone.
    Source(
        "wiki-long",
        "jason-feng/wikiVisual",
        "1c0fac92f29f17c1603bfffbe864e0dfdff66897",
        r"text/A[A-Z]/wiki_\d+",
        SHARE_ALIKE,
    ),
    Source(
        "wiki-short",
        "ZhouYii/PatchedDistro",
        "961716d8a5a0df1a6373a4d61e360a0b5d1b85cd",
        r"data/A[A-Z]/wiki_\d+",
        SHARE_ALIKE,
    ),
    Source(
        "books",
        "mlschmitt/classic-books-markdown",
        "944882722e9a96fa6cf2739dc2ea757e101f412f",
        r"[^/]+/.*\.md",
        "public domain",
    ),
    Source(
        "gutenberg",
        "rcdm-uga/Gutenberg_Text",
        "a0b16d35a9851168ce9ac649851c17b7ab08d48e",
        r"[^/]+/.*\.txt",
        "public domain",
    ),
    Source(
        "reddit",
        "umbrae/reddit-top-2.5-million",
        "d0efcade504b8ed735a48ddc2b15552fa924c9d9",
        r"data/[^/]+\.csv",
        "PDDL",
    ),
    Source(
        "podcasts",
        "thechangelog/transcripts",
        "44a0e16c5919d332e05de481919fbfca90a2c90b",
        r"[a-z]+/[^/]+\.md",
        SHARE_ALIKE,
    ),
    # Every fifth opinion from 1950 on.
    Source(
        "opinions",
        "brianwc/bulk_scotus",
        "7dd89911b5f10a9367af293efb5fadddabcf2d8e",
        r"(?:1900s/19[5-9]\d|2000s/\d+)/\d*[05]\.json",
        "CC0",
    ),
    _textbook("college-success-bundle", "4c04b87eb2753872c2d442fe9736859ddb27bb72"),
    _textbook("introduction-anthropology", "418eedd9bef21ec1a6fa1b472c0d82c084e35c70"),
    _textbook("introduction-business", "78c9e7ad4e581d4ff98e78ea30214840e1fa7e1e"),
    _textbook("introduction-intellectual-property", "be76c2d982080df077b6f7f7f784d0bbbc37ee8b"),
    _textbook("principles-economics-bundle", "cd31beb103fffbc09cc81ebfe117d8c40cc12d1a"),
)


def listing(clone: Path, source: Source) -> tuple[list[tuple[str, str]], int]:
    """The distinct files of a source as (path, hash), in the order of paths, and the number of repeated contents."""
    command = ["git", "-C", str(clone), "ls-tree", "-r", "-z", source.commit]
    names = subprocess.run(command, capture_output=True, check=True).stdout.decode("utf-8").split("\0")
    rows = [name.split("\t", 1) for name in names if name]
    wanted = sorted((path, entry.split()[2]) for entry, path in rows if re.fullmatch(source.files, path, re.S))
    distinct: dict[str, str] = {}
    for path, digest in wanted:
        distinct.setdefault(digest, path)
    return [(path, digest) for digest, path in distinct.items()], len(wanted) - len(distinct)


def read(clone: Path, files: list[tuple[str, str]]) -> Iterator[tuple[str, str | None]]:
    """The paths and texts of files, out of one process of git; None where this copy of the repository lacks one."""
    command = ["git", "-C", str(clone), "cat-file", "--batch"]
    environment = os.environ | {"GIT_NO_LAZY_FETCH": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdin is not None and process.stdout is not None
        for path, digest in files:
            process.stdin.write(f"{digest}\n".encode())
            process.stdin.flush()
            answer = process.stdout.readline().split()
            if answer[-1] == b"missing":
                yield path, None
                continue
            content = process.stdout.read(int(answer[2]))
            process.stdout.read(1)  # the line end after it
            yield path, content.decode("utf-8", "replace")
