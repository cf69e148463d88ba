"""Opening a file as a stream of bytes, plain or compressed, so that no reader above needs to know which it was.

A file that is damaged or cut short is an error wherever it is noticed, never a quiet end of the text.
"""

import bz2
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from litebert.errors import InputError

STANDARD_INPUT = Path("-")
COMPRESSIONS = (".gz", ".xz", ".bz2", ".zst")
CHUNK = 1 << 18


def kind_of(path: Path) -> str:
    """The suffix that tells the format, behind that of a compression."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def parquet_library(path: Path) -> Any:
    """What reads a parquet file, which has a compression of its own."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError("reading .parquet files needs pyarrow: pip install 'litebert[corpus]'") from None
    if path.suffix.lower() in COMPRESSIONS:
        raise InputError(f"'{path}' is parquet inside another compression; unpack it first")
    return pyarrow


class _ZstandardFile(io.RawIOBase):
    """Zstandard frames as a raw stream; the library's own reader takes a cut file for a complete one."""

    def __init__(self, file: BinaryIO) -> None:
        try:
            import zstandard
        except ImportError:
            raise InputError("reading .zst files needs zstandard: pip install 'litebert[corpus]'") from None
        self._file = file
        self._library = zstandard
        self._pending = memoryview(b"")
        self._begin_frame()

    def _begin_frame(self) -> None:
        self._frame: Any = self._library.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
        self._started = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._pending:
            rest = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._begin_frame()
            data = rest or self._file.read(CHUNK)
            if not data:
                if self._started:
                    raise EOFError("cut short")
                return 0
            self._started = True
            try:
                self._pending = memoryview(self._frame.decompress(data))
            except self._library.ZstdError as error:
                raise EOFError(str(error)) from None
        count = min(len(buffer), len(self._pending))
        buffer[:count] = self._pending[:count]
        self._pending = self._pending[count:]
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _open(path: Path) -> IO[bytes]:
    """The decompressed bytes of ``path``."""
    match path.suffix.lower():
        case ".gz":
            return cast(IO[bytes], gzip.open(path, "rb"))
        case ".xz":
            return lzma.open(path, "rb")
        case ".bz2":
            return bz2.open(path, "rb")
        case ".zst":
            return cast(IO[bytes], _ZstandardFile(path.open("rb")))
        case _:
            return path.open("rb", buffering=0)


@contextmanager
def open_bytes(path: Path, offset: int = 0) -> Iterator["io.BufferedReader[Any]"]:
    """``path`` (or ``-``, standard input) decompressed, from the byte ``offset`` of its decompressed content."""
    if path == STANDARD_INPUT:
        stream = cast("io.BufferedReader[Any]", sys.stdin.buffer)
        _pass_over(stream, offset)
        yield stream
        return
    try:
        with _open(path) as raw, io.BufferedReader(cast(io.RawIOBase, raw), CHUNK) as stream:
            _pass_over(stream, offset)
            yield stream
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path} is damaged or cut short ({error}); make it again or leave it out") from None


def _pass_over(stream: "io.BufferedReader[Any]", offset: int) -> None:
    """Go to ``offset``: at once in a plain file, by decompressing without parsing in the others."""
    if offset and stream.seekable():
        stream.seek(offset)
        return
    while offset > 0:
        skipped = len(stream.read(min(offset, CHUNK)))
        if not skipped:
            return
        offset -= skipped
