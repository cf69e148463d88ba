"""Texts and natural pairs to learn sentence vectors from: of Wikipedia and of Reddit, in one file to carry away.

    git clone https://github.com/jason-feng/wikiVisual
    git clone https://github.com/ZhouYii/PatchedDistro
    git clone https://github.com/umbrae/reddit-top-2.5-million
    python -m litebert_lab.litebert_en.pairs --wiki-long wikiVisual --wiki-short PatchedDistro \\
        --reddit reddit-top-2.5-million --without STS -o pairs --megabytes 110

A line is one text, or two that belong together with a tab between them: the title of an article and how it begins, a
heading and what stands under it, neighbouring paragraphs, the title of a post and the post. Sentences of articles and
titles of other posts are texts alone. Wikipedia is CC BY-SA, the Reddit collection PDDL. Texts are cut at the end of a
sentence after ``LONGEST`` characters. What also occurs in a file under ``--without`` (test data) is left out, as are
texts with an e-mail address, a user's name or a telephone number.
"""

import argparse
import csv
import html
import io
import json
import lzma
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from litebert_lab.litebert_en import wikipedia
from litebert_lab.litebert_en.prose import fault, letters_of
from litebert_lab.litebert_en.sources import SOURCES, Source, listing, read
from litebert_lab.litebert_en.tally import Tally

REDDIT = next(source for source in SOURCES if source.name == "reddit")
WIKIPEDIA = tuple(source for source in SOURCES if source.name.startswith("wiki"))
Lines = Iterator[tuple[str, tuple[str, ...]]]  # a kind of line and its one or two texts

# The share of the file's characters that each kind of line has.
SHARES = {
    "reddit title": 0.28,
    "wiki sentence": 0.28,
    "reddit post": 0.22,
    "wiki beginning": 0.08,
    "wiki heading": 0.07,
    "wiki neighbours": 0.07,
}
LONGEST = 240  # characters of a text, or where its sentence ends before that
FEWEST_WORDS, MOST_WORDS = 4, 40  # of a title or a sentence alone
SELF_POST = 20  # words
SENTENCES = 2  # drawn of an article
MOST_ALIKE = 5  # texts that differ in names and figures alone ("X is a village in the district of Y")
HEADING = re.compile(r"[A-Z][^.!?]{2,50}\.")
PRIVATE = re.compile(r"\S@\S|\bu/\w|(?<!\w)@\w|\+?\d[\d ().-]{7,}\d")
MARKDOWN = re.compile(r"[*_~^`#]+|&nbsp;|\\(?=\W)")
LINKED = re.compile(r"\[([^\]]*)\]\([^)]*\)")
ADDRESS = re.compile(r"\S*(?:https?:|www\.)\S*")
TAGS = re.compile(r"^\s*(?:\[[^\]]{1,20}\]\s*)+|\s*\[[^\]]{1,20}\]\s*$")
LATER = re.compile(r"\b(?:edit|update|tl;?dr)\b\s*\d*\s*[:.-]", re.I)


def cut(text: str) -> str:
    """The beginning of a text: as many whole sentences as fit, else as many words."""
    if len(text) <= LONGEST:
        return text
    short = text[:LONGEST]
    ends = [match.end() for match in re.finditer(r"[.!?][\"')]?(?= )", short)]
    return short[: ends[-1]] if ends else short.rsplit(" ", 1)[0]


def wikipedia_lines(text: str, draws: random.Random) -> Lines:
    """The pairs and sentences of a file of articles."""
    tally = Tally()
    for raw, body in wikipedia.DOCUMENT.findall(text):
        title = html.unescape(raw)
        lines = [line.strip() for line in body.split("\n")[1:] if line.strip()]
        if title.startswith(("List of ", "Lists of ", "Index of ", "Outline of ")) or not lines:
            continue
        kept = list(wikipedia.prose_paragraphs(lines, tally))
        if not kept:
            continue
        yield "wiki beginning", (title, cut(kept[0]))
        headed = [(line, after) for line, after in pairwise(lines) if HEADING.fullmatch(line)]
        if headed:
            heading, after = draws.choice(headed)
            under, reason = wikipedia.paragraph(after)
            if reason is None:
                yield "wiki heading", (f"{title}: {heading[:-1]}", cut(under))
        if len(kept) > 1:
            place = draws.randrange(len(kept) - 1)
            yield "wiki neighbours", (cut(kept[place]), cut(kept[place + 1]))
        for paragraph in draws.sample(kept, min(SENTENCES, len(kept))):
            sentence = draws.choice(wikipedia.SENTENCE_END.split(paragraph))
            if FEWEST_WORDS <= len(sentence.split()) <= MOST_WORDS:
                yield "wiki sentence", (sentence,)


def reddit_lines(text: str) -> Lines:
    """The posts of a file: of those with a text of their own both, of others the title."""
    csv.field_size_limit(sys.maxsize)
    for row in csv.DictReader(io.StringIO(text)):
        if row.get("over_18") != "False":
            continue
        title = " ".join(TAGS.sub("", plain(row["title"] or "")).split())
        if not FEWEST_WORDS <= len(title.split()) <= MOST_WORDS:
            continue
        body = LATER.split(plain(row["selftext"] or ""))[0]
        body = " ".join(line for line in body.split("\n") if line.strip() and not line.lstrip().startswith((">", "|")))
        if len(body.split()) >= SELF_POST:
            yield "reddit post", (title, cut(" ".join(body.split())))
        else:
            yield "reddit title", (title,)


def plain(text: str) -> str:
    """A text without entities, addresses and marks of Markdown; what a link shows stays."""
    return MARKDOWN.sub("", ADDRESS.sub("", LINKED.sub(r"\1", html.unescape(html.unescape(text)))))


def reason_against(texts: tuple[str, ...], kind: str) -> str | None:
    """Why a line is left out, or None."""
    if any(PRIVATE.search(text) for text in texts):
        return "private"
    judged = texts[1:] or texts if kind != "wiki neighbours" else texts  # a title is too short to tell
    found = next((reason for text in judged if (reason := fault(text))), None)
    if found or any("\t" in text or not text for text in texts):
        return found or "empty"
    if len(texts) > 1 and letters_of(texts[0]) == letters_of(texts[1]):
        return "twice the same"
    return None


def template_of(text: str) -> str:
    """The words of a text that are no names and figures; nothing where they are too few to tell."""
    found = [word for word in text.split() if word.islower()]
    return " ".join(found) if len(found) > 3 else ""


def forbidden(folder: Path | None) -> set[bytes]:
    """The letters of every cell of the files in a folder."""
    if folder is None:
        return set()
    files = [path for path in folder.rglob("*") if path.suffix in (".txt", ".csv", ".tsv")]
    lines = (line for file in files for line in file.read_text(encoding="utf-8", errors="replace").split("\n"))
    return {letters_of(cell) for line in lines for cell in line.split("\t") if len(cell.split()) >= FEWEST_WORDS}


def collect(clones: dict[Source, Path], without: set[bytes], seed: int) -> tuple[dict[str, list[str]], Counter[str]]:
    """The lines of each kind that stay, and how many were left out for which reason."""
    draws, found, counts = random.Random(seed), dict[str, list[str]](), Counter[str]()
    seen, templates = set[bytes](), Counter[str]()
    for source, clone in clones.items():
        for _, text in read(clone, listing(clone, source)[0]):
            if text is None:
                counts["file missing in this copy"] += 1
                continue
            for kind, texts in wikipedia_lines(text, draws) if source in WIKIPEDIA else reddit_lines(text):
                letters = [letters_of(one) for one in texts]
                known = b"\t".join(letters) if len(letters) > 1 and len(letters[0]) < 20 else letters[-1]
                reason = reason_against(texts, kind)
                if reason is None and not without.isdisjoint(letters):
                    reason = "test data"
                if reason is None and known in seen:
                    reason = "duplicate"
                seen.add(known)
                if reason is None and (template := template_of(texts[-1])):
                    templates[template] += 1
                    reason = "template" if templates[template] > MOST_ALIKE else None
                if reason:
                    counts[reason] += 1
                else:
                    found.setdefault(kind, []).append("\t".join(texts))
        print(source.name, {kind: len(lines) for kind, lines in found.items()}, flush=True)
    return found, counts


def main() -> None:
    """Write ``pairs.txt.xz`` and what is in it."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for source in (*WIKIPEDIA, REDDIT):
        words.add_argument(f"--{source.name}", type=Path, help=f"clone of {source.repository}")
    words.add_argument("--without", type=Path, help="a folder of test data that must not occur")
    words.add_argument("-o", "--out", type=Path, required=True)
    words.add_argument("--megabytes", type=float, default=110, help="of text, before it is compressed")
    words.add_argument("--seed", type=int, default=0)
    asked = vars(words.parse_args())
    named = {source: asked[source.name.replace("-", "_")] for source in (*WIKIPEDIA, REDDIT)}
    clones = {source: clone for source, clone in named.items() if clone is not None}
    found, counts = collect(clones, forbidden(asked["without"]), asked["seed"])
    draws, kept, figures = random.Random(asked["seed"]), list[str](), dict[str, dict[str, int]]()
    for kind, lines in found.items():
        draws.shuffle(lines)
        room, chosen = SHARES[kind] * asked["megabytes"] * 1e6, 0
        while chosen < len(lines) and room > 0:
            room -= len(lines[chosen].encode()) + 1
            chosen += 1
        kept += lines[:chosen]
        used = sum(len(line) for line in lines[:chosen])
        figures[kind] = {"found": len(lines), "kept": chosen, "characters": used}
    draws.shuffle(kept)
    out: Path = asked["out"]
    out.mkdir(parents=True, exist_ok=True)
    with lzma.open(out / "pairs.txt.xz", "wt", encoding="utf-8", preset=6) as file:
        file.writelines(line + "\n" for line in kept)
    (out / "counts.json").write_text(json.dumps({"kept": figures, "left out": counts}, indent=1) + "\n")
    size = (out / "pairs.txt.xz").stat().st_size / 2**20
    print(json.dumps({"kept": figures, "left out": counts}, indent=1))
    print(f"{out / 'pairs.txt.xz'}: {len(kept):,} lines, {size:.1f} MiB")


if __name__ == "__main__":
    main()
