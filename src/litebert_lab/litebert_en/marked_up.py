"""Marked-up text as paragraphs of prose: opinions of the Supreme Court (HTML in JSON) and OpenStax textbooks (CNXML).

Both mark their paragraphs, so only those are read. Footnotes, figures, formulas, exercises and lists go, and so does a
sentence of an opinion that is mostly citations.
"""

import html
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator

from litebert_lab.litebert_en.prose import fault
from litebert_lab.litebert_en.tally import Tally

SHORTEST_OPINION = 3_000  # orders without an opinion are shorter
SHORTEST_MODULE = 1_000
SHORTEST_PARAGRAPH = 60

HTML_PARAGRAPH = re.compile(r"<p\b([^>]*)>(.*?)</p>", re.S)
NOT_TEXT = re.compile(
    r'<sup>.*?</sup>|<span class="(?:star-pagination|num)">.*?</span>|<a [^>]*class="footnote".*?</a>', re.S
)
TAG = re.compile(r"<[^>]*>")
CITATION = re.compile(
    r"\b\d+ (?:U\. ?S\.|S\. ?Ct\.|L\. ?Ed\.(?: ?2d)?|F\. ?(?:2d|3d|Supp\.)|How\.|Wall\.|Cranch|Wheat\.|Pet\.)"
    r"(?:,? (?:at )?\d+(?:[-–]\d+)?)*(?: \(\d{4}\))?"
)
SECTION = re.compile(r"§{1,2} ?\S+")
GAPS = re.compile(r"\s+([,.;:])|\(\s*\)")
SENTENCE_END = re.compile(r"(?<=[.!?])(?<![ .][A-Z]\.)(?<! v\.) (?=[\"'(]?[A-Z])")  # not after "U." or "v."
MOST_SIGNS = 0.3  # of a sentence: figures and punctuation
SKIPPED = {
    *("note", "figure", "table", "exercise", "equation", "list", "footnote", "glossary", "math", "media"),
    *("problem", "solution", "example", "metadata"),
}
SKIPPED_SECTIONS = {
    *("learning-objectives", "summary", "key-terms", "review-questions", "references", "further-research"),
    *(
        "section-quiz",
        "short-answer",
        "chapter-objectives",
        "suggested-reading",
        "key-equations",
        "conceptual-questions",
    ),
}


def opinions(path: str, text: str, tally: Tally) -> Iterator[list[str]]:
    """The opinion in a file, if it is one and not an order."""
    record = json.loads(text)
    source = record.get("html_lawbox") or record.get("html") or ""
    paragraphs: list[str] = []
    for attributes, body in HTML_PARAGRAPH.findall(source):
        if "footnote" in attributes or "case_cite" in attributes:
            continue
        line = " ".join(html.unescape(TAG.sub("", NOT_TEXT.sub("", body))).split())
        kept = " ".join(sentence for sentence in SENTENCE_END.split(line) if not _mostly_citations(sentence))
        _keep(kept, line, paragraphs, tally)
    if sum(map(len, paragraphs)) < SHORTEST_OPINION:
        tally.document("order or short opinion", paragraphs)
    else:
        yield paragraphs


def _mostly_citations(sentence: str) -> bool:
    """Whether little is left of a sentence without its citations, or figures and signs are much of it."""
    bare = CITATION.sub("", SECTION.sub("", sentence))
    signs = sum(not (character.isalpha() or character == " ") for character in sentence)
    return len(bare) < 0.6 * len(sentence) or signs > MOST_SIGNS * len(sentence)


def textbook_modules(path: str, text: str, tally: Tally) -> Iterator[list[str]]:
    """The paragraphs of a module."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        tally.document("damaged XML", [])
        return
    paragraphs: list[str] = []
    for line in _paras(root):
        _keep(GAPS.sub(r"\1", line), line, paragraphs, tally)
    if sum(map(len, paragraphs)) < SHORTEST_MODULE:
        tally.document("little prose", paragraphs)
    else:
        yield paragraphs


def _paras(element: ElementTree.Element) -> Iterator[str]:
    """The texts of all <para> outside of what is skipped."""
    name = element.tag.rpartition("}")[2]
    if name in SKIPPED or (name == "section" and element.get("class") in SKIPPED_SECTIONS):
        return
    if name == "para":
        yield " ".join("".join(_words(element)).split())
        return
    for child in element:
        yield from _paras(child)


def _words(element: ElementTree.Element) -> Iterator[str]:
    """The text of an element and of what it holds, without formulas, notes and figures."""
    yield element.text or ""
    for child in element:
        if child.tag.rpartition("}")[2] not in SKIPPED:
            yield from _words(child)
        yield child.tail or ""


def _keep(text: str, line: str, paragraphs: list[str], tally: Tally) -> None:
    """Add a paragraph, or count why not."""
    reason = "heading or short line" if len(text) < SHORTEST_PARAGRAPH else fault(text)
    if reason is None and not text.endswith((".", "!", "?", '"', "'", ")", "”", "’")):
        reason = "no full stop (list item, caption)"
    if reason is None:
        paragraphs.append(text)
    else:
        tally.paragraph(reason, line)
