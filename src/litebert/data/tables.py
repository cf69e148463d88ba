"""A person's own file as a table: CSV, TSV, JSON lines (or a JSON list) and parquet, plain or compressed.

Every row keeps the line it starts on, so that whatever is wrong with it can be said with its place.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.data.files import kind_of, open_bytes, parquet_library
from litebert.errors import InputError

Cell = Any  # str, int, float, bool, None, or a list or object of JSON
SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of cells under named columns; ``lines`` says where each row starts in the file (in parquet, which row)."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    lines: tuple[int, ...]

    def place(self, row: int) -> str:
        """Where a row is, for a message."""
        return f"{self.path}, {'row' if kind_of(self.path) == '.parquet' else 'line'} {self.lines[row]}"

    def column(self, name: str) -> list[Cell]:
        """All cells of a column."""
        index = self.columns.index(name)
        return [row[index] for row in self.rows]


def read_table(path: Path) -> Table:
    """The table in a file."""
    kind = kind_of(path)
    if kind not in SUFFIXES:
        raise InputError(f"'{path}' is not of a kind that can be read; give {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise InputError(f"there is no file '{path}'")
    if kind == ".parquet":
        return _checked(_read_parquet(path))
    if kind in (".csv", ".tsv"):
        text = read_text(path)
        return _checked(_read_csv(path, text, ",") if kind == ".csv" else _read_tsv(path, text))
    return _checked(_read_json(path, read_text(path)))


def read_text(path: Path) -> str:
    """The whole file as text."""
    with open_bytes(path) as stream:
        data = stream.read()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {line} is not UTF-8; save the file as UTF-8") from None


def _checked(table: Table) -> Table:
    if not table.rows:
        raise InputError(f"{table.path} has no rows")
    double = next((name for name in table.columns if table.columns.count(name) > 1), None)
    if double is not None:
        raise InputError(f"{table.path} has two columns '{double}'; rename one")
    return table


def comma_or_semicolon(head: str) -> str:
    """What parts the cells of a CSV with this first line: spreadsheets write ; where the comma is the decimal sign."""
    return ";" if ";" in head and "," not in head else ","


def _read_csv(path: Path, text: str, delimiter: str) -> Table:
    """A quoted table, strictly: a quote that is not closed or closed in the middle of a cell is an error."""
    delimiter = comma_or_semicolon(text.partition("\n")[0]) if delimiter == "," else delimiter
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    limit = csv.field_size_limit(1 << 30)
    rows: list[list[str]] = []
    lines: list[int] = []
    start = 1
    try:
        while True:
            start = reader.line_num + 1
            row = next(reader, None)
            if row is None:
                break
            if not row:
                continue
            if rows and len(row) != len(rows[0]):
                raise InputError(
                    f"{path}, line {start} has {len(row)} cells but the header has {len(rows[0])}; quote cells that "
                    f"hold a '{delimiter}', and close every quote"
                )
            rows.append(row)
            lines.append(start)
    except csv.Error:
        raise InputError(
            f"{path}, line {start}: a quote in the row that starts here is not closed, or text follows it; write a "
            'quote inside a quoted cell as ""'
        ) from None
    finally:
        csv.field_size_limit(limit)
    header = tuple(name.strip() for name in rows[0]) if rows else ()
    return Table(path=path, columns=header, rows=tuple(map(tuple, rows[1:])), lines=tuple(lines[1:]))


def _read_tsv(path: Path, text: str) -> Table:
    """A table parted by tabs: by custom a quote in it is only text, but spreadsheets write quoted cells."""
    rows = [(number, line.rstrip("\r").split("\t")) for number, line in enumerate(text.split("\n"), 1)]
    rows = [(number, row) for number, row in rows if row != [""]]
    if not rows:
        return Table(path=path, columns=(), rows=(), lines=())
    width = len(rows[0][1])
    odd = next(((number, row) for number, row in rows if len(row) != width), None)
    if tsv_is_quoted(text.split("\n")):
        try:
            return _read_csv(path, text, "\t")
        except InputError:
            if odd is None:
                raise
            raise InputError(
                f"{path}, line {odd[0]} has {len(odd[1])} cells but the header has {width}; cells hold no tabs or line "
                "ends unless they are quoted"
            ) from None
    header = tuple(name.strip() for name in rows[0][1])
    return Table(
        path=path,
        columns=header,
        rows=tuple(tuple(row) for _, row in rows[1:]),
        lines=tuple(number for number, _ in rows[1:]),
    )


def tsv_is_quoted(lines: Iterable[str]) -> bool:
    """Whether a program quoted the cells: every one that starts with a quote is quoted well, and had to be.

    Lines of unequal width say so, too: a tab or a line end is inside a cell.
    """
    widths: set[int] = set()
    cells = quoted = doubled = 0
    well = True
    for line in lines:
        row = line.rstrip("\r\n").split("\t")
        if row == [""]:
            continue
        widths.add(len(row))
        cells += len(row)
        for cell in (cell for cell in row if cell.startswith('"')):
            inside = cell[1:-1]
            quoted += 1
            doubled += '""' in inside
            well = well and len(cell) > 1 and cell.endswith('"') and '"' not in inside.replace('""', "")
    return len(widths) > 1 or (quoted > 0 and well and quoted in (doubled, cells))


def _read_json(path: Path, text: str) -> Table:
    """JSON lines, or one list of objects."""
    if kind_of(path) == ".json" and text.lstrip().startswith("["):
        try:
            content = json.loads(text)
        except ValueError as error:
            raise InputError(f"{path} is not JSON ({error})") from None
        return _from_objects(path, ((number, row) for number, row in enumerate(content, 1)))
    return _from_objects(path, _json_lines(path, text))


def _json_lines(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{path}, line {number} is not JSON ({error})") from None


def _from_objects(path: Path, objects: Iterable[tuple[int, Any]]) -> Table:
    found: list[tuple[int, dict[str, Any]]] = []
    columns: dict[str, None] = {}
    for number, row in objects:
        if not isinstance(row, dict):
            raise InputError(f"{path}, line {number} is not an object with named fields but {type(row).__name__}")
        found.append((number, row))
        columns.update(dict.fromkeys(row))
    return Table(
        path=path,
        columns=tuple(columns),
        rows=tuple(tuple(row.get(name) for name in columns) for _, row in found),
        lines=tuple(number for number, _ in found),
    )


def _read_parquet(path: Path) -> Table:
    pyarrow = parquet_library(path)
    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path} is not a parquet file that can be read ({str(error).splitlines()[0]})") from None
    columns = [table.column(name).to_pylist() for name in table.column_names]
    rows = tuple(zip(*columns, strict=True))
    return Table(path=path, columns=tuple(table.column_names), rows=rows, lines=tuple(range(1, len(rows) + 1)))
