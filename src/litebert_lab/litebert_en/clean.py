"""The text of litebert-en, cleaned: one file a source, one paragraph a line, a blank line between documents.

    git clone https://github.com/jason-feng/wikiVisual
    git clone https://github.com/ZhouYii/PatchedDistro
    git clone https://github.com/mlschmitt/classic-books-markdown
    ...
    python -m litebert_lab.litebert_en.clean --wiki-long wikiVisual --wiki-short PatchedDistro \\
        --books classic-books-markdown --gutenberg Gutenberg_Text --reddit reddit-top-2.5-million -o clean

The folder gets SOURCE.txt for each, counts.json (what was left out and why) and samples/ (forty of each to look at).
The order matters: of two copies the first is kept, so the cleaner sources come first.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from litebert_lab.litebert_en import books, marked_up, posts, wikipedia
from litebert_lab.litebert_en.prose import Seen
from litebert_lab.litebert_en.sources import SOURCES, Source, listing, read
from litebert_lab.litebert_en.tally import KEPT, Tally, as_table, write_tallies

# By the beginning of a source's name.
READERS: dict[str, Callable[[str, str, Tally], Iterator[list[str]]]] = {
    "wiki": wikipedia.articles,
    "books": books.markdown_chapters,
    "gutenberg": books.gutenberg_chapters,
    "reddit": posts.reddit_posts,
    "podcasts": posts.transcript,
    "opinions": marked_up.opinions,
    "textbook": marked_up.textbook_modules,
}


def documents(source: Source, clone: Path, tally: Tally) -> Iterator[list[str]]:
    """The documents of a source, with what their files lack counted."""
    files, repeated = listing(clone, source)
    for _ in range(repeated):
        tally.document("file under two names", [])
    for path, text in read(clone, files):
        if text is None:
            tally.document("file missing in this copy", [])
        else:
            yield from READERS[source.name.partition("-")[0]](path, text, tally)


def clean(source: Source, clone: Path, seen: Seen, path: Path) -> Tally:
    """Write what is new of a source."""
    tally = Tally()
    with path.open("w", encoding="utf-8") as file:
        for paragraphs in documents(source, clone, tally):
            parted = seen.new(paragraphs)
            if parted is None:
                tally.document("duplicate document", paragraphs)
                continue
            fresh, repeated = parted
            for text in repeated:
                tally.paragraph("duplicate paragraph", text)
            tally.document(KEPT, fresh)
            file.write("\n".join(fresh) + "\n\n")
    return tally


def main() -> None:
    """Clean every source whose clone was given."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for source in SOURCES:
        words.add_argument(f"--{source.name}", type=Path, help=f"clone of {source.repository}")
    words.add_argument("-o", "--out", type=Path, required=True)
    asked = vars(words.parse_args())
    out: Path = asked["out"]
    out.mkdir(parents=True, exist_ok=True)
    seen = Seen()
    tallies = {}
    for source in SOURCES:
        clone = asked[source.name.replace("-", "_")]
        if clone is None:
            continue
        begun = time.monotonic()
        tallies[source.name] = clean(source, clone, seen, out / f"{source.name}.txt")
        kept = tallies[source.name].counts[KEPT]
        print(
            f"{source.name}: {kept.documents:,} documents, {kept.characters:,} characters in "
            f"{time.monotonic() - begun:.0f} s",
            flush=True,
        )
    write_tallies(tallies, out)
    print(as_table({name: tally.figures() for name, tally in tallies.items()}))


if __name__ == "__main__":
    main()
