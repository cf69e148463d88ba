"""Raw text in, documents out, one at a time: ``.txt`` (a blank line between documents), ``.jsonl``, ``.parquet``.

Files may be compressed; a source is a file, a folder, a glob or ``-`` for standard input. Memory stays constant: at no
time is more than one document held, and a "document" without an end is cut at a line. Every document says where reading
goes on after it, so that an interrupted job starts there and not at the beginning.
"""

import glob
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from litebert.data.files import COMPRESSIONS, STANDARD_INPUT, kind_of, open_bytes, parquet_library
from litebert.errors import InputError

Errors = Literal["strict", "replace"]

TEXT_SUFFIXES = (".txt", ".text")
JSON_SUFFIXES = (".jsonl", ".ndjson")
PARQUET_SUFFIXES = (".parquet",)
# Formats that would pass for plain text, or that people try; everything else that a person names is read as text.
REFUSED_SUFFIXES = (".json", ".csv", ".tsv", ".zip", ".tar", ".tgz", ".7z", ".pdf", ".docx", ".arrow")
READABLE = f"{', '.join(TEXT_SUFFIXES + JSON_SUFFIXES + PARQUET_SUFFIXES)}, plain or {', '.join(COMPRESSIONS)}"

# A text file without blank lines is one endless document; it is cut at the first line end after so many characters.
LONGEST_DOCUMENT = 1 << 24
PARQUET_ROWS = 64


@dataclass(frozen=True, slots=True)
class Place:
    """A point between two documents of one source, from which reading can start."""

    index: int = 0  # documents before it
    line: int = 0  # lines before it; for parquet, rows
    offset: int = 0  # bytes before it, decompressed; parquet has no use for them


@dataclass(frozen=True, slots=True)
class Document:
    """One document: its text with its line ends kept, the source it came from, and where the next one starts."""

    text: str
    source: str
    index: int
    after: Place


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
    path = Path(source)
    if path == STANDARD_INPUT or path.is_file() or path.is_fifo() or path.is_char_device():
        _check_suffix(path)
        return [path]
    if path.is_dir():
        return _files_under(path)
    if any(sign in source for sign in "*?["):
        matches = sorted(Path(match) for match in glob.glob(source, recursive=True))  # noqa: PTH207
        found = [file for match in matches for file in (_files_under(match) if match.is_dir() else [match])]
        # ** matches a folder and, by itself, the files in it.
        found = list(dict.fromkeys(found))
        for file in found:
            _check_suffix(file)
        if found:
            return found
        raise InputError(f"no file matches '{source}'")
    raise InputError(f"there is no file or folder '{source}'")


def _files_under(folder: Path) -> list[Path]:
    """Readable files below ``folder``; hidden ones and other kinds are not part of a corpus."""
    kinds = TEXT_SUFFIXES + JSON_SUFFIXES + PARQUET_SUFFIXES
    found = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and kind_of(path) in kinds
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    if not found:
        raise InputError(f"the folder '{folder}' holds no file to read ({READABLE})")
    return found


def _check_suffix(path: Path) -> None:
    if kind_of(path) in REFUSED_SUFFIXES:
        raise InputError(f"'{path}' is not of a kind that can be read; give {READABLE}")


def read_documents(
    path: Path, *, field: str = "text", errors: Errors = "strict", start: Place | None = None
) -> Iterator[Document]:
    """The documents of one file from ``start`` (the ``after`` of an earlier document) on.

    Starting late costs nothing in a plain file, decompression without parsing in a compressed one, and at most the
    rows of one row group in parquet.
    """
    if errors not in ("strict", "replace"):
        raise InputError(f"errors is '{errors}' but must be strict or replace")
    start = start or Place()
    kind = kind_of(path)
    if kind in PARQUET_SUFFIXES:
        yield from _read_parquet(path, field, errors, start)
        return
    with open_bytes(path, start.offset) as stream:
        lines = _decoded_lines(path, stream, errors, start)
        if kind in JSON_SUFFIXES or (path == STANDARD_INPUT and stream.peek(1)[:1] == b"{"):
            yield from _read_json_lines(path, lines, field, errors, start)
        else:
            yield from _read_text(path, lines, start)


def _decoded_lines(
    path: Path, stream: "io.BufferedReader[Any]", errors: Errors, start: Place
) -> Iterator[tuple[str, int, int]]:
    """Lines without their ends, with the number of the line and the byte behind it."""
    number, offset = start.line, start.offset
    for data in stream:
        number += 1
        offset += len(data)
        try:
            line = data.decode("utf-8", errors)
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}, line {number} is not UTF-8 (byte 0x{data[error.start]:02x} at column {error.start + 1}); "
                "convert the file, or pass --errors replace to go on with a replacement character"
            ) from None
        if number == 1:
            line = line.removeprefix("\ufeff")
        yield line.rstrip("\r\n"), number, offset


def _read_text(path: Path, lines: Iterable[tuple[str, int, int]], start: Place) -> Iterator[Document]:
    source, index = str(path), start.index
    held: list[str] = []
    size = number = offset = 0
    for line, number, offset in lines:
        blank = not line or line.isspace()
        if not blank:
            held.append(line)
            size += len(line)
        if held and (blank or size >= LONGEST_DOCUMENT):
            yield Document("\n".join(held), source, index, Place(index + 1, number, offset))
            index += 1
            held, size = [], 0
    if held:
        yield Document("\n".join(held), source, index, Place(index + 1, number, offset))


def _read_json_lines(
    path: Path, lines: Iterable[tuple[str, int, int]], field: str, errors: Errors, start: Place
) -> Iterator[Document]:
    source, index = str(path), start.index
    for line, number, offset in lines:
        if not line or line.isspace():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputError(f"{path}, line {number} is not JSON ({error})") from None
        except RecursionError:
            raise InputError(f"{path}, line {number} is not JSON that can be read: it is nested too deeply") from None
        text = _json_text(row, field, f"{path}, line {number}")
        text = _without_surrogates(text, errors, f"{path}, line {number}")
        if text and not text.isspace():
            yield Document(text, source, index, Place(index + 1, number, offset))
            index += 1


def _json_text(row: Any, field: str, where: str) -> str:
    """The text in one JSON value, or in its ``field``: a list is taken as paragraphs, null as no text."""
    if isinstance(row, dict):
        if field not in row:
            raise InputError(f"{where} has no field '{field}'; it has {_listed(row) or 'none'} (choose with --field)")
        row = row[field]
    if row is None:
        return ""
    if isinstance(row, str):
        return row
    if isinstance(row, list) and all(isinstance(item, str) for item in row):
        return "\n".join(row)
    raise InputError(f"{where}: '{field}' is not text but {type(row).__name__}")


def _without_surrogates(text: str, errors: Errors, where: str) -> str:
    r"""``text`` as real Unicode: JSON can spell half a character (``"\ud83d"``), which no tokenizer takes."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        if errors == "strict":
            raise InputError(f"{where} holds half of a surrogate pair; pass --errors replace to go on") from None
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _read_parquet(path: Path, field: str, errors: Errors, start: Place) -> Iterator[Document]:
    pyarrow = parquet_library(path)
    try:
        # Without pre-buffering, and with a small buffer, memory does not grow with the row group.
        with pyarrow.parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20) as file:
            _check_column(path, file.schema_arrow, field)
            groups, row = _row_groups_from(file.metadata, start.line)
            index = start.index
            for batch in file.iter_batches(PARQUET_ROWS, row_groups=groups, columns=[field], use_threads=False):
                for value in batch.column(0).to_pylist():
                    row += 1
                    if row <= start.line or value is None:
                        continue
                    text = _json_text(value, field, f"{path}, row {row}")
                    if text and not text.isspace():
                        yield Document(text, str(path), index, Place(index + 1, row))
                        index += 1
    except UnicodeDecodeError as error:
        raise InputError(f"{path} holds text in column '{field}' that is not UTF-8 ({error.reason})") from None
    except pyarrow.ArrowException as error:
        raise InputError(f"{path} is not a parquet file that can be read ({_first_line(error)})") from None


def _check_column(path: Path, schema: Any, field: str) -> None:
    if field not in schema.names:
        raise InputError(f"{path} has no column '{field}'; it has {_listed(schema.names)} (choose with --field)")
    kind = str(schema.field(field).type)
    if "string" not in kind:
        raise InputError(f"{path}: the column '{field}' is not text but {kind}")


def _row_groups_from(metadata: Any, row: int) -> tuple[list[int], int]:
    """The row groups that hold ``row`` and all after it, and how many rows come before them."""
    before = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group).num_rows
        if before + rows > row:
            return list(range(group, metadata.num_row_groups)), before
        before += rows
    return [], before


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _listed(names: Iterable[str], most: int = 8) -> str:
    """A few names for a message."""
    names = [str(name) for name in names]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
