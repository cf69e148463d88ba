"""Files of separated cells as people have them: what separates the cells, whether quotes quote, where names are.

CSV, TSV and their relatives say none of this themselves. It is detected from the first lines (quotes between tabs from
all of them), and logged where it is not the plain case.
"""

import csv
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from litebert.data.files import Errors, kind_of, open_bytes, text_lines, without_surrogates
from litebert.errors import InputError

log = logging.getLogger(__name__)

Cell = Any  # str, int, float, bool, None, or a list or object of JSON

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "pipes"}
USUAL_SEPARATORS = {".tsv": "\t", ".tab": "\t", ".txt": "\t", ".psv": "|"}
SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)  # Excel's own hint, before the header
SAMPLE = 200  # lines that the layout is detected from
USUAL_NAMES = frozenset(("id", "text", "label", "labels", "sentence", "sentence1", "category", "target", "document"))
LONGEST_CELL = (1 << 31) - 1
CONSISTENT = 0.95  # of the rows have as many cells as the first, for a separator that is not the usual one


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a file of separated cells is laid out."""

    separator: str
    quoted: bool
    columns: tuple[str, ...]
    header_line: int  # 0 where there is none
    named: bool
    hint: bool  # whether the first line only says what the separator is
    old_mac: bool


def find_layout(path: Path, *, header: bool | None = None, western: bool = True, errors: Errors = "strict") -> Layout:
    """The layout of a file, detected from its first lines; anything unusual is logged."""
    with open_bytes(path) as stream:
        head = stream.peek(1)
    old_mac = b"\r" in head and b"\n" not in head
    found = text_lines(path, western=western, errors=errors, quiet=True, old_mac=old_mac)
    lines = [text for text, _, _ in islice(found, SAMPLE)]
    hint_line = SEPARATOR_LINE.fullmatch(lines[0]) if lines else None
    usual = USUAL_SEPARATORS.get(kind_of(path), ",")
    separator = hint_line[1] if hint_line else _find_separator(lines, usual)
    if separator != usual and not hint_line:
        log.info("%s: cells are separated by %s", path, SEPARATORS[separator])
    quoted = separator != "\t" or _tabs_are_quoted(
        lambda: (text for text, _, _ in text_lines(path, western=western, errors=errors, quiet=True, old_mac=old_mac))
    )
    rows = [row for row in _sample_rows(lines[bool(hint_line) :], separator, quoted) if has_content(row)]
    named = (has_header(rows) if header is None else header) if rows else True
    if header is None and not named:
        log_missing_header(str(path), rows[0])
    first = next(
        (number for number, text in enumerate(lines, 1) if text.strip() and not (hint_line and number == 1)), 0
    )
    width = max((extent(row) for row in rows), default=0)  # a separator at the end of every line makes no column
    return Layout(
        separator=separator,
        quoted=quoted,
        columns=column_names([cell if named else "" for cell in rows[0][:width]] if rows else (), str(path)),
        header_line=first if named else 0,
        named=named,
        hint=hint_line is not None,
        old_mac=old_mac,
    )


def separated_rows(
    path: Path, layout: Layout, *, line: int = 0, offset: int = 0, errors: Errors = "strict", western: bool = True
) -> Iterator[tuple[list[str], int, int, int]]:
    """The cells of each row below the header, the line it starts on, and the line and the byte that it ends at."""
    at = [line, offset]

    def texts() -> Iterator[str]:
        lines = text_lines(path, line=line, offset=offset, errors=errors, western=western, old_mac=layout.old_mac)
        for text, number, after in lines:
            at[:] = number, after
            yield text

    separator, width = layout.separator, len(layout.columns)
    rows: Iterator[list[str]]
    if layout.quoted:
        csv.field_size_limit(LONGEST_CELL)
        rows = csv.reader(texts(), delimiter=separator, strict=True)
    else:
        rows = (text.rstrip("\r\n").split(separator) for text in texts())
    while True:
        start = at[0] + 1
        try:
            row = next(rows, None)
        except csv.Error:
            raise InputError(
                f"{path}, line {start}: a quote in the row that starts here is not closed, or text follows it; write "
                'a quote inside a quoted cell as ""'
            ) from None
        if row is None:
            return
        if len(row) < 2 and (width > 1 or not layout.quoted or not row) and not has_content(row):
            continue  # a blank line
        if start == layout.header_line or (layout.hint and start == 1):
            continue
        if len(row) > width and not has_content(row[width:]):
            row = row[:width]
        if len(row) != width:
            raise InputError(
                f"{path}, line {start} has {len(row)} cells but the {'header' if layout.named else 'first row'} has "
                f"{width}; "
                + (
                    f"quote cells that hold a '{separator}', and close every quote"
                    if separator != "\t"
                    else "cells hold no tabs or line ends unless they are quoted"
                )
            )
        yield row, start, at[0], at[1]


def _tabs_are_quoted(read_lines: Callable[[], Iterable[str]]) -> bool:
    """Whether a program quoted the cells: every one that starts with a quote is quoted well, and had to be.

    By custom a quote in a TSV file is only text, but spreadsheets write quoted cells. Where lines are of unequal width,
    a tab or a line end may be inside a cell: they are quoted if that makes all rows equal.
    """
    widths: set[int] = set()
    cells = quoted = doubled = 0
    well = True
    for line in read_lines():
        row = line.rstrip("\r\n").split("\t")
        if len(row) == 1 and not row[0].strip():
            continue
        widths.add(len(row))
        cells += len(row)
        for cell in (cell for cell in row if cell.startswith('"')):
            inside = cell[1:-1]
            quoted += 1
            doubled += '""' in inside
            well = well and len(cell) > 1 and cell.endswith('"') and '"' not in inside.replace('""', "")
    if quoted == 0 or len(widths) < 2:
        return quoted > 0 and well and quoted in (doubled, cells)
    try:
        csv.field_size_limit(LONGEST_CELL)
        rows = csv.reader(read_lines(), delimiter="\t", strict=True)
        return len({len(row) for row in rows if has_content(row)}) == 1
    except csv.Error:
        return False


def _find_separator(lines: Sequence[str], usual: str) -> str:
    """The sign that divides the first row and gives all rows of the sample as many cells."""
    scores = {sign: _consistency(lines, sign) for sign in (usual, *SEPARATORS)}
    best = max(scores, key=lambda sign: scores[sign])  # of equal ones the first: the usual one
    needed = CONSISTENT if scores[usual] else 0.5  # a header with only another sign in it is evidence by itself
    return best if scores[best] >= needed else usual


def _consistency(lines: Sequence[str], separator: str) -> float:
    """The share of rows as wide as the first; nothing where that has a single cell."""
    best = 0.0
    for quoted in (True, False) if separator == "\t" else (True,):
        rows = [row for row in _sample_rows(lines, separator, quoted) if has_content(row)]
        width = len(rows[0]) if rows else 0
        if width > 1:
            best = max(best, sum(len(row) == width or extent(row) <= width < len(row) for row in rows) / len(rows))
    return best


def _sample_rows(lines: Sequence[str], separator: str, quoted: bool) -> list[list[str]]:
    """The rows of the first lines, as far as they can be read; the last may be cut and does not count."""
    rows: list[list[str]] = []
    try:
        if quoted:
            csv.field_size_limit(LONGEST_CELL)
            rows.extend(csv.reader(lines, delimiter=separator))
        else:
            rows.extend(line.rstrip("\r\n").split(separator) for line in lines)
    except csv.Error:
        pass  # reading the file raises an error with the line
    return rows[:-1] if len(lines) == SAMPLE else rows


def extent(row: Sequence[Cell]) -> int:
    """Cells up to the last that holds something."""
    return next((index for index in range(len(row), 0, -1) if has_content(row[index - 1 : index])), 0)


def has_content(row: Sequence[Cell]) -> bool:
    """Whether any cell holds more than space."""
    return any(cell is not None and str(cell).strip() for cell in row)


def has_header(rows: Sequence[Sequence[Cell]]) -> bool:
    """Whether the first row holds names: not if it has numbers above numbers, or a value that its column has again."""
    first, rest = rows[0], rows[1:]
    names = [str(cell).strip().casefold() for cell in first]
    if not rest or not USUAL_NAMES.isdisjoint(names):
        return True
    if names == [str(number) for number in range(len(names))]:
        return True  # a table that pandas wrote and that had no names
    for index, cell in enumerate(first):
        below = [row[index] for row in rest if index < len(row)]
        if _is_number(cell) and sum(map(_is_number, below)) > len(below) / 2:
            return False
        again = [row for row in rest if index < len(row) and row[index] == cell]
        if (
            has_content([cell])
            and len(again) >= max(1, len(rest) // 50)
            and any(list(row) != list(first) for row in again)  # a repeated header is one still
        ):
            return False
    return len(first) > 1 or len(str(first[0]).split()) < 4


def _is_number(cell: Cell) -> bool:
    if isinstance(cell, int | float) and not isinstance(cell, bool):
        return True
    try:
        return isinstance(cell, str) and any(map(str.isdigit, cell)) and float(cell) is not None
    except ValueError:
        return False


def log_missing_header(source: str, first: Sequence[Cell]) -> None:
    """Warn that the columns have names of ours, with a cell of each."""
    shown = [f"column_{number} ('{str(cell)[:30]}')" for number, cell in enumerate(first, 1)]
    log.warning(
        "%s has no header: its columns are named %s. If its first row is a header, use header=True",
        *(source, ", ".join(shown)),
    )


def column_names(cells: Sequence[Cell], source: str) -> tuple[str, ...]:
    """A different name for each column: as written, by its number where nothing is written, counted where repeated."""
    names: list[str] = []
    for number, cell in enumerate(cells, 1):
        name = without_surrogates(" ".join(str("" if cell is None else cell).split())) or f"column_{number}"
        if name in names:
            count = next(count for count in range(2, len(cells) + 2) if f"{name} ({count})" not in names)
            log.warning("%s has two columns '%s'; column %d is named '%s (%d)'", source, name, number, name, count)
            name = f"{name} ({count})"
        names.append(name)
    return tuple(names)


def is_repeated(name: str, columns: Sequence[str]) -> bool:
    """Whether a source has more than one column of this name."""
    return f"{name} (2)" in columns
