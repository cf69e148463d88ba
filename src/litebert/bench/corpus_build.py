"""How fast a store is built, next to the tokenizer library by itself: same text, same number of processes, one run.

The library's side does nothing but what no one can do without: each process reads its share of a plain file and calls
``encode_batch_fast`` on the paragraphs. Ours does the whole build: hashes, sentences, word starts, checksums, the disk.
Both are timed from the start of the processes to their end, in turns, and the best of each counts.
"""

import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.corpus.build import BuildSettings, available_cores, build_store
from litebert.corpus.ordered import OrderedPool
from litebert.errors import InputError
from litebert.text.raw import documents
from litebert.text.tokenizers import read_tokenizer

CHUNK = 1 << 17  # bytes of text a call
TARGET = 0.7


@dataclass(frozen=True, kw_only=True)
class BuildFigures:
    """What was measured."""

    workers: int
    text_bytes: int
    library_seconds: float
    library_tokens: int
    build_seconds: float
    build_tokens: int
    build_documents: int

    @property
    def library_speed(self) -> float:
        """Megabytes of text a second."""
        return self.text_bytes / 1e6 / self.library_seconds

    @property
    def build_speed(self) -> float:
        """Megabytes of text a second."""
        return self.text_bytes / 1e6 / self.build_seconds

    @property
    def ratio(self) -> float:
        """The build's speed as a share of the library's."""
        return self.library_seconds / self.build_seconds

    def table(self) -> str:
        """The figures for a person."""
        lines = [
            f"building a store: {self.text_bytes / 1e6:.1f} MB of text, {self.build_documents:,} documents, "
            f"{self.workers} processes",
            f"  {'tokenizer library by itself':34}{self.library_speed:8.2f} MB/s{self.library_tokens:>14,} tokens",
            f"  {'litebert corpus build':34}{self.build_speed:8.2f} MB/s{self.build_tokens:>14,} tokens",
            f"  {'ratio':34}{self.ratio:8.2f}     (wanted: {TARGET} or more)",
        ]
        return "\n".join(lines)


def bench_build(
    corpus: Sequence[str],
    tokenizer_folder: Path,
    *,
    languages: Sequence[str] = (),
    workers: int | None = None,
    megabytes: float = 20,
    rounds: int = 2,
) -> BuildFigures:
    """Both speeds on the first ``megabytes`` of a corpus."""
    workers = workers or available_cores()
    with tempfile.TemporaryDirectory(prefix="litebert-bench-") as name:
        folder = Path(name)
        text = folder / "text.txt"
        text_bytes = _write_text(corpus, text, int(megabytes * 1e6))
        read_tokenizer(tokenizer_folder).save(folder / "tokenizer")
        library, builds = [], []
        for _ in range(rounds):
            begin = time.perf_counter()
            library_tokens = _library_tokens(text, folder / "tokenizer", workers)
            library.append(time.perf_counter() - begin)
            shutil.rmtree(folder / "store", ignore_errors=True)
            begin = time.perf_counter()
            settings = BuildSettings(languages=tuple(languages))
            store = build_store([str(text)], folder / "tokenizer", folder / "store", settings, workers=workers)
            builds.append(time.perf_counter() - begin)
        splits = [store.split(split) for split in ("train", "held_out")]
        return BuildFigures(
            workers=workers,
            text_bytes=text_bytes,
            library_seconds=min(library),
            library_tokens=library_tokens,
            build_seconds=min(builds),
            build_tokens=sum(split.num_tokens for split in splits),
            build_documents=sum(split.num_documents for split in splits),
        )


def _write_text(corpus: Sequence[str], path: Path, most: int) -> int:
    """The beginning of a corpus as plain text; neither side is to spend its time on decompression."""
    size = 0
    with path.open("wb") as file:
        for document in documents(corpus):
            size += file.write(document.text.encode() + b"\n\n")
            if size >= most:
                break
    if not size:
        raise InputError("the corpus holds no text to measure with")
    return size


def _library_tokens(text: Path, tokenizer_folder: Path, workers: int) -> int:
    """Everything through the library, on as many processes."""
    pool: OrderedPool[tuple[Path, int, int], int, Path] = OrderedPool(workers, _start, tokenizer_folder, _encode)
    try:
        return sum(count for _, count in pool.run((None, (text, *bounds)) for bounds in _ranges(text)))
    finally:
        pool.stop()


def _ranges(text: Path) -> list[tuple[int, int]]:
    """Stretches of whole lines, as places in the file."""
    ranges, begin, end = [], 0, 0
    with text.open("rb") as file:
        for line in file:
            end += len(line)
            if end - begin >= CHUNK:
                ranges.append((begin, end))
                begin = end
    return [*ranges, (begin, end)] if end > begin else ranges


_backend: Any = None


def _start(tokenizer_folder: Path) -> None:
    import os

    from tokenizers import Tokenizer

    global _backend
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _backend = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))


def _encode(place: tuple[Path, int, int]) -> int:
    path, begin, end = place
    with path.open("rb") as file:
        file.seek(begin)
        lines = file.read(end - begin).decode().splitlines()
    encodings = _backend.encode_batch_fast([line for line in lines if line], add_special_tokens=False)
    return sum(len(encoding.ids) for encoding in encodings)
