"""Posts and transcripts, written in Markdown, as paragraphs of prose: Reddit's self-posts and the Changelog podcasts.

A post is a row of a CSV file: its title, then its text. A transcript has a paragraph for each turn of a speaker. Links
keep their words, quotations of others, tables, code and bare addresses go. E-mail addresses, telephone numbers and
user names are replaced by what they are.
"""

import csv
import html
import io
import re
from collections.abc import Iterator

from litebert_lab.litebert_en.prose import fault
from litebert_lab.litebert_en.tally import Tally

csv.field_size_limit(1 << 30)
SHORTEST_POST = 20  # words
SHORTEST_DOCUMENT = 100  # characters
SHORTEST_PARAGRAPH = 15

LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\s]*(?: \"[^\"]*\")?\)")
ADDRESS = re.compile(r"(?:https?://|www\.)\S+")
EMAIL = re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.-]+\b")
PHONE = re.compile(r"(?<![\w-])(?:\+?\d{1,2}[ .-]?)?(?:\(\d{3}\)|\d{3})[ .-]\d{3}[ .-]\d{4}(?![\w-])")
USER = re.compile(r"(?<![\w/])/?u/[\w-]+|(?<!\w)@[A-Za-z]\w{2,}")
BOLD_SPEAKER = re.compile(r"^\*\*[^*\n]{1,60}:\*\*\s*")
TIME = re.compile(r"\\?\[\d+:\d\d(?::\d\d)?\\?\]\s*")
STAGE_DIRECTION = re.compile(r"\\?\[(?:unintelligible|laughter|laughs?|crosstalk|applause|music)[^\]\\]*\\?\]\s*", re.I)
EMPHASIS = re.compile(r"(?<!\w)[*_]{1,3}(?=\S)|(?<=\S)[*_]{1,3}(?!\w)|[~`^]+")
MARKER = re.compile(r"^(?:[*+-]|\d{1,2}[.)]|#+)\s+")
RULE = re.compile(r"^[-*_=\s]+$")
ESCAPED = re.compile(r"\\([\\`*_{}\[\]()#+\-.!>~^])")


def reddit_posts(path: str, text: str, tally: Tally) -> Iterator[list[str]]:
    """The self-posts of a subreddit's file that have enough prose; a title is the first paragraph."""
    for row in csv.DictReader(io.StringIO(text)):
        body = row.get("selftext") or ""
        if row.get("is_self") != "True" or len(body.split()) < SHORTEST_POST:
            continue
        if row.get("over_18") == "True":
            tally.document("marked for adults", [body])
            continue
        title = paragraph(html.unescape(row.get("title") or ""))
        paragraphs = [] if title[1] else [title[0]]
        paragraphs += _prose(html.unescape(html.unescape(body)), tally)
        if sum(map(len, paragraphs)) - len(title[0]) < SHORTEST_DOCUMENT:
            tally.document("little prose", paragraphs)
        else:
            yield paragraphs


def transcript(path: str, text: str, tally: Tally) -> Iterator[list[str]]:
    """An episode: what is said, without who says it and when."""
    paragraphs = list(_prose(text, tally))
    if sum(map(len, paragraphs)) < SHORTEST_DOCUMENT:
        tally.document("little prose", paragraphs)
    else:
        yield paragraphs


def _prose(text: str, tally: Tally) -> Iterator[str]:
    """What is prose among the blocks of a Markdown text; a block is a paragraph, and so is each item of a list."""
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[*+-]|\d{1,2}[.)]|#+|&gt;|>)\s)", text.replace("\r", "")):
        if not block or block.isspace():
            continue
        found, reason = paragraph(block)
        if reason is None:
            yield found
        else:
            tally.paragraph(reason, block)


def paragraph(block: str) -> tuple[str, str | None]:
    """A block as one line of text without marks, and why it is no paragraph."""
    if block.startswith(("    ", "\t")):
        return block, "code"
    block = block.strip()
    if block.startswith(">"):
        return block, "quotation"
    if RULE.match(block):
        return block, "rule"
    if block.count("|") > 2:
        return block, "table"
    block = STAGE_DIRECTION.sub("", TIME.sub("", BOLD_SPEAKER.sub("", MARKER.sub("", block))))
    block = USER.sub("[user]", PHONE.sub("[phone]", EMAIL.sub("[email]", LINK.sub(r"\1", block))))
    if "://" in block or "www." in block:
        without = ADDRESS.sub("", block)
        if len(without) < 0.6 * len(block):
            return block, "mostly addresses"
        block = without
    text = " ".join(EMPHASIS.sub("", ESCAPED.sub(r"\1", block)).split())
    if len(text) < SHORTEST_PARAGRAPH:
        return text, "short line"
    return text, fault(text)
