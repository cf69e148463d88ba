"""The English text of docs/recipe.md, out of two public repositories that were cloned before:

    git clone https://github.com/jason-feng/wikiVisual
    git clone https://github.com/mlschmitt/classic-books-markdown
    python examples/english_corpus.py wikiVisual classic-books-markdown -o text
    litebert corpus build text/wiki.txt text/books.txt --tokenizer DIR -o STORE --held-out 1%

DIR holds the released ALBERT vocabulary as spiece.model. What goes: titles, headings, list items and table cells (lines
of Wikipedia under 60 characters or without a full stop), tags, Markdown's marks, documents under 500 characters.
"""

import argparse
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

WIKI_COMMIT = "1c0fac92f29f17c1603bfffbe864e0dfdff66897"  # later ones have the text no more
SHORTEST_DOCUMENT = 500
MARKS = re.compile(r"[*_`]|!?\[([^\]]*)\]\([^)]*\)")


def git(repository: Path, *words: str, encoding: str = "utf-8") -> str:
    """What git says of a repository, with or without its files checked out."""
    done = subprocess.run(["git", "-C", str(repository), *words], capture_output=True)
    if done.returncode:
        raise SystemExit(f"{repository} is not a whole clone of the repository: {done.stderr.decode().strip()}")
    return done.stdout.decode(encoding, "replace")


def wikipedia(
    repository: Path, commit: str, shortest_line: int = 60, ends: str = ".!?\"')"
) -> Iterator[list[list[str]]]:
    """The articles of one file after the other, as paragraphs."""
    names = git(repository, "ls-tree", "-r", "--name-only", commit).splitlines()
    names = [name for name in names if "wiki_" in name]
    random.Random(0).shuffle(names)
    for name in names:
        articles = []
        for text in re.findall(r"<doc [^>]*>\n(.*?)</doc>", git(repository, "show", f"{commit}:{name}"), re.S):
            lines = [re.sub(r"<[^>]+>", "", line.strip()) for line in text.split("\n")[1:] if line.strip()]
            articles.append([line for line in lines if len(line) > shortest_line and line[-1] in ends])
        yield articles


def books(repository: Path) -> Iterator[list[list[str]]]:
    """The chapters of one book after the other, as paragraphs."""
    names = git(repository, "ls-tree", "-r", "-z", "--name-only", "HEAD").split("\0")
    names = [name for name in names if name.endswith(".md") and "/" in name]
    random.Random(1).shuffle(names)
    for name in names:
        chapters = []
        for text in re.split(r"^#+ .*$", git(repository, "show", f"HEAD:{name}"), flags=re.M):
            lines = [MARKS.sub(r"\1", line.strip().lstrip("> ")) for line in text.split("\n")]
            chapters.append([line for line in lines if len(line) > 20])
        yield chapters


def write(files: Iterator[list[list[str]]], path: Path, characters: float) -> None:
    """Whole files until there is enough, a blank line after each document."""
    written = 0
    with path.open("w", encoding="utf-8") as file:
        for documents in files:
            for lines in documents:
                if sum(map(len, lines)) >= SHORTEST_DOCUMENT:
                    written += file.write("\n".join(lines) + "\n\n")
            if written > characters:
                break
    print(f"{path}: {written:,} characters")


def main() -> None:
    """Write both files."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("wiki", type=Path)
    words.add_argument("books", type=Path)
    words.add_argument("-o", "--out", type=Path, default=Path("text"))
    asked = words.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    write(wikipedia(asked.wiki, WIKI_COMMIT), asked.out / "wiki.txt", 130e6)
    write(books(asked.books), asked.out / "books.txt", 90e6)


if __name__ == "__main__":
    main()
