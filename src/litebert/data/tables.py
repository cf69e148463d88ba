"""Rows with named columns, from whatever a person has: files in the usual formats, or data in memory.

CSV and its relatives, JSON, JSON lines, parquet and xlsx, plain or compressed; lists, dictionaries of columns, pandas,
polars and ``datasets``. Separators and missing headers are detected, and logged where they are not the plain case.
Every row keeps the line it starts on, so that an error can say where it is.
"""

import io
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from litebert.data.files import (
    kind_of,
    kind_of_value,
    locate,
    open_bytes,
    parquet_library,
    parse_json,
    read_text,
    text_lines,
    without_surrogates,
)
from litebert.data.separated import (
    SAMPLE,
    Cell,
    Layout,
    column_names,
    extent,
    find_layout,
    has_content,
    has_header,
    log_missing_header,
    separated_rows,
)
from litebert.errors import InputError

log = logging.getLogger(__name__)

Source = Any  # a path, or data in memory: see ``stream_rows``
Row = tuple[Mapping[str, Cell], int]  # cells by column, and the line or the number of the row
Rows = Iterator[Row]

SEPARATED = (".csv", ".tsv", ".tab", ".psv", ".txt")
JSON_LINES = (".jsonl", ".ndjson")
SUFFIXES = (".csv", ".tsv", *JSON_LINES, ".json", ".parquet", ".xlsx")
WRAPPERS = ("data", "rows", "records", "examples", "items", "instances")  # of a list of rows in a JSON object
FIRST_BYTES = {b"PK\x03\x04": "a zip or .xlsx file", b"\xd0\xcf\x11\xe0": "an old Excel file", b"PAR1": "parquet"}
MEMORY = "a path, a dict of lists, a DataFrame, a Dataset, or a list of dicts or (text, label) tuples"


@dataclass(frozen=True, kw_only=True)
class RowStream:
    """Rows as they are read, each with its line (or row number, as ``unit`` says) in the source."""

    source: str
    unit: str
    rows: Rows
    named: bool = True  # False where the source has no names for its columns and they are ours

    def place(self, line: int) -> str:
        """Where a row is, for a message."""
        return f"{self.source}, {self.unit} {line}"


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of cells under named columns; ``lines`` says where each row starts in the source."""

    source: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    lines: tuple[int, ...]
    unit: str = "line"

    def place(self, row: int) -> str:
        """Where a row is, for a message."""
        return f"{self.source}, {self.unit} {self.lines[row]}"

    def column(self, name: str) -> list[Cell]:
        """All cells of a column."""
        index = self.columns.index(name)
        return [row[index] for row in self.rows]


def read_table(source: Source, *, header: bool | None = None, labelled: bool = True, name: str = "data") -> Table:
    """All rows of a source; see ``stream_rows``."""
    stream = stream_rows(source, header=header, labelled=labelled, name=name)
    found = list(stream.rows)
    if not found:
        raise InputError(f"{stream.source} has no rows; name another file, or add some")
    columns = dict.fromkeys(name for cells, _ in found for name in cells)
    return Table(
        source=stream.source,
        unit=stream.unit,
        columns=tuple(columns),
        rows=tuple(tuple(map(cells.get, columns)) for cells, _ in found),
        lines=tuple(line for _, line in found),
    )


def stream_rows(source: Source, *, header: bool | None = None, labelled: bool = True, name: str = "data") -> RowStream:
    """The rows of a file or of data in memory, one at a time where the format allows it.

    ``header`` says whether the first row of a CSV, TSV or xlsx file names the columns; by default that is detected.
    ``labelled`` decides what tuples are: the last of two or three is a label, or all are texts. ``name`` is what
    messages call data in memory.
    """
    if isinstance(source, str | Path):
        return _stream_file(locate(source), header)
    return _stream_memory(source, name, labelled)


def _stream_file(path: Path, header: bool | None) -> RowStream:
    kind = kind_of(path)
    if kind in (".xls", ".ods"):
        raise InputError(f"'{path}' is a spreadsheet that cannot be read; save it as .xlsx or .csv")
    if kind not in (*SUFFIXES, *SEPARATED) and path.suffix.lower() == ".zip":
        raise InputError(f"'{path}' does not say what is in it; unpack it, or rename it {path.stem}.csv.zip or so")
    if kind not in (*SUFFIXES, *SEPARATED):
        raise InputError(f"'{path}' is not of a kind that can be read; give {', '.join(SUFFIXES)}")
    if not path.is_file():
        raise InputError(f"there is no file '{path}'; check the name")
    source = str(path)
    if kind == ".parquet":
        rows = parquet_rows(path)
        columns = next(rows)[0]
        return RowStream(source=source, unit="row", rows=_named_rows(columns, rows, source))
    if kind == ".xlsx":
        return _from_cells(_sheet_rows(path), source, header)
    _check_is_text(path)
    if kind in SEPARATED:
        return _stream_separated(path, header)
    if kind == ".json":
        return _stream_json(path, header)
    lines = ((text, number) for text, number, _ in text_lines(path, western=True))
    return RowStream(source=source, unit="line", rows=_clean(json_objects(lines, source), source))


def _check_is_text(path: Path) -> None:
    """An error for other formats under a name that promises text."""
    with open_bytes(path) as stream:
        head = stream.peek(8)[:8]
    for first, what in FIRST_BYTES.items():
        if head.startswith(first):
            raise InputError(f"{path} is {what} by its content; rename it, or save it as text")


# --- cells between separators


def _stream_separated(path: Path, header: bool | None) -> RowStream:
    layout = find_layout(path, header=header)
    if kind_of(path) == ".txt" and len(layout.columns) < 2:
        raise InputError(f"'{path}' is plain text without columns; give {', '.join(SUFFIXES)}")
    return RowStream(source=str(path), unit="line", rows=_separated(path, layout), named=layout.named)


def _separated(path: Path, layout: Layout) -> Rows:
    """Rows by column; a header that occurs again, as in files put together with ``cat``, is no row."""
    columns = list(layout.columns)
    for row, line, _, _ in separated_rows(path, layout):
        if len(columns) > 1 and row == columns:
            log.warning("%s, line %d repeats the header; it is left out", path, line)
        else:
            yield dict(zip(columns, row, strict=True)), line


# --- rows of cells


def _from_cells(rows: Iterable[tuple[Sequence[Cell], int]], source: str, header: bool | None) -> RowStream:
    """Rows of cells, as of a spreadsheet, with the names of a first row that holds them."""
    found = list(rows)
    while found and not has_content(found[-1][0]):
        found.pop()
    if header is None:
        found = _without_title(found, source)
    content = [row for row, _ in found if has_content(row)]
    named = (has_header(content[:SAMPLE]) if header is None else header) if content else True
    if header is None and not named:
        log_missing_header(source, content[0])
    width = max((extent(row) for row in content), default=0)
    start = next((index for index, (row, _) in enumerate(found) if has_content(row)), 0)
    first = list(found[start][0]) if found and named else []
    columns = column_names([*first, *[""] * width][:width], source)
    body = (([*row, *[None] * width][:width], number) for row, number in found[start + named :])
    return RowStream(source=source, unit="row", rows=_named_rows(columns, body, source), named=named)


def _without_title(found: list[tuple[Sequence[Cell], int]], source: str) -> list[tuple[Sequence[Cell], int]]:
    """Rows without the lines of one cell that people write above a table; only where a header follows."""
    filled = [sum(has_content([cell]) for cell in row) for row, _ in found[:SAMPLE]]
    start = next((place for place, cells in enumerate(filled) if cells > 1), 0)
    above = [row for (row, _), cells in zip(found[:start], filled, strict=False) if cells]
    if not above or not has_header([row for row, _ in found[start : start + SAMPLE] if has_content(row)]):
        return found
    title = next(str(cell) for cell in above[0] if has_content([cell]))
    log.info("%s: the table begins in row %d, below '%s'", source, found[start][1], title[:60])
    return found[start:]


def _named_rows(columns: Sequence[Cell], rows: Iterable[tuple[Sequence[Cell], int]], source: str) -> Rows:
    """Rows by column, with cells that Python can work with."""
    names = column_names(columns, source)
    return _clean(((dict(zip(names, row, strict=True)), number) for row, number in rows), source)


# --- JSON


def json_objects(lines: Iterable[tuple[str, int]], source: str) -> Rows:
    """An object a line; lines are counted, and blank ones are passed over."""
    for text, number in lines:
        if text.strip():
            yield _object(parse_json(text, f"{source}, line {number}"), f"{source}, line {number}"), number


def _object(value: Any, place: str) -> Mapping[str, Cell]:
    if not isinstance(value, Mapping):
        raise InputError(
            f"{place} is not an object with named fields but {kind_of_value(value)}; give one, such as {{'text': ...}}"
        )
    return value


def _stream_json(path: Path, header: bool | None) -> RowStream:
    """One list or object, or an object a line under another name."""
    text, source = read_text(path), str(path)
    head = list(islice((line for line in io.StringIO(text) if line.strip()), 2))
    if len(head) == 2 and head[0].lstrip().startswith("{") and head[0].rstrip().endswith("}"):
        lines = ((line, number) for number, line in enumerate(io.StringIO(text), 1))
        return RowStream(source=source, unit="line", rows=_clean(json_objects(lines, source), source))
    content = parse_json(text, source)
    if isinstance(content, dict):
        content = _rows_of_object(content, source)
    if not isinstance(content, list):
        raise InputError(f"{source} is not a list of rows but {kind_of_value(content)}; give [{{'text': ...}}, ...]")
    if content and all(isinstance(row, list) for row in content):
        return _from_cells(((row, number) for number, row in enumerate(content, 1)), source, header)
    return RowStream(source=source, unit="row", rows=_clean(_object_rows(content, source), source))


def _rows_of_object(content: Mapping[str, Any], source: str) -> Sequence[Any]:
    """The rows in one object: columns of lists, columns as pandas writes them, a list beside notes, or a single row."""
    if isinstance(content.get("columns"), list) and isinstance(content.get("data"), list):
        return [content["columns"], *content["data"]]
    lists = {name: value for name, value in content.items() if isinstance(value, list)}
    wrapped = next((name for name in lists if name in WRAPPERS or len(content) == 1), "")
    if lists.get(wrapped) and isinstance(lists[wrapped][0], Mapping):
        return lists[wrapped]
    inside = next(iter(content.values())) if len(content) == 1 else None
    if isinstance(inside, dict) and any(isinstance(v, list) and v and isinstance(v[0], dict) for v in inside.values()):
        return _rows_of_object(inside, source)
    if content and len(lists) == len(content):
        return [dict(row) for row, _ in _column_rows(content, source)]
    if content and all(isinstance(value, dict) for value in content.values()):
        keys = list(dict.fromkeys(key for value in content.values() for key in value))
        return [{name: value.get(key) for name, value in content.items()} for key in keys]
    return [content]


# --- parquet and spreadsheets


def parquet_rows(
    path: Path, columns: Sequence[str] | None = None, *, start: int = 0, batch: int = 1024
) -> Iterator[tuple[Sequence[Cell], int]]:
    """The names of the columns as row 0, then the rows after row ``start``, with their numbers."""
    pyarrow = parquet_library(path)
    # Without pre-buffering, and with a small buffer, memory does not grow with the row group.
    options = {"pre_buffer": False, "buffer_size": 1 << 20}
    with _parquet_errors(path, pyarrow), pyarrow.parquet.ParquetFile(_file_of(path), **options) as file:
        yield columns or file.schema_arrow.names, 0
        groups, row = _row_groups_from(file.metadata, start)
        for part in file.iter_batches(batch, row_groups=groups, columns=columns, use_threads=False):
            for cells in zip(*(column.to_pylist() for column in part.columns), strict=True):
                row += 1
                if row > start:
                    yield cells, row


def parquet_types(path: Path) -> dict[str, str]:
    """The columns of a parquet file and their types."""
    pyarrow = parquet_library(path)
    with _parquet_errors(path, pyarrow):
        return {field.name: str(field.type) for field in pyarrow.parquet.read_schema(_file_of(path))}


def _file_of(path: Path) -> Any:
    """What pyarrow opens: a path of this machine by itself, one of another file system through fsspec."""
    return path if isinstance(path, Path) else path.open("rb")


@contextmanager
def _parquet_errors(path: Path, pyarrow: Any) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise InputError(f"{path} holds text that is not UTF-8 ({error.reason})") from None
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path} is not a parquet file that can be read ({_first_line(error)})") from None


def _row_groups_from(metadata: Any, row: int) -> tuple[list[int], int]:
    """The row groups that hold ``row`` and all after it, and how many rows come before them."""
    before = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if before + rows > row:
            return list(range(group, metadata.num_row_groups)), before
        before += rows
    return [], before


def _sheet_rows(path: Path) -> list[tuple[Sequence[Cell], int]]:
    """The rows of the first sheet that has any, numbered as the sheet does."""
    try:
        import openpyxl
    except ImportError:
        raise InputError("reading .xlsx files needs openpyxl: pip install 'litebert[xlsx]'") from None
    with open_bytes(path) as stream:
        content = io.BytesIO(stream.read())
    try:
        book = openpyxl.load_workbook(content, read_only=True, data_only=True)
        sheets = {sheet.title: list(sheet.iter_rows(values_only=True)) for sheet in book.worksheets}
    except Exception as error:  # the library lets through whatever its parsers of zip and XML raise
        raise InputError(
            f"{path} is not an .xlsx file that can be read ({_first_line(error)}); save it again"
        ) from None
    full = [title for title, rows in sheets.items() if any(map(has_content, rows))]
    if len(full) > 1:
        log.warning("%s has %d sheets; only '%s' is read", path, len(full), full[0])
    return [(row, number) for number, row in enumerate(sheets[full[0]] if full else (), 1)]


# --- data in memory


def _stream_memory(data: Any, name: str, labelled: bool) -> RowStream:
    if isinstance(data, str | bytes) or not (isinstance(data, Iterable) or hasattr(data, "to_pylist")):
        raise InputError(f"the data is {type(data).__name__}, which cannot be read as rows; give {MEMORY}")
    named = True
    if isinstance(data, Mapping):
        rows = _column_rows(data, name)
    elif getattr(data, "features", None) and getattr(data, "column_names", None):  # datasets.Dataset
        rows = _dataset_rows(data)
    elif hasattr(data, "to_pylist"):  # pyarrow.Table
        rows = _object_rows(data.to_pylist(), name)
    elif hasattr(data, "itertuples") or hasattr(data, "iter_rows"):  # pandas.DataFrame, polars.DataFrame
        every = data.itertuples(index=False, name=None) if hasattr(data, "itertuples") else data.iter_rows()
        names = column_names(list(data.columns), name)
        rows = ((dict(zip(names, cells, strict=True)), number) for number, cells in enumerate(every, 1))
    else:
        items = iter(data)
        first = list(islice(items, 1))
        named = not first or isinstance(first[0], Mapping)
        every = chain(first, items)
        rows = _object_rows(every, name) if named else _tuple_rows(every, name, labelled)
    return RowStream(source=name, unit="row", rows=_clean(rows, name), named=named)


def _column_rows(data: Mapping[Any, Any], source: str) -> Rows:
    """A dictionary of columns, which are as long as each other."""
    columns = {}
    for name, values in data.items():
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
            raise InputError(f"{source}: the column '{name}' is not a list but {type(values).__name__}; give {MEMORY}")
        columns[str(name)] = list(values)
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise InputError(f"{source}: the columns are not of one length ({shown})")
    return ((dict(zip(columns, row, strict=True)), n) for n, row in enumerate(zip(*columns.values(), strict=True), 1))


def _dataset_rows(data: Any) -> Rows:
    """Rows of a ``datasets.Dataset``, with class labels as their names."""
    names = {column: getattr(data.features[column], "names", None) for column in data.column_names}

    def cell(column: str, value: Any) -> Any:
        known = names.get(column)
        if not known or not isinstance(value, int):
            return value
        return known[value] if 0 <= value < len(known) else None

    return (({column: cell(column, row[column]) for column in names}, number) for number, row in enumerate(data, 1))


def _object_rows(data: Iterable[Any], source: str) -> Rows:
    for number, row in enumerate(data, 1):
        yield _object(row, f"{source}, row {number}"), number


def _tuple_rows(data: Iterable[Any], source: str, labelled: bool) -> Rows:
    """Texts, or tuples of one or two texts and, where ``labelled``, a label."""
    columns: dict[int, tuple[str, ...]] = (
        {1: ("text",), 2: ("text", "label"), 3: ("text_a", "text_b", "label")}
        if labelled
        else {1: ("text",), 2: ("text_a", "text_b")}
    )
    width = 0
    for number, row in enumerate(data, 1):
        cells = row if isinstance(row, tuple | list) else (row,)
        width = width or len(cells)
        if len(cells) != width or width not in columns or isinstance(row, Mapping | bytes):
            wanted = "(text, label) or (text, text, label)" if labelled else "a text or (text, text)"
            raise InputError(f"{source}, row {number} is not {wanted} like the rows before it but {str(row)[:60]!r}")
        yield dict(zip(columns[width], cells, strict=True)), number


# --- cells


def _clean(rows: Iterable[Row], source: str) -> Rows:
    """Rows whose names and cells are plain Python and can be encoded; half characters are replaced, which is logged."""
    replaced = False
    for row, number in rows:
        try:
            cleaned = {_plain(str(name)): _plain(cell) for name, cell in row.items()}
        except RecursionError:
            raise InputError(f"{source}, row {number} is nested too deeply; flatten it") from None
        if not replaced and any(isinstance(c, str) and "\ufffd" in c and c != row.get(n) for n, c in cleaned.items()):
            replaced = True
            log.warning("%s, row %d holds half of a surrogate pair; every such half is read as U+FFFD", source, number)
        yield cleaned, number


def _plain(cell: Any) -> Cell:
    if isinstance(cell, str):
        return cell if cell.isascii() else without_surrogates(cell)
    if cell is None or isinstance(cell, bool | int):
        return cell
    if isinstance(cell, float):
        return None if math.isnan(cell) else float(cell)  # how pandas and numpy say that there is no value
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "replace")
    if isinstance(cell, list | tuple):
        return [_plain(one) for one in cell]
    if isinstance(cell, Mapping):
        return {_plain(str(name)): _plain(value) for name, value in cell.items()}
    if type(cell).__name__ in ("NAType", "NaTType"):
        return None
    return _plain(cell.tolist()) if hasattr(cell, "tolist") else cell  # numpy's numbers and arrays


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
