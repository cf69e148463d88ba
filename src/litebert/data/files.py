"""Opening files: bytes plain or compressed, lines of text in the usual encodings, JSON; errors name file and line.

A file that is damaged or cut short is an error wherever it is noticed, never a quiet end of the text. (``fsspec`` opens
the same compressions, but takes a zstandard file that was cut short for a complete one.) Text is UTF-8, or UTF-16 and
UTF-32 as their first bytes tell; where ``western`` allows it, a file that is not UTF-8 is read as cp1252, which is what
Windows programs write in Western languages.
"""

import bz2
import codecs
import glob
import gzip
import io
import json
import logging
import lzma
import re
import shutil
import sys
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal, cast

from litebert.errors import InputError

log = logging.getLogger(__name__)

Errors = Literal["strict", "replace"]
Bytes = io.BufferedReader

STANDARD_INPUT = Path("-")
OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
COMPRESSIONS = (*OPENERS, ".zst", ".zip")
CHUNK = 1 << 18
LONGEST = 1 << 28  # bytes of a line; a device such as /dev/zero never ends one
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# No language written in cp1252 has five letters with marks in a row; other encodings of one or two bytes do.
NOT_WESTERN = re.compile(rb"[\x80-\xff]{5}")
DAMAGED = (EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, OSError)


def is_url(name: Any) -> bool:
    """Whether a name is of another file system, as ``s3://bucket/text`` is."""
    return "://" in str(name)


def locate(name: Path | str) -> Path:
    """The path of a name; that of a URL has what we use of ``Path``, on the file systems that fsspec knows."""
    if not is_url(name):
        return Path(name)
    try:
        import upath
    except ImportError:
        raise InputError(f"{name} needs universal-pathlib; install it with pip install 'litebert[corpus]'") from None
    try:
        path = upath.UPath(str(name))
        path.fs  # noqa: B018  # loads the driver
    except (ImportError, ValueError) as error:
        raise InputError(f"{name} cannot be opened ({error}); install its driver, or copy it to a disk") from None
    return Path(path.path) if path.protocol in ("file", "local") else cast(Path, path)


def find_files(source: str, suffixes: Sequence[str], readable: str, *, ignored: tuple[str, ...] = (".",)) -> list[Path]:
    """The files that a file, a folder, a glob or a URL names, in a stable order.

    Of a folder and those below it these are files with one of the ``suffixes`` whose names do not begin as ``ignored``
    has it. ``readable`` are the formats in words, for messages.
    """
    if not source.strip():
        raise InputError(f"'{source}' names no file or folder; leave it out or name one")
    path = locate(source)
    if path == STANDARD_INPUT or path.is_file() or path.is_fifo() or path.is_char_device():
        return [path]
    if path.is_dir():
        return _files_under(path, suffixes, readable, ignored)
    if any(sign in source for sign in "*?["):
        found = [
            file
            for match in _matches(source)
            if not match.name.startswith(ignored)
            for file in (_files_under(match, suffixes, readable, ignored) if match.is_dir() else [match])
        ]
        if found:
            return list(dict.fromkeys(found))  # ** matches a folder and, by itself, the files in it
        raise InputError(f"no file matches '{source}'; check the pattern")
    raise InputError(f"there is no file or folder '{source}'; check the name")


def _matches(pattern: str) -> list[Path]:
    """The paths that a glob names, in order."""
    if not is_url(pattern):
        return sorted(Path(match) for match in glob.glob(pattern, recursive=True))  # noqa: PTH207
    from fsspec.core import url_to_fs

    system, root = url_to_fs(pattern)
    found = (match for match in sorted(system.glob(root)) if not match.rpartition("/")[2].startswith("."))
    return [locate(system.unstrip_protocol(match)) for match in found]


def _files_under(folder: Path, suffixes: Sequence[str], readable: str, ignored: tuple[str, ...]) -> list[Path]:
    found = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and kind_of(path) in suffixes
        and not any(part.startswith(ignored) for part in path.relative_to(folder).parts)
    ]
    if not found:
        raise InputError(f"the folder '{folder}' holds no file to read ({readable})")
    return found


def upload(source: Path, target: Path) -> None:
    """Copy a file or a folder to a path of another file system."""
    files = sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else [source]
    for path in files:
        place = target / path.relative_to(source).as_posix() if source.is_dir() else target
        place.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as ours, place.open("wb") as theirs:
            shutil.copyfileobj(ours, theirs, CHUNK)


def kind_of(path: Path) -> str:
    """The suffix that tells the format, before that of a compression."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


@contextmanager
def open_bytes(path: Path) -> Iterator["Bytes[Any]"]:
    """``path`` (or ``-``, standard input) decompressed."""
    if path == STANDARD_INPUT:
        stdin: Any = sys.stdin.buffer
        yield stdin if hasattr(stdin, "peek") else io.BufferedReader(stdin)
        return
    try:
        with _decompressed(path) as raw, io.BufferedReader(cast(io.RawIOBase, raw), CHUNK) as stream:
            yield stream
    except DAMAGED as error:
        raise unreadable(path, error) from None


def unreadable(path: Path, error: Exception, line: int | None = None) -> InputError:
    """The sentence for a file that cannot be read, or not to its end."""
    if isinstance(error, OSError) and error.errno is not None:  # permissions, a folder, a failing disk
        return InputError(f"{path} cannot be read ({error.strerror or error})")
    after = "" if line is None else f" after line {line:,}"
    reason = str(error) or type(error).__name__
    return InputError(f"{path} is damaged or cut short{after} ({reason}); make it again or leave it out")


def text_lines(
    path: Path,
    *,
    line: int = 0,
    offset: int = 0,
    errors: Errors = "strict",
    western: bool = False,
    quiet: bool = False,
    old_mac: bool = False,
) -> Iterator[tuple[str, int, int]]:
    """Lines with their ends, each with its number and the byte after it, in UTF-8 and decompressed.

    ``line`` and ``offset``, as given with an earlier line, start behind that line. ``western`` reads what is not UTF-8
    as cp1252, ``quiet`` does not log that, and ``old_mac`` has lines end at a carriage return as well.
    """
    number, decode = line, _decoder(path, errors, western=western, quiet=quiet)
    with open_bytes(path) as plain, _as_utf8(path, plain, errors, quiet) as stream:
        try:
            _pass_over(stream, offset)
            lines = iter(partial(stream.readline, LONGEST), b"")
            for data in _old_mac_lines(lines) if old_mac else lines:
                number += 1
                if len(data) == LONGEST:
                    raise InputError(f"{path}, line {number:,} is longer than {LONGEST >> 20} MB; is it a text?")
                offset += len(data)
                text = decode(data, number)
                yield text.removeprefix("\ufeff") if number == 1 else text, number, offset
        except UnicodeDecodeError as error:  # of UTF-16: lines of UTF-8 are decoded one by one
            raise InputError(
                f"{path} is not valid {error.encoding} after line {number:,} ({error.reason}); save it as UTF-8"
            ) from None
        except DAMAGED as error:
            raise unreadable(path, error, number) from None


def read_text(path: Path) -> str:
    """A whole file as text."""
    return "".join(line for line, _, _ in text_lines(path, western=True))


def parse_json(text: str, place: str) -> Any:
    """A JSON value; what is not one, or is nested beyond reason, is an error at ``place``."""
    try:
        return json.loads(text)
    except RecursionError:
        raise InputError(f"{place} is not JSON that can be read: it is nested too deeply") from None
    except ValueError as error:
        reason = "a number has too many digits" if "int_max_str_digits" in str(error) else error
        raise InputError(f"{place} is not JSON ({reason}); correct it, or save the file again") from None


def kind_of_value(value: Any) -> str:
    """What a value of JSON is, in words."""
    kinds = {
        dict: "an object",
        list: "a list",
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
    }
    return "null" if value is None else kinds.get(type(value), type(value).__name__)


def read_object(path: Path, advice: str) -> dict[str, Any]:
    """The JSON object that a file of a model, a store or a tokenizer holds; ``advice`` says what to do without it."""
    try:
        value = json.loads(path.read_bytes())
    except RecursionError:
        raise InputError(f"{path} is not JSON that can be read: it is nested too deeply; {advice}") from None
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON ({error}); {advice}") from None
    if not isinstance(value, dict):
        raise InputError(f"{path} holds {kind_of_value(value)}, not a JSON object; {advice}")
    return value


def without_surrogates(text: str) -> str:
    r"""``text`` with U+FFFD for half characters: JSON can spell them (``"\ud83d"``), but nothing can encode them."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def arrow_library() -> Any:
    """What reads and writes parquet."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(".parquet files need pyarrow: pip install 'litebert[corpus]'") from None
    return pyarrow


def parquet_library(path: Path) -> Any:
    """What reads a parquet file, which has a compression of its own."""
    pyarrow = arrow_library()
    if path.suffix.lower() in COMPRESSIONS:
        raise InputError(f"'{path}' is parquet inside another compression; unpack it first")
    return pyarrow


class _ChunkStream(io.RawIOBase):
    """Chunks of bytes as a raw stream."""

    def __init__(self, chunks: Generator[bytes, None, None]) -> None:
        self._chunks = chunks
        self._pending = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._pending:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._pending = memoryview(chunk)
        count = min(len(buffer), len(self._pending))
        buffer[:count] = self._pending[:count]
        self._pending = self._pending[count:]
        return count

    def close(self) -> None:
        self._chunks.close()
        super().close()


def _decompressed(path: Path) -> IO[bytes]:
    suffix = path.suffix.lower()
    if suffix in OPENERS:
        return cast(IO[bytes], OPENERS[suffix](path if isinstance(path, Path) else path.open("rb"), "rb"))
    if suffix == ".zip":
        return _zipped(path)
    if suffix != ".zst":
        return path.open("rb", buffering=0) if isinstance(path, Path) else path.open("rb")
    try:
        import zstandard
    except ImportError:
        raise InputError("reading .zst files needs zstandard: pip install 'litebert[corpus]'") from None
    return cast(IO[bytes], _ChunkStream(_zstandard_chunks(path, zstandard)))


def _zipped(path: Path) -> IO[bytes]:
    """The one file in a zip; what macOS adds to every archive is not counted."""
    archive = zipfile.ZipFile(path if isinstance(path, Path) else path.open("rb"))
    names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
    if len(names) != 1:
        shown = f" ({', '.join(names[:5])}{'...' if len(names) > 5 else ''})" if names else ""
        raise InputError(f"{path} holds {len(names)} files{shown} where one is expected; unpack it")
    try:
        return archive.open(names[0])
    except (RuntimeError, NotImplementedError) as error:  # a password; a method that Python lacks
        raise InputError(f"{path} cannot be unpacked here ({error}); unpack it first") from None


def _zstandard_chunks(path: Path, zstandard: Any) -> Generator[bytes, None, None]:
    """The content of all frames; the library's own stream ends quietly where a file is cut."""
    with path.open("rb") as file:
        frame = None
        while data := file.read(CHUNK):
            while data:
                frame = frame or zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()
                try:
                    yield frame.decompress(data)
                except zstandard.ZstdError as error:
                    raise EOFError(str(error)) from None
                data = frame.unused_data if frame.eof else b""
                frame = None if frame.eof else frame
        if frame is not None:
            raise EOFError("cut short")


@contextmanager
def _as_utf8(path: Path, stream: "Bytes[Any]", errors: Errors, quiet: bool) -> Iterator["Bytes[Any]"]:
    """The stream itself, or its UTF-16 or UTF-32 as UTF-8."""
    encoding = _wide_encoding(stream.peek(4))
    if encoding is None:
        yield stream
        return
    if not quiet:
        log.info("%s is read as %s", path, encoding.upper())
    decoder = codecs.getincrementaldecoder(encoding)(errors)

    def chunks() -> Generator[bytes, None, None]:
        while data := stream.read(CHUNK):
            yield decoder.decode(data).encode()
        yield decoder.decode(b"", final=True).encode()

    with io.BufferedReader(_ChunkStream(chunks()), CHUNK) as recoded:
        yield recoded


def _wide_encoding(head: bytes) -> str | None:
    """UTF-16 or UTF-32, by the mark they start with or the zeros of plain letters; None for everything else."""
    for mark, encoding in BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return encoding
    pairs = len(head[:1024]) // 2
    high, low = head[: 2 * pairs : 2].count(0), head[1 : 2 * pairs : 2].count(0)
    if pairs > 3 and max(high, low) > 0.4 * pairs and min(high, low) == 0:
        return "utf-16-le" if low else "utf-16-be"
    return None


def _decoder(path: Path, errors: Errors, *, western: bool, quiet: bool) -> Callable[[bytes, int], str]:
    """What turns the bytes of a line into text."""
    encoding, beyond_ascii = "utf-8", 0  # the first line with more than ASCII, while all are UTF-8

    def decode(data: bytes, number: int) -> str:
        nonlocal encoding, beyond_ascii
        if encoding == "utf-8":
            try:
                text = data.decode(encoding, errors)
                if western and not beyond_ascii and not data.isascii():
                    beyond_ascii = number
                return text
            except UnicodeDecodeError as error:
                byte = f"byte 0x{data[error.start]:02x} at column {error.start + 1}"
                what = f"{path}, line {number} is not UTF-8 ({byte})"
            if not western:
                raise InputError(
                    f"{what}; convert the file, or use errors=replace to read on with a replacement character"
                )
            if beyond_ascii:
                raise InputError(f"{what} but line {beyond_ascii} is; save the file as UTF-8")
        try:
            text = data.decode("cp1252")
        except UnicodeDecodeError:
            text = ""
        if not text or NOT_WESTERN.search(data):
            raise InputError(f"{path}, line {number} is not UTF-8, nor is it cp1252; save the file as UTF-8")
        if encoding == "utf-8" and not quiet:
            log.info("%s is not UTF-8 (line %d); it is read as cp1252", path, number)
        encoding = "cp1252"
        return text

    return decode


def _old_mac_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    for data in lines:
        yield from re.findall(rb"[^\r]*(?:\r\n?|$)", data)[:-1] if b"\r" in data[:-2] else (data,)


def _pass_over(stream: "Bytes[Any]", offset: int) -> None:
    """Go to ``offset``: at once in a plain file, by decompressing without parsing in the others."""
    if offset and stream.seekable():
        stream.seek(offset)
        return
    while offset > 0:
        skipped = len(stream.read(min(offset, CHUNK)))
        if not skipped:
            return
        offset -= skipped
