"""Tables written: one file, or a folder of shards that a stopped run resumes.

The rows to write arrive in portions, in order. A shard holds a fixed number of rows, gets its name when it is complete,
and is then listed in ``_shards.json`` with a digest of what was read for its rows. A later run reads everything again
(which is much faster than a model), skips the rows of listed shards, and notices where they are not those of then.
"""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Generic, Protocol, TypeVar

import numpy as np

from litebert.data.files import arrow_library, kind_of, locate, read_object, upload
from litebert.errors import InputError
from litebert.runs import locked_folder, new_binary_file, sync_folder, write_atomically

Item = TypeVar("Item")

MANIFEST = "_shards.json"
FORMAT = 1
SHARD_ROWS = 1 << 17
MOST_ROWS = 1024  # of a portion
MOST_CHARACTERS = 1 << 20
TEXT_FORMATS = ("jsonl", "csv", "tsv")


# --- rows on their way


@dataclass(frozen=True, slots=True)
class Portion(Generic[Item]):
    """Consecutive rows of one shard, with a digest of what was read of them."""

    shard: int
    items: list[Item]
    digest: bytes
    ends: bool = False  # whether its shard is full with it


def portions(
    items: Iterable[Item], read: Callable[[Item], Sequence[str]], shard_rows: int | None
) -> Iterator[Portion[Item]]:
    """Rows in portions; ``read`` gives the texts of one. Without ``shard_rows`` all belong to one shard."""
    some: list[Item] = []
    texts: list[str] = []
    size = row = shard = 0
    for item in items:
        some.append(item)
        for text in read(item):
            texts.append(text)
            size += len(text)
        row += 1
        full = row == shard_rows
        if full or len(some) == MOST_ROWS or size >= MOST_CHARACTERS:
            yield Portion(shard, some, _digest(texts), ends=full)
            some, texts, size = [], [], 0
        if full:
            shard, row = shard + 1, 0
    if some:
        yield Portion(shard, some, _digest(texts))


def _digest(texts: Sequence[str]) -> bytes:
    return hashlib.blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=16).digest()


# --- formats


class _File(Protocol):
    """A file that is being written, piece by piece."""

    def add(self, piece: Any) -> None:
        """Write rows: text or bytes, a table of Arrow, or an array, as the format has it."""

    def close(self) -> None:
        """Write what ends it."""


class _Plain:
    def __init__(self, file: BinaryIO, head: str) -> None:
        self._file = file
        self.add(head)

    def add(self, piece: str) -> None:
        self._file.write(piece.encode())
        self._file.flush()

    def close(self) -> None:
        pass


class _Parquet:
    """Some portions make a row group."""

    ROWS, BYTES = 1 << 14, 1 << 24  # of a row group

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._pieces: list[Any] = []
        self._writer: Any = None

    def add(self, piece: Any) -> None:
        self._pieces.append(piece)
        if sum(map(len, self._pieces)) >= self.ROWS or sum(one.nbytes for one in self._pieces) >= self.BYTES:
            self._flush()

    def _flush(self) -> None:
        arrow = arrow_library()
        table = arrow.concat_tables(self._pieces)
        self._writer = self._writer or arrow.parquet.ParquetWriter(self._file, table.schema)
        self._writer.write_table(table)
        self._pieces = []

    def close(self) -> None:
        if self._pieces:
            self._flush()
        if self._writer is None:  # no rows at all
            arrow = arrow_library()
            self._writer = arrow.parquet.ParquetWriter(self._file, arrow.schema([]))
        self._writer.close()


class _Array:
    """Rows of one array, whose number is written into the header at the end."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._rows, self._width = file, 0, 0

    def add(self, piece: np.ndarray) -> None:
        if not self._rows:
            self._width = piece.shape[1]
            self._write_header()
        self._rows += len(piece)
        self._file.write(np.ascontiguousarray(piece, np.float32).tobytes())

    def _write_header(self) -> None:
        # numpy leaves room for the largest number of rows, so that a header can be replaced.
        about = {"descr": "<f4", "fortran_order": False, "shape": (self._rows, self._width)}
        np.lib.format.write_array_header_1_0(self._file, about)

    def close(self) -> None:
        self._file.seek(0)
        self._write_header()


def _open(file: BinaryIO, form: str, head: str) -> _File:
    if form in TEXT_FORMATS:
        return _Plain(file, head)
    return _Parquet(file) if form == "parquet" else _Array(file)


# --- where it goes


class Output(Protocol):
    """Where rows are written to."""

    skipped: int  # rows that an earlier run has written

    def missing(self, found: Iterable[Portion[Item]]) -> Iterator[Portion[Item]]:
        """Those portions that are not written yet."""

    def add(self, portion: Portion[Any], piece: Any) -> None:
        """Write what was made of a portion."""

    def finish(self) -> int:
        """Complete the output after the last portion; returns the number of its files."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """The file, or with ``shard_rows`` the folder of shards, that a person asked for."""

    out: str
    form: str
    shard_rows: int | None

    @classmethod
    def of(
        cls, out: Any, form: str | None, formats: Sequence[str], shard_rows: int | None, like: Sequence[Path] = ()
    ) -> "Target":
        """What ``out`` means: a folder if it is one, has no suffix, or there are to be shards.

        The format is that of the suffix; in a folder without one that of the files ``like``, or the first of
        ``formats``.
        """
        place, suffix = locate(str(out)), locate(str(out)).suffix.removeprefix(".")
        folder = bool(shard_rows) or place.is_dir() or str(out).endswith("/") or not (suffix or place.exists())
        default = suffix
        if folder and suffix not in formats:
            default = next((kind for path in like if (kind := kind_of(path)[1:]) in formats), formats[0])
        chosen = form or default
        if chosen not in formats:
            raise InputError(f"format is '{chosen}' but must be one of {', '.join(formats)}", parameter="format")
        if isinstance(place, Path) and not folder and not place.absolute().parent.is_dir():
            raise InputError(f"there is no folder '{place.absolute().parent}' to write {place.name} to")
        return cls(out=str(out), form=chosen, shard_rows=(shard_rows or SHARD_ROWS) if folder else None)


@contextmanager
def open_output(target: Target, *, head: str = "", about: Mapping[str, Any]) -> Iterator[Output]:
    """What to write to. What is not complete when this ends is removed.

    ``head`` is the first line of a file. ``about`` says what decides the content: a folder is resumed only where it is
    the same. Of a URL one file or shard at a time is on this machine.
    """
    form, place = target.form, locate(target.out)
    if form == "parquet":
        arrow_library()
    with ExitStack() as stack:
        here = place
        if not isinstance(place, Path):
            here = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="litebert-"))) / place.name
        if target.shard_rows is None:
            with new_binary_file(here) as file:
                yield _OneFile(_open(file, form, head))
            if here is not place:
                upload(here, place)
            return
        stack.enter_context(locked_folder(here, "run"))
        about = {**about, "format": form, "shard_rows": target.shard_rows}
        shards = _Shards(place, here, form, head, about)
        stack.push(shards.files)
        yield shards


class _OneFile:
    skipped = 0

    def __init__(self, file: _File) -> None:
        self._file = file

    def missing(self, found: Iterable[Portion[Item]]) -> Iterator[Portion[Item]]:
        yield from found

    def add(self, portion: Portion[Any], piece: Any) -> None:
        self._file.add(piece)

    def finish(self) -> int:
        self._file.close()
        return 1


@dataclass(frozen=True, kw_only=True)
class _Shard:
    """A complete shard, as it is listed."""

    name: str
    rows: int
    bytes: int
    digest: str


class _Reading:
    """The rows of a shard as they are read."""

    def __init__(self, number: int) -> None:
        self.number, self.rows, self._chain = number, 0, hashlib.blake2b(digest_size=16)

    def take(self, portion: Portion[Any]) -> None:
        self.rows += len(portion.items)
        self._chain.update(portion.digest)

    @property
    def digest(self) -> str:
        return self._chain.hexdigest()


class _Shards:
    """A folder of shards, or a URL (``place``) with the folder ``here`` in which each is written first."""

    def __init__(self, place: Path, here: Path, form: str, head: str, about: Mapping[str, Any]) -> None:
        self._place, self._here, self._form, self._head = place, here, form, head
        self._about = dict(about)
        self.skipped = 0
        self._listed = self._begin()
        self._read: dict[int, _Reading] = {}  # shards that are read and not listed
        self._number: int | None = None  # of the shard that is being written
        self._open: _File | None = None
        self.files = ExitStack()  # of the file that is being written, which an error removes

    def _begin(self) -> dict[int, _Shard]:
        """The shards that are there already."""
        for left in self._here.glob(".*"):  # by a process that was killed while it wrote a shard
            if left.name.startswith((".part-", f".{MANIFEST}.")):
                left.unlink()
        path = self._place / MANIFEST
        if not path.exists():
            others = [one.name for one in self._place.iterdir()] if self._place.exists() else []
            if any(not name.startswith("part-") for name in others):
                raise InputError(f"{self._place} is not empty and holds no shards; choose another folder")
            return {}
        note = read_object(path, "choose another folder, or delete this one")
        there, shards = note.get("about"), [_Shard(**shard) for shard in note.get("shards", ())]
        if note.get("format") != FORMAT or not isinstance(there, dict):
            raise InputError(f"{path} was not written by this version of litebert; choose another folder")
        self._compare(there)
        listed = {int(shard.name.removeprefix("part-").partition(".")[0]): shard for shard in shards}
        return {number: shard for number, shard in listed.items() if self._is_there(shard)}

    def _compare(self, there: Mapping[str, Any]) -> None:
        ours = json.loads(json.dumps(self._about))
        different = [
            f"{name} is {_shown(there.get(name))} there and {_shown(ours.get(name))} here"
            for name in ours | dict(there)
            if there.get(name) != ours.get(name)
        ]
        if different:
            raise InputError(
                f"{self._place} holds the output of another call: {'; '.join(different)}; choose another folder or "
                "delete it"
            )

    def _is_there(self, shard: _Shard) -> bool:
        path = self._place / shard.name
        return path.is_file() and path.stat().st_size == shard.bytes

    def missing(self, found: Iterable[Portion[Item]]) -> Iterator[Portion[Item]]:
        reading = _Reading(-1)
        for portion in found:
            if portion.shard != reading.number:
                self._check(reading)
                reading = _Reading(portion.shard)
                if portion.shard not in self._listed:
                    self._read[portion.shard] = reading
            reading.take(portion)
            if portion.shard in self._listed:
                self.skipped += len(portion.items)
            else:
                yield portion
        self._check(reading)
        beyond = [shard.name for number, shard in self._listed.items() if number > reading.number]
        if beyond:
            raise InputError(
                f"the data has fewer rows than when {self._place / beyond[0]} was written; give the same data, or "
                "choose another folder"
            )

    def _check(self, reading: _Reading) -> None:
        """The rows of a shard that is there must be those it was made of."""
        shard = self._listed.get(reading.number)
        if shard is not None and (shard.rows, shard.digest) != (reading.rows, reading.digest):
            raise InputError(
                f"the rows of {self._place / shard.name} have changed since it was written; give the same data, or "
                "choose another folder"
            )

    def add(self, portion: Portion[Any], piece: Any) -> None:
        if self._open is None:
            self._number = portion.shard
            file = self.files.enter_context(new_binary_file(self._here / self._name(portion.shard)))
            self._open = _open(file, self._form, self._head)
        assert self._open is not None
        self._open.add(piece)
        if portion.ends:
            self._complete_shard()

    def _name(self, number: int) -> str:
        return f"part-{number:05d}.{self._form}"

    def _complete_shard(self) -> None:
        """Give the open shard its name, then list it."""
        if self._open is None or self._number is None:
            return
        self._open.close()
        self._open = None
        self.files.close()
        reading, path = self._read.pop(self._number), self._here / self._name(self._number)
        shard = _Shard(name=path.name, rows=reading.rows, bytes=path.stat().st_size, digest=reading.digest)
        if self._place is not self._here:
            upload(path, self._place / path.name)
            path.unlink()
        self._listed[self._number] = shard
        self._write(complete=False)

    def finish(self) -> int:
        self._complete_shard()
        self._write(complete=True)
        return len(self._listed)

    def _write(self, *, complete: bool) -> None:
        shards = [asdict(self._listed[number]) for number in sorted(self._listed)]
        rows = sum(shard["rows"] for shard in shards)
        note = {"format": FORMAT, "complete": complete, "rows": rows, "about": self._about, "shards": shards}
        write_atomically(self._here / MANIFEST, json.dumps(note, indent=1, ensure_ascii=False) + "\n")
        sync_folder(self._here)
        if self._place is not self._here:
            upload(self._here / MANIFEST, self._place / MANIFEST)


def _shown(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 80 else f"{text[:30]}...{text[-46:]}"  # long paths differ at their end
