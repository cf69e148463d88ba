"""Texts to predict, as they come: lines of plain text, JSON lines, CSV or TSV, from a file or standard input.

Nothing is read ahead but the rows that columns are guessed from. Every row gives one item, in order.
"""

import csv
import io
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

from litebert.errors import InputError
from litebert.tasks.columns import Columns, check_columns, find_columns
from litebert.tasks.examples import Example, Item, TaskSpec
from litebert.tasks.squad import is_squad_form, parse_questions
from litebert.tasks.table_files import Table, comma_or_semicolon, read_table, read_text, tsv_is_quoted
from litebert.tasks.tables import Row, make_items
from litebert.text.streams import kind_of, open_bytes

GUESSED_FROM = 100  # rows
PLAIN = ("", ".txt", ".text")
Cells = tuple[tuple[str, ...], tuple[Any, ...], int]  # columns, cells, line


def incoming(file: Path | None, note: TaskSpec, *, text: str | None = None) -> Iterator[Item]:
    """The items in a file, or on standard input where there is none."""
    name = file or Path("standard input")
    if file is not None and not file.is_file():
        raise InputError(f"there is no file '{file}'")
    kind = kind_of(file) if file else ""
    if kind == ".json":
        yield from _whole_json(name, note, text)
    elif kind == ".parquet":
        table = read_table(name)
        yield from _items(
            ((table.columns, row, n) for row, n in zip(table.rows, table.lines, strict=True)), *(name, note, text)
        )
    else:
        with _lines(file) as lines:
            if kind in PLAIN:
                yield from _plain(lines, name, note, text)
            elif kind in (".csv", ".tsv"):
                yield from _items(_separated(lines, name, kind), name, note, text)
            elif kind in (".jsonl", ".ndjson"):
                yield from _items(_objects(enumerate(lines, start=1), name), name, note, text)
            else:
                raise InputError(f"'{file}' is not of a kind that can be read; give .txt, .jsonl, .csv or .tsv")


@contextmanager
def _lines(file: Path | None) -> Iterator[IO[str]]:
    if file is None:
        yield io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig", errors="replace", newline="")
        return
    with open_bytes(file) as raw:
        try:
            yield io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
        except UnicodeDecodeError:
            raise InputError(f"{file} is not UTF-8; save the file as UTF-8") from None


def _plain(lines: IO[str], name: Path, note: TaskSpec, text: str | None) -> Iterator[Item]:
    """One text a line; of two, the second behind a tab. A first line that is a JSON object makes all of them so."""
    numbered = enumerate(lines, start=1)
    first = next(numbered, None)
    if first is None:
        return
    every = chain([first], numbered)
    if first[1].lstrip().startswith("{"):
        yield from _items(_objects(every, name), name, note, text)
        return
    if note.kind in ("choice", "span"):
        raise InputError(f"{name} has plain lines, but this model needs a question and more; give JSON lines")
    for number, line in every:
        line = line.rstrip("\r\n")
        before, tab, after = line.partition("\t") if note.pairs else (line, "", "")
        if note.pairs and not tab:
            raise InputError(f"{name}, line {number}: this model reads pairs; put a tab between the two texts")
        yield Example(key=str(number - 1), first=before, second=after if note.pairs else None)


def _separated(lines: IO[str], name: Path, kind: str) -> Iterator[Cells]:
    head = lines.readline()
    delimiter, quoting = comma_or_semicolon(head), csv.QUOTE_MINIMAL
    if kind == ".tsv":
        delimiter, quoting = "\t", csv.QUOTE_MINIMAL if _is_quoted(name) else csv.QUOTE_NONE
    reader = csv.reader(chain([head], lines), delimiter=delimiter, quoting=quoting, strict=True)  # type: ignore[arg-type]
    csv.field_size_limit(sys.maxsize)
    columns: tuple[str, ...] = ()
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise InputError(f"{name}, line {line}: a quote is not closed as it should be ({error})") from None
        if row is None:
            return
        if not row:
            continue
        if not columns:
            columns = tuple(cell.strip() for cell in row)
        elif len(row) != len(columns):
            raise InputError(f"{name}, line {line} has {len(row)} cells but the header has {len(columns)}; correct it")
        else:
            yield columns, tuple(row), line


def _is_quoted(file: Path) -> bool:
    """Whether cells of a table parted by tabs are quoted: as for training, all of it is looked at."""
    with _lines(file) as lines:
        return tsv_is_quoted(lines)


def _objects(lines: Iterator[tuple[int, str]], name: Path) -> Iterator[Cells]:
    for number, line in lines:
        if not line.strip():
            continue
        try:
            parsed = json.loads(line)
        except ValueError as error:
            raise InputError(f"{name}, line {number} is not JSON ({error})") from None
        if not isinstance(parsed, dict):
            raise InputError(f"{name}, line {number} is not a JSON object; give one a line, with a key for each column")
        yield tuple(parsed), tuple(parsed.values()), number


def _whole_json(name: Path, note: TaskSpec, text: str | None) -> Iterator[Item]:
    """A file of SQuAD's form, a list of objects, or an object a line."""
    try:
        content = json.loads(read_text(name))
    except json.JSONDecodeError:
        content = None  # lines; what else may be wrong is said when it is read as a table
    if is_squad_form(content):
        yield from parse_questions(content, name, [])
        return
    table = read_table(name)
    rows = ((table.columns, row, line) for row, line in zip(table.rows, table.lines, strict=True))
    yield from _items(rows, name, note, text)


def _items(rows: Iterator[Cells], name: Path, note: TaskSpec, text: str | None) -> Iterator[Item]:
    """Rows as items; the columns are those named, else those of the training file, else guessed from some rows."""
    first = list(islice(rows, GUESSED_FROM))
    if not first:
        return
    columns = _columns(first, name, note, text)
    for number, (names, cells, line) in enumerate(chain(first, rows)):
        if note.kind in ("choice", "span"):
            table = Table(path=name, columns=names, rows=(cells,), lines=(line,))
            made = make_items(table, columns, (), [], labelled=False)
            yield replace(made[0], key=str(number)) if columns.key is None else made[0]
            continue
        row = Row(cells=dict(zip(names, cells, strict=True)), number=number, place=f"{name}, line {line}")
        try:
            texts = [row.text(part) for part in columns.texts]
            key = row.key(columns.key)
        except KeyError as missing:
            raise InputError(f"{row.place} has no {missing}, which lines before it have") from None
        yield Example(key=key, first=texts[0], second=texts[1] if len(texts) > 1 else None)


def _columns(first: Sequence[Cells], name: Path, note: TaskSpec, text: str | None) -> Columns:
    names = first[0][0]
    same = [(cells, line) for columns, cells, line in first if columns == names]
    table = Table(path=name, columns=names, rows=tuple(c for c, _ in same), lines=tuple(n for _, n in same))
    known = ",".join(note.text) if note.text else None
    columns = find_columns(table, text=text or known, kind=note.kind, labelled=False)
    check_columns(table, columns, labelled=False)
    parts = len(columns.texts)
    if note.kind not in ("choice", "span") and parts != 1 + note.pairs:
        wanted = "two texts" if note.pairs else "one text"
        raise InputError(f"this model reads {wanted} but {name} gives {parts}; name the columns with --text")
    return columns
