"""One text of the cleaned sources, the documents of all in one seeded random order.

    python -m litebert_lab.litebert_en.mix clean -o en.txt
    python -m litebert_lab.litebert_en.mix clean -o en2.txt --megabytes reddit=330 wiki-long=150 --without GLUE STS

The first is litebert-en's: all of Wikipedia and all of the books in Markdown, which are the cleanest, then as many
chapters of Project Gutenberg, drawn at random, as make the halves equal. With ``--megabytes``, that much of each source
named, drawn at random (a source with less is taken whole). So any beginning of the text has the same mixture as the
whole. ``--without`` names folders of test sets: a paragraph with one of their sentences is left out.
"""

import argparse
import itertools
import json
import random
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from litebert_lab.litebert_en.overlap import TestSentences, texts_of_tables

WIKIPEDIA = ("wiki-long", "wiki-short")
FIRST_BOOKS, MORE_BOOKS = "books", "gutenberg"
SAMPLE_LINES = 50_000  # of the first source, from which frequent words are known


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


def halves(by_source: dict[str, list[Span]], seed: int) -> list[Span]:
    """The documents of litebert-en's text in their order."""
    draws = random.Random(seed)
    chosen = [span for name in WIKIPEDIA for span in by_source[name]]
    missing = sum(span.size for span in chosen) - sum(span.size for span in by_source[FIRST_BOOKS])
    chosen += by_source[FIRST_BOOKS]
    chosen += _drawn(by_source[MORE_BOOKS], missing, draws)
    draws.shuffle(chosen)
    return chosen


def shares(by_source: dict[str, list[Span]], sizes: dict[str, int], seed: int) -> list[Span]:
    """Documents of each source up to its number of bytes, in their order."""
    draws = random.Random(seed)
    chosen = [span for name, size in sizes.items() for span in _drawn(by_source[name], size, draws)]
    draws.shuffle(chosen)
    return chosen


def _drawn(documents: list[Span], size: int, draws: random.Random) -> list[Span]:
    """Documents in random order until they have ``size`` bytes."""
    order = list(documents)
    draws.shuffle(order)
    before = itertools.accumulate((span.size for span in order), initial=0)
    return [span for span, done in zip(order, before, strict=False) if done < size]


def write(clean: Path, order: list[Span], path: Path, without: TestSentences | None) -> dict[str, dict[str, int]]:
    """Write them; returns how much of each source there is."""
    sources = sorted({span.source for span in order})
    figures = {name: {"documents": 0, "bytes": 0, "paragraphs_of_tests": 0} for name in sources}
    with ExitStack() as stack:
        files = {name: stack.enter_context((clean / f"{name}.txt").open("rb")) for name in figures}
        out = stack.enter_context(path.open("wb"))
        for span in order:
            files[span.source].seek(span.start)
            text, figure = files[span.source].read(span.size), figures[span.source]
            if without is not None:
                lines = text.decode().split("\n")
                kept = [line for line in lines if not without.found_in(line)]
                figure["paragraphs_of_tests"] += len(lines) - len(kept)
                text = "\n".join(kept).encode() if any(kept) else b""
            out.write(text)
            figure["documents"] += bool(text)
            figure["bytes"] += len(text)
    return figures


def sentences_of_tests(folders: list[Path], sample: Path) -> TestSentences:
    """What ``--without`` names."""
    with sample.open(encoding="utf-8") as file:
        return TestSentences(texts_of_tables(folders), itertools.islice(file, SAMPLE_LINES))


def main() -> None:
    """Write the text and, beside it, what is in it."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("clean", type=Path, help="the folder that clean.py wrote")
    words.add_argument("-o", "--out", type=Path, required=True)
    words.add_argument(
        "--megabytes", nargs="+", metavar="SOURCE=N", help="how much of each source; else litebert-en's mixture"
    )
    words.add_argument("--without", nargs="+", type=Path, default=[], help="folders of test sets")
    words.add_argument("--seed", type=int, default=0)
    asked = words.parse_args()
    sizes = {name: int(float(size) * 1e6) for name, _, size in (word.partition("=") for word in asked.megabytes or ())}
    names = list(sizes) or [*WIKIPEDIA, FIRST_BOOKS, MORE_BOOKS]
    by_source = {name: spans(asked.clean / f"{name}.txt") for name in names}
    order = shares(by_source, sizes, asked.seed) if sizes else halves(by_source, asked.seed)
    without = sentences_of_tests(asked.without, asked.clean / f"{names[0]}.txt") if asked.without else None
    if without is not None:
        print(f"{len(without):,} sentences of test sets to look for", flush=True)
    figures = write(asked.clean, order, asked.out, without)
    asked.out.with_suffix(".json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    for name, figure in figures.items():
        print(
            f"{name}: {figure['documents']:,} of {len(by_source[name]):,} documents, {figure['bytes'] / 1e6:,.1f} MB, "
            f"{figure['paragraphs_of_tests']:,} paragraphs of test sets left out"
        )


if __name__ == "__main__":
    main()
