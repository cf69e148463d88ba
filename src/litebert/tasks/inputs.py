"""Texts to predict, as they come: rows of a file or in memory, lines of plain text, or standard input.

Nothing is read ahead but the rows that columns are guessed from. Every row gives one item, in order.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from litebert.data.files import STANDARD_INPUT, Errors, kind_of, read_text, text_lines
from litebert.data.separated import Cell
from litebert.data.tables import RowStream, Source, Table, json_objects, stream_rows
from litebert.errors import InputError
from litebert.tasks.columns import Columns, Names, check_columns, find_columns
from litebert.tasks.examples import Example, Item, TaskSpec
from litebert.tasks.squad import is_squad_form, parse_questions
from litebert.tasks.tables import TableRow, make_items

GUESSED_FROM = 100  # rows
PLAIN = ("", ".txt", ".text")


def read_inputs(
    source: Source | None, note: "TaskSpec", *, text: Names = None, header: bool | None = None
) -> Iterator[Item]:
    """The items in a file, in rows in memory, or on standard input where there is no source (or ``-``)."""
    if source is None or (isinstance(source, str | Path) and Path(source) == STANDARD_INPUT):
        yield from _plain(STANDARD_INPUT, note, text, errors="replace")
        return
    if isinstance(source, str | Path):
        path = Path(source)
        if not path.is_file():
            raise InputError(f"there is no file '{path}'")
        if kind_of(path) in PLAIN:
            yield from _plain(path, note, text)
            return
        if kind_of(path) == ".json" and (content := _squad_content(path)) is not None:
            yield from parse_questions(content, path, [])
            return
    yield from _items(stream_rows(source, header=header, labelled=False), note, text)


def _squad_content(path: Path) -> object | None:
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError):
        return None  # lines; what else may be wrong is found when it is read as a table
    return content if is_squad_form(content) else None


def _plain(path: Path, note: "TaskSpec", text: Names, errors: Errors = "strict") -> Iterator[Item]:
    """One text a line; of a pair, the second behind a tab. A first line that is a JSON object makes all of them so."""
    lines = ((line, number) for line, number, _ in text_lines(path, errors=errors, western=errors == "strict"))
    first = next(lines, None)
    if first is None:
        return
    every = chain([first], lines)
    name = "standard input" if path == STANDARD_INPUT else str(path)
    if first[0].lstrip().startswith("{"):
        yield from _items(RowStream(source=name, unit="line", rows=json_objects(every, name)), note, text)
        return
    if note.kind in ("choice", "span"):
        raise InputError(f"{name} has plain lines, but this model needs a question and more; give JSON lines")
    for line, number in every:
        line = line.rstrip("\r\n")
        before, tab, after = line.partition("\t") if note.pairs else (line, "", "")
        if note.pairs and not tab:
            raise InputError(f"{name}, line {number}: this model reads pairs; put a tab between the two texts")
        yield Example(key=str(number - 1), first=before, second=after if note.pairs else None)


def _items(stream: RowStream, note: "TaskSpec", text: Names) -> Iterator[Item]:
    """Rows as items; the columns are those named, else those of the training file, else guessed from some rows."""
    first = list(islice(stream.rows, GUESSED_FROM))
    if not first:
        return
    columns = _columns(first, stream, note, text)
    for number, (cells, line) in enumerate(chain(first, stream.rows)):
        if note.kind in ("choice", "span"):
            made = make_items(_table(stream, [(cells, line)]), columns, (), [], labelled=False)
            if not made:
                raise InputError(f"{stream.place(line)} has no text; fill or remove it")
            yield replace(made[0], key=str(number)) if columns.key is None else made[0]
            continue
        row = TableRow(cells=cells, number=number, place=stream.place(line))
        try:
            texts = [row.text(part) for part in columns.texts]
            key = row.key(columns.key)
        except KeyError as missing:
            raise InputError(f"{row.place} has no {missing}, which rows before it have") from None
        yield Example(key=key, first=texts[0], second=texts[1] if len(texts) > 1 else None)


def _columns(
    first: Sequence[tuple[Mapping[str, Cell], int]], stream: RowStream, note: "TaskSpec", text: Names
) -> Columns:
    names = tuple(first[0][0])
    parts = 1 + note.pairs
    has_texts_only = note.kind not in ("choice", "span")
    if not stream.named and not text and has_texts_only and len(names) == parts:
        text = names  # without names, the only columns there are
    table = _table(stream, [(cells, line) for cells, line in first if tuple(cells) == names])
    columns = find_columns(table, text=text or note.text, kind=note.kind, labelled=False)
    check_columns(table, columns, labelled=False)
    if has_texts_only and len(columns.texts) != parts:
        wanted = "two texts" if note.pairs else "one text"
        raise InputError(
            f"this model reads {wanted} but {stream.source} gives {len(columns.texts)}; choose columns with text="
        )
    return columns


def _table(stream: RowStream, rows: Iterable[tuple[Mapping[str, Cell], int]]) -> Table:
    rows = list(rows)
    return Table(
        source=stream.source,
        unit=stream.unit,
        columns=tuple(rows[0][0]),
        rows=tuple(tuple(cells.values()) for cells, _ in rows),
        lines=tuple(line for _, line in rows),
    )
