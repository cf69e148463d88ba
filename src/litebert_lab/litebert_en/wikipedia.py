"""Articles of an extracted Wikipedia (``<doc>`` blocks, a paragraph a line) as paragraphs of prose.

The extraction left traces: headings as short lines, list items, tags, and holes where it took a template out ("about
long", "(; born 1950)"). Holes in brackets are closed; a sentence with another hole is left out.
"""

import re
from collections.abc import Iterator

from litebert_lab.litebert_en.prose import fault
from litebert_lab.litebert_en.tally import Tally

SHORTEST_PARAGRAPH = 60
SHORTEST_ARTICLE = 400

DOCUMENT = re.compile(r'<doc [^>]*title="([^"\n]*)">\n(.*?)</doc>', re.S)
LAST_SECTIONS = re.compile(
    r"(?:references?|external links?|further reading|bibliography|see also|notes|footnotes|sources|citations|"
    r"notes and references|references and notes|works cited|gallery|literature)\.?",
    re.I,
)
# Looked for one by one: that is many times faster than one pattern of all of them.
MARKUP = (
    *("formula_", "[[", "]]", "{|", "|}", "{{", "|thumb", "|right", "</", "<!", "ISBN", "http:", "https:", "www."),
    "\\",
)
TAG = re.compile(r"</?(?:br|ref|small|sub|sup|b|i|u|p|div|span|center|blockquote|nowiki|big|references)\b[^>]*>")
UPDATE = re.compile(r"\[ ?\[update\]\]")
LINK = re.compile(r"\[https?://[^\]\s]*\s?([^\]]*)\]")
OPENING = re.compile(r"\(\s*(?:\]?\s*[;,:\]]\s*)+(?:or\s+(?=\)))?")
FOREIGN = re.compile(r"\s*\([^()]*[\u0250-\u1dff\u2c00-\uffff][^()]*\)")  # a name in its own script
EMPTY = re.compile(r"\s*\(\s*\)")
MEASURES = (
    *("area", "length", "distance", "height", "elevation", "altitude", "depth", "width", "radius", "diameter"),
    "speed",
)
ESTIMATES = (
    *("about", "approximately", "roughly", "nearly", "at least", "up to", "more than", "less than", "covers"),
    "total of",
)
GAPS = (" ,", " .", " ;", " :", "( ", " )", "))", ",,")
HOLE = re.compile(
    r" [,.;:](?=\s|$)|\( | \)|\)\)|,,|"
    rf"\b(?:(?:{'|'.join(ESTIMATES)}|(?:{'|'.join(MEASURES)}) of) (?:long|wide|high|tall|deep|thick|in (?:length|"
    r"height|diameter|area|size|width)|of|per|above|away|from|(?:north|south|east|west)(?:east|west)?)\b|"
    rf"(?:(?:{'|'.join(MEASURES)}|population) of|approximately) (?:[.,;)]|(?:and|in|at|with|is|was|which)\b))"
)
MAYBE_HOLES = (*GAPS, *(f"{word} " for word in ESTIMATES), *(f"{word} of" for word in MEASURES))
SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[\"'(]?[A-Z0-9])")
DASH = re.compile(r"\s*(?:—|--)\s*(?=[\"'(]?\w)")
ENDS = tuple(".!?\"')")


def articles(path: str, text: str, tally: Tally) -> Iterator[list[str]]:
    """The articles of a file that have enough prose."""
    for title, body in DOCUMENT.findall(text):
        lines = [line for line in body.split("\n")[1:] if line and not line.isspace()]
        if title.startswith(("List of ", "Lists of ", "Index of ", "Outline of ")):
            tally.document("list by its title", lines)
            continue
        paragraphs = list(prose_paragraphs(lines, tally))
        if sum(map(len, paragraphs)) < SHORTEST_ARTICLE:
            tally.document("stub", paragraphs)
        else:
            yield paragraphs


def prose_paragraphs(lines: list[str], tally: Tally) -> Iterator[str]:
    """What is prose among the lines of an article."""
    for place, line in enumerate(lines):
        if len(line) < 40 and LAST_SECTIONS.fullmatch(line.strip()):
            for each in lines[place:]:
                tally.paragraph("references and links", each)
            return
        text, reason = paragraph(line)
        if reason is None:
            yield text
        else:
            tally.paragraph(reason, line)


def paragraph(line: str) -> tuple[str, str | None]:
    """A line as a paragraph, and why it is none."""
    line = line.strip()
    if len(line) < SHORTEST_PARAGRAPH:
        return line, "heading or short line"
    if "[" in line or "<" in line:
        line = LINK.sub(r"\1", UPDATE.sub("", TAG.sub(" ", line)))
    if "(" in line:
        line = line if line.isascii() else FOREIGN.sub("", line)
        line = EMPTY.sub("", OPENING.sub("(", line))
    line = " ".join(line.split()).lstrip("•·*#-–:;,. ")
    if not line.endswith(ENDS):
        return line, "no full stop (list item, caption)"
    if any(sign in line for sign in MARKUP):
        return line, "markup or reference"
    if any(sign in line for sign in MAYBE_HOLES):
        line = " ".join(sentence for sentence in SENTENCE_END.split(line) if not HOLE.search(sentence))
        if len(line) < SHORTEST_PARAGRAPH:
            return line, "holes left by templates"
    if "—" in line or "--" in line:
        line = DASH.sub(" — ", line)
    return line, fault(line)
