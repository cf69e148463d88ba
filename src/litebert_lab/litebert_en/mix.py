"""One text of the cleaned sources: as much of books as of Wikipedia, the documents of all in one seeded random order.

    python -m litebert_lab.litebert_en.mix clean -o en.txt

All of Wikipedia goes in and all of the books in Markdown, which are the cleanest; then as many chapters of Project
Gutenberg, drawn at random, as make the halves equal. So any beginning of the text has the same mixture as the whole.
"""

import argparse
import json
import random
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

WIKIPEDIA = ("wiki-long", "wiki-short")
FIRST_BOOKS, MORE_BOOKS = "books", "gutenberg"


@dataclass(frozen=True, slots=True)
class Span:
    """A document: its source, where in the file it begins and how many bytes it has, the blank line included."""

    source: str
    start: int
    size: int


def spans(path: Path) -> list[Span]:
    """The documents of a cleaned file."""
    found = []
    start = place = 0
    with path.open("rb") as file:
        for line in file:
            place += len(line)
            if line == b"\n":
                found.append(Span(path.stem, start, place - start))
                start = place
    return found


def mixture(by_source: dict[str, list[Span]], seed: int) -> list[Span]:
    """The documents of the text in their order."""
    draws = random.Random(seed)
    chosen = [span for name in WIKIPEDIA for span in by_source[name]]
    missing = sum(span.size for span in chosen) - sum(span.size for span in by_source[FIRST_BOOKS])
    chosen += by_source[FIRST_BOOKS]
    more = list(by_source[MORE_BOOKS])
    draws.shuffle(more)
    while more and missing > 0:
        chosen.append(more.pop())
        missing -= chosen[-1].size
    draws.shuffle(chosen)
    return chosen


def write(clean: Path, order: list[Span], path: Path) -> dict[str, dict[str, int]]:
    """Write them; returns how much of each source there is."""
    figures = {name: {"documents": 0, "bytes": 0} for name in (*WIKIPEDIA, FIRST_BOOKS, MORE_BOOKS)}
    with ExitStack() as stack:
        files = {name: stack.enter_context((clean / f"{name}.txt").open("rb")) for name in figures}
        out = stack.enter_context(path.open("wb"))
        for span in order:
            files[span.source].seek(span.start)
            out.write(files[span.source].read(span.size))
            figures[span.source]["documents"] += 1
            figures[span.source]["bytes"] += span.size
    return figures


def main() -> None:
    """Write the text and, beside it, what is in it."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("clean", type=Path, help="the folder that clean.py wrote")
    words.add_argument("-o", "--out", type=Path, required=True)
    words.add_argument("--seed", type=int, default=0)
    asked = words.parse_args()
    by_source = {name: spans(asked.clean / f"{name}.txt") for name in (*WIKIPEDIA, FIRST_BOOKS, MORE_BOOKS)}
    figures = write(asked.clean, mixture(by_source, asked.seed), asked.out)
    asked.out.with_suffix(".json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    for name, figure in figures.items():
        print(f"{name}: {figure['documents']:,} of {len(by_source[name]):,} documents, {figure['bytes'] / 1e6:,.1f} MB")


if __name__ == "__main__":
    main()
