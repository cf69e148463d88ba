"""Books as chapters of prose: blocks of lines, parted by blank ones, become paragraphs, headings part the chapters.

Project Gutenberg wraps its lines; verse, tables and lists show by lines that end early, contents by their dots and page
numbers. The Markdown books have a paragraph a line and headings that say so.
"""

import re
import zlib
from collections.abc import Iterator

from litebert_lab.litebert_en.prose import CAPITALS, LETTERS, fault, share
from litebert_lab.litebert_en.tally import Tally

SHORTEST_CHAPTER = 2_000
LONGEST_CHAPTER = 50_000
LEAST_PROSE = 0.5  # of a book
SHORTEST_LINE = 50  # in the mean of a wrapped paragraph; verse has shorter ones
FIRST_PARAGRAPH = 200  # what comes before the first one of that length is a title page
CURLY_BOOKS = 10  # one book in so many keeps its curly quotes, so that the vocabulary knows them

START = re.compile(r"^\*\*\* ?START OF (?:THIS|THE) PROJECT GUTENBERG[^\n]*$", re.M)
END = re.compile(
    r"^(?:\*\*\* ?END OF (?:THIS|THE) PROJECT GUTENBERG|End of (?:the |this )?Project Gutenberg)", re.M | re.I
)
LANGUAGE = re.compile(r"^Language: *(.+?)\s*$", re.M)
FINISH = re.compile(r"^[ _*]*(?:THE END|FINIS|The End)[ ._*]*$", re.M)
BACK_MATTER = re.compile(
    r"^[ _*=]*(?:INDEX|GENERAL INDEX|FOOTNOTES|TRANSCRIBER'?S? NOTES?|APPENDIX OF ERRATA|BIBLIOGRAPHY|"
    r"ADVERTISEMENTS|Transcriber['’]?s['’]? Notes?)[ .:_*=]*$",
    re.M,
)
NUMBER = r"(?:[ivxlcdm]+|\d+|one|two|three|four|five|six|seven|eight|nine|ten|the \w+|first|second|third|fourth|last)"
CHAPTER = re.compile(
    rf"(?:(?:chapter|chap\.?|book|part|act|scene|letter|canto|volume|vol\.?|section|stave|lecture|essay|sermon|"
    rf"no\.?|number|epilogue|prologue|preface|introduction|conclusion)\b[\s.:-]*{NUMBER}?\b.{{0,80}}|{NUMBER}\.?)",
    re.I | re.S,
)
# Looked for one by one: that is many times faster than one pattern of all of them.
PRODUCTION = (
    *("Gutenberg", "Transcriber", "Proofread", "pgdp.", "Internet Archive", "text prepared", "Produced by"),
    *("HTML version", "Copyright", "COPYRIGHT", "Entered according to", "All rights reserved", "http:", "https:"),
    *("www.", "ISBN", "8vo", "12mo", "Printed by", "Printed in", "Hyphenation", "ypographical error"),
)
GAPS = ("   ", "\t", ".....", ". . . . .", "* *", "***", "|")
NOTE = re.compile(r"\s*(?:\[\d+\]|\[[A-Z]\]|\[Footnote|\[Sidenote|\[Illustration|\[Transcriber|\{\d+\}|\*\s*\*)")
BRACKETED = re.compile(
    r"\[(?:Illustration|Footnote|Sidenote|Transcriber|Note|Greek|Music|Picture|Decoration|Blank|Hebrew)[^\]]*\]"
)
MARK = re.compile(r"\s?[\[{](?:\d{1,4}|[A-Za-z*]|[ivxl]+|[Pp](?:g|age)?\.? ?\d+)[\]}]")
IMAGE_OR_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
RAISED = re.compile(r"\^\{?(\w+)\}?")
DASH = re.compile(r"\s*(?:--+|—+|―)\s*(?=[\"'“‘(]?\w)")
HIDDEN_DASH = re.compile(r"(?<=[,;.!?])-(?=[A-Za-z\"'])")
PLAIN_QUOTES = str.maketrans("“”„‘’‚", "\"\"\"'''")
EMPHASIS = "_*=~`"
ENDS = tuple(".!?\"'”’)")
OPEN_ENDS = tuple(":;,-—")  # what comes before a speech or a letter
SHORTEST_OPEN = 40
SHORTEST_WHOLE = 150  # a single line of that length is a paragraph, whatever its spaces


def gutenberg_chapters(path: str, text: str, tally: Tally) -> Iterator[list[str]]:
    """The chapters of a file of Project Gutenberg."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    start, end, language = START.search(text), END.search(text), LANGUAGE.search(text)
    if not start or not end or end.start() < start.end():
        tally.document("without Gutenberg's marks of start and end", [text])
        return
    if not language or language[1] != "English":
        tally.document("not English", [text])
        return
    tally.paragraph("licence", text[: start.end()])
    tally.paragraph("licence", text[end.start() :])
    body = _without_back_matter(text[start.end() : end.start()], tally)
    yield from _chapters(path, body, tally)


def markdown_chapters(path: str, text: str, tally: Tally) -> Iterator[list[str]]:
    """The chapters of a Markdown book; its head (title, author, year) ends with a rule."""
    _, rule, body = text.partition("\n-------\n")
    yield from _chapters(path, body if rule else text, tally)


def _without_back_matter(body: str, tally: Tally) -> str:
    """The text up to "THE END", the index or the notes, where these come in the last part of it."""
    for pattern, from_share in ((FINISH, 0.8), (BACK_MATTER, 0.7)):
        found = pattern.search(body, int(len(body) * from_share))
        if found:
            tally.paragraph("index, notes, advertisements at the end", body[found.start() :])
            body = body[: found.start()]
    return body


def _chapters(path: str, body: str, tally: Tally) -> Iterator[list[str]]:
    """The chapters, unless what is prose is the smaller part of the book."""
    chapters = list(_all_chapters(path, body, tally))
    kept = sum(len(text) for chapter in chapters for text in chapter)
    if kept < LEAST_PROSE * len(body):
        for chapter in chapters:
            tally.document("book that is mostly no prose (plays, verse, notes)", chapter)
    else:
        yield from chapters


def _all_chapters(path: str, body: str, tally: Tally) -> Iterator[list[str]]:
    """Paragraphs, gathered until a heading or until they are many."""
    keep_quotes = zlib.crc32(path.encode()) % CURLY_BOOKS == 0
    blocks = [block.split("\n") for block in re.split(r"\n\s*\n", body.strip("\n"))]
    width = _usual_width(blocks)
    gathered: list[str] = []
    size, begun = 0, False
    for lines in blocks:
        if _is_heading(lines):
            tally.paragraph("heading", "\n".join(lines))
            if size >= SHORTEST_CHAPTER:
                yield gathered
                gathered, size = [], 0
            continue
        for text, reason in _paragraphs(lines, width):
            if reason is None and not begun and len(text) < FIRST_PARAGRAPH:
                reason = "title page"
            if reason is not None:
                tally.paragraph(reason, text)
                continue
            begun = True
            text = text if keep_quotes or text.isascii() else text.translate(PLAIN_QUOTES)
            gathered.append(text)
            size += len(text)
            if size >= LONGEST_CHAPTER:
                yield gathered
                gathered, size = [], 0
    if size >= SHORTEST_CHAPTER:
        yield gathered
    elif gathered:
        tally.document("short rest of a book", gathered)


def _usual_width(blocks: list[list[str]]) -> int:
    """How long the lines of wrapped paragraphs are; 0 where paragraphs are lines."""
    lengths = sorted(len(line) for lines in blocks if len(lines) > 3 for line in lines[:-1])
    return lengths[len(lengths) * 3 // 4] if lengths else 0


def _is_heading(lines: list[str]) -> bool:
    """A Markdown heading, a number, "CHAPTER I. The beginning", or few words in capitals or without a full stop."""
    text = " ".join(line.strip() for line in lines).strip(" _*=")
    if text.startswith("#"):
        return True
    if not text or len(text) > 120 or len(lines) > 4:
        return False
    if CHAPTER.fullmatch(text) and len(text) < 100 and (len(text) < 12 or not text.endswith(('"', "”", ","))):
        return True
    data = text.encode()
    capitals = share(data, CAPITALS) > 0.7 * share(data, LETTERS)
    return capitals and share(data, LETTERS) > 0.5 and text[0] not in "\"'“‘"


def _paragraphs(lines: list[str], width: int) -> Iterator[tuple[str, str | None]]:
    """The paragraphs of a block, each with the reason to leave it out: one, or one a line where lines are long."""
    if len(lines) > 1 and max(map(len, lines)) > 200:
        for line in lines:
            yield paragraph(line)
        return
    whole = "\n".join([line.strip() for line in lines])
    reason = _block_fault(lines, width, whole)
    yield (whole, reason) if reason else paragraph(whole)


def _block_fault(lines: list[str], width: int, whole: str) -> str | None:
    """What the shape of a block tells."""
    if NOTE.match(whole):
        return "note or illustration"
    if any(word in whole for word in PRODUCTION):
        return "note of the transcriber or printer"
    if (len(lines) > 1 or len(whole) < SHORTEST_WHOLE) and any(gap in whole for gap in GAPS):
        return "table, contents or rule"
    if len(lines) > 1:
        mean = sum(len(line.rstrip()) for line in lines[:-1]) / (len(lines) - 1)
        if mean < max(SHORTEST_LINE, 0.75 * width if width <= 100 else 0):
            return "verse or list"
    return None


def paragraph(text: str) -> tuple[str, str | None]:
    """A text without marks, on one line, and why it is no paragraph."""
    if "^" in text:
        text = RAISED.sub(r"\1", text)
    if "[" in text or "{" in text:
        text = MARK.sub("", BRACKETED.sub("", IMAGE_OR_LINK.sub(r"\1", text)))
    for sign in EMPHASIS:
        text = text.replace(sign, "")
    text = " ".join(text.split()).lstrip("> ")
    if "-" in text or "—" in text:
        text = DASH.sub(" -- ", HIDDEN_DASH.sub("--", text))
    if not text.endswith(ENDS if len(text) < SHORTEST_OPEN else (*ENDS, *OPEN_ENDS)):
        return text, "no full stop (list item, caption)"
    if len(text) < 20 and not (text[:1] in "\"'“‘" or len(text.split()) > 1):
        return text, "short line"
    return text, fault(text)
