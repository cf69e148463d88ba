"""Raw text in, documents out, one at a time; a fair sample of their lines; and the rule that holds some of them out.

A document is a paragraph block of a ``.txt`` file (separated by blank lines), or a row of a ``.jsonl``, ``.csv``,
``.tsv`` or ``.parquet`` file. Files may be compressed; a source is a file, a folder, a glob or ``-``, standard input.
Memory stays constant: at no time is more than one document held, and a "document" without an end is cut at a line.
"""

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from litebert.data.files import (
    COMPRESSIONS,
    STANDARD_INPUT,
    Errors,
    find_files,
    kind_of,
    kind_of_value,
    parse_json,
    text_lines,
    without_surrogates,
)
from litebert.data.separated import find_layout, separated_rows
from litebert.data.tables import parquet_rows, parquet_types
from litebert.errors import InputError, listed

TEXT_SUFFIXES = (".txt", ".text")
JSON_SUFFIXES = (".jsonl", ".ndjson")
TABLE_SUFFIXES = (".csv", ".tsv")
PARQUET_SUFFIXES = (".parquet",)
FOLDER_SUFFIXES = TEXT_SUFFIXES + JSON_SUFFIXES + PARQUET_SUFFIXES  # a table in a folder is rarely text: it is named
# Formats that would pass for plain text, or that people try; everything else that a person names is read as text.
REFUSED_SUFFIXES = (".json", ".xlsx", ".xls", ".zip", ".tar", ".tgz", ".7z", ".pdf", ".docx", ".arrow")
READABLE = f"{', '.join(FOLDER_SUFFIXES + TABLE_SUFFIXES)}, plain or {', '.join(COMPRESSIONS)}"

# A text file without blank lines is one endless document; it is cut at the first line end after this many characters.
LONGEST_DOCUMENT = 1 << 24
PARQUET_ROWS = 64
# Lines longer than this are cut, at a space where there is one: a paragraph is too coarse a thing to sample.
LONGEST_LINE = 1000


@dataclass(frozen=True, slots=True)
class Document:
    """One document: its text with its line ends kept, the source it came from, and the bytes of that read so far."""

    text: str
    source: str
    offset: int  # decompressed; 0 for parquet


def documents(sources: Sequence[str], *, field: str = "text", errors: Errors = "strict") -> Iterator[Document]:
    """Every document of ``sources`` in a stable order; a corpus without any text is an error."""
    paths = expand(sources)
    empty = True
    for path in paths:
        for document in read_documents(path, field=field, errors=errors):
            empty = False
            yield document
    if empty:
        raise InputError(f"the corpus is empty: no text in {_listed(map(str, paths))}")


def expand(sources: Sequence[str]) -> list[Path]:
    """The files that ``sources`` name: folders searched recursively and globs, each in sorted order."""
    if not sources:
        raise InputError("no corpus given; name a file, a folder, a glob, or - for standard input")
    return [path for source in sources for path in _expand_one(source)]


def _expand_one(source: str) -> list[Path]:
    found = find_files(source, FOLDER_SUFFIXES, READABLE)
    for path in found:
        _check_suffix(path)
    return found


def _check_suffix(path: Path) -> None:
    if kind_of(path) in REFUSED_SUFFIXES:
        raise InputError(f"'{path}' is not of a kind that can be read; give {READABLE}")


def read_documents(path: Path, *, field: str = "text", errors: Errors = "strict") -> Iterator[Document]:
    """The documents of one file that are not blank."""
    if errors not in ("strict", "replace"):
        raise InputError(f"errors is '{errors}' but must be strict or replace")
    source = str(path)
    for text, offset in _texts(path, field, errors):
        if text and not text.isspace():
            yield Document(text, source, offset)


def _texts(path: Path, field: str, errors: Errors) -> Iterator[tuple[str, int]]:
    """The texts of a file, each with the byte where it ends."""
    kind = kind_of(path)
    if kind in PARQUET_SUFFIXES:
        return _parquet_texts(path, field, errors)
    if kind in TABLE_SUFFIXES:
        return _column_texts(path, field, errors)
    lines = text_lines(path, errors=errors)
    if path == STANDARD_INPUT and (first := next(lines, None)) is not None:
        kind = JSON_SUFFIXES[0] if first[0].startswith("{") else ""
        lines = chain([first], lines)
    return _json_texts(path, lines, field, errors) if kind in JSON_SUFFIXES else _paragraphs(lines)


def _paragraphs(lines: Iterable[tuple[str, int, int]]) -> Iterator[tuple[str, int]]:
    held: list[str] = []
    size = offset = 0
    for line, _, offset in lines:
        line = line.rstrip("\r\n")
        blank = not line or line.isspace()
        if not blank:
            held.append(line)
            size += len(line)
        if held and (blank or size >= LONGEST_DOCUMENT):
            yield "\n".join(held), offset
            held, size = [], 0
    if held:
        yield "\n".join(held), offset


def _json_texts(
    path: Path, lines: Iterable[tuple[str, int, int]], field: str, errors: Errors
) -> Iterator[tuple[str, int]]:
    for line, number, offset in lines:
        if line and not line.isspace():
            place = f"{path}, line {number}"
            yield _text_in(parse_json(line, place), field, errors, place), offset


def _column_texts(path: Path, field: str, errors: Errors) -> Iterator[tuple[str, int]]:
    layout = find_layout(path, western=False, errors=errors)
    column = _column(path, layout.columns, field)
    rows = separated_rows(path, layout, errors=errors, western=False)
    return ((row[column], offset) for row, _, _, offset in rows)


def _parquet_texts(path: Path, field: str, errors: Errors) -> Iterator[tuple[str, int]]:
    types = parquet_types(path)
    _column(path, list(types), field)
    if "string" not in types[field]:
        raise InputError(f"{path}: the column '{field}' is not text but {types[field]}")
    for (value,), row in parquet_rows(path, [field], batch=PARQUET_ROWS):
        if row:
            yield _text_in(value, field, errors, f"{path}, row {row}"), 0


def _column(path: Path, columns: Sequence[str], field: str) -> int:
    if field not in columns:
        raise InputError(f"{path} has no column '{field}'; it has {_listed(columns)} (choose with field=)")
    return list(columns).index(field)


def _text_in(value: Any, field: str, errors: Errors, place: str) -> str:
    """The text in one value, or in its ``field``: a list is taken as paragraphs, null as no text."""
    if isinstance(value, dict):
        if field not in value:
            raise InputError(f"{place} has no field '{field}'; it has {_listed(value)} (choose with field=)")
        value = value[field]
    if value is None:
        return ""
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = "\n".join(value)
    if not isinstance(value, str):
        raise InputError(f"{place}: '{field}' is not text but {kind_of_value(value)}")
    if value.isascii() or (whole := without_surrogates(value)) == value:
        return value
    if errors == "strict":
        raise InputError(f"{place} holds half of a surrogate pair; use errors=replace to read on")
    return whole


def _listed(names: Iterable[str], most: int = 8) -> str:
    """A few names for a message."""
    names = [without_surrogates(str(name)) for name in names]
    return listed(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def lines_of(text: str) -> Iterator[str]:
    """The lines of a document with single spaces, none of them long, none empty."""
    for line in text.splitlines():
        line = " ".join(line.split())
        while len(line) > LONGEST_LINE:
            cut = line.rfind(" ", LONGEST_LINE // 2, LONGEST_LINE)
            cut = cut if cut > 0 else LONGEST_LINE
            yield line[:cut]
            line = line[cut:].lstrip()
        if line:
            yield line


def sample_lines(
    texts: Iterable[str], limit: int, seed: int, report: Callable[[str], None] = lambda message: None
) -> list[str]:
    """Lines of the documents ``texts``, all equally likely to be in, at most ``limit`` bytes of UTF-8 together.

    Each line draws a number; those below a bar are kept, and the bar is lowered whenever they grow too many. So the
    sample depends on the seed and the text alone, keeps the order of the text, and holds everything that fits.
    """
    draw = random.Random(seed)
    bar, held, size, documents = 1.0, [], 0, 0
    for documents, text in enumerate(texts, 1):
        for line in lines_of(text):
            height = draw.random()
            if height < bar:
                length = len(line.encode())
                held.append((height, length, line))
                size += length
        while size > limit:
            bar *= 0.8
            held = [item for item in held if item[0] < bar]
            size = sum(length for _, length, _ in held)
        if documents % 200 == 0:
            report(f"reading: {documents:,} documents, {size / 1e6:.1f} MB of text sampled")
    report(f"read {documents:,} documents, {size / 1e6:.1f} MB of text sampled" + (f" ({bar:.0%})" if bar < 1 else ""))
    return [line for _, _, line in held]


def is_held_out(text: str, share: float) -> bool:
    """Whether a document is among the ``share`` kept for measuring; a property of its text, not of its place."""
    if share <= 0:
        return False
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64
