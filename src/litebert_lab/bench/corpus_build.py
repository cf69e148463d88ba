"""How fast a store is built, next to the tokenizer library by itself: same text, same number of processes, one run.

The library's side does nothing but what no one can do without: each process reads its share of a plain file and calls
``encode_batch_fast``, once on paragraphs and once on whole documents, of which the faster is what we compare with. Ours
does the whole build: hashes, sentences, word starts, checksums, the disk. All are timed from the start of the processes
to their end, in turns, and the best of each counts. The seconds of processor that each spent are told, too: they hardly
move when other work shares the machine.
"""

import resource
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.corpus.build import BuildSettings, available_cores, build_store
from litebert.corpus.worker_pool import OrderedPool
from litebert.errors import InputError
from litebert.text.documents import documents
from litebert.text.tokenizer_files import read_tokenizer

CHUNK = 1 << 17  # bytes of text a call
TARGET = 0.7
PARTS = {"paragraphs": "\n", "documents": "\n\n"}  # what the library is given, and what parts it in the file
Stretch = tuple[Path, int, int, str]  # a file, from, to, what to cut it into


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The best of some rounds."""

    seconds: float
    processor_seconds: float
    tokens: int


@dataclass(frozen=True, kw_only=True)
class BuildFigures:
    """What was measured."""

    workers: int
    text_bytes: int
    paragraphs: Timing  # the library by itself, on paragraphs
    documents: Timing  # the same, on whole documents
    build: Timing
    build_documents: int

    @property
    def ratio(self) -> float:
        """The build's speed as a share of the library's, where that is faster."""
        return min(self.paragraphs.seconds, self.documents.seconds) / self.build.seconds

    @property
    def processor_ratio(self) -> float:
        """The same in seconds of processor, of all processes together."""
        library = min(self.paragraphs.processor_seconds, self.documents.processor_seconds)
        return library / self.build.processor_seconds

    def table(self) -> str:
        """The figures for a person."""
        head = (
            f"building a store: {self.text_bytes / 1e6:.1f} MB of text, {self.build_documents:,} documents, "
            f"{self.workers} processes"
        )
        rows = [
            ("tokenizer library, paragraphs", self.paragraphs),
            ("tokenizer library, documents", self.documents),
            ("litebert corpus build", self.build),
        ]
        lines = [
            head,
            *(
                f"  {name:30}{self.text_bytes / 1e6 / timing.seconds:7.2f} MB/s"
                f"{timing.processor_seconds:9.2f} s of processor{timing.tokens:>14,} tokens"
                for name, timing in rows
            ),
            f"  {'ratio':30}{self.ratio:7.2f}     {self.processor_ratio:9.2f}   (wanted: {TARGET} or more)",
        ]
        return "\n".join(lines)


def bench_build(
    corpus: Sequence[str],
    tokenizer_folder: Path,
    *,
    languages: Sequence[str] = (),
    workers: int | None = None,
    megabytes: float = 20,
    rounds: int = 3,
    keep: Path | None = None,
) -> BuildFigures:
    """Both speeds on the first megabytes of a corpus; with few, much of the time is the start of processes.

    The store is built in the folder ``keep`` and stays there, if one is named.
    """
    if megabytes <= 0:
        raise InputError(f"{megabytes:g} megabytes are nothing to measure with")
    workers = workers or available_cores()
    with tempfile.TemporaryDirectory(prefix="litebert-bench-") as name:
        folder = Path(name)
        text = folder / "text.txt"
        text_bytes = _write_text(corpus, text, int(megabytes * 1e6))
        read_tokenizer(tokenizer_folder).save(folder / "tokenizer")
        settings = BuildSettings(languages=tuple(languages))
        timers: dict[str, list[_Timer]] = {kind: [] for kind in (*PARTS, "build")}
        tokens: dict[str, int] = {}
        for _ in range(rounds):
            for kind in PARTS:
                with _Timer(timers[kind]):
                    tokens[kind] = _library_tokens(text, folder / "tokenizer", workers, kind)
            shutil.rmtree(keep or folder / "store", ignore_errors=True)
            with _Timer(timers["build"]):
                store = build_store(
                    [str(text)], folder / "tokenizer", keep or folder / "store", settings, workers=workers
                )
        splits = [store.split(split) for split in ("train", "held_out")]
        tokens["build"] = sum(split.num_tokens for split in splits)
        best = {
            kind: Timing(
                seconds=min(timer.seconds for timer in timers[kind]),
                processor_seconds=min(timer.processor_seconds for timer in timers[kind]),
                tokens=tokens[kind],
            )
            for kind in timers
        }
        return BuildFigures(
            workers=workers,
            text_bytes=text_bytes,
            paragraphs=best["paragraphs"],
            documents=best["documents"],
            build=best["build"],
            build_documents=sum(split.num_documents for split in splits),
        )


class _Timer:
    """Seconds that passed, and seconds of processor that this process and its ended children spent."""

    def __init__(self, timers: "list[_Timer]") -> None:
        timers.append(self)

    def __enter__(self) -> None:
        self._begin, self._used = time.perf_counter(), self._processor()

    def __exit__(self, *error: object) -> None:
        self.seconds = time.perf_counter() - self._begin
        self.processor_seconds = self._processor() - self._used

    def _processor(self) -> float:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(each.ru_utime + each.ru_stime for each in used)


def _write_text(corpus: Sequence[str], path: Path, most: int) -> int:
    """The beginning of a corpus as plain text: neither side is to spend its time on decompression.

    A short corpus is not repeated: the library remembers 10,000 pieces of text and would not work on them again.
    """
    size = 0
    with path.open("wb") as file:
        for document in documents(corpus):
            size += file.write(document.text.encode() + b"\n\n")
            if size >= most:
                break
    return size


def _library_tokens(text: Path, tokenizer_folder: Path, workers: int, kind: str) -> int:
    """Everything through the library, on as many processes."""
    pool: OrderedPool[Stretch, int, Path] = OrderedPool(workers, _start, tokenizer_folder, _encode)
    try:
        return sum(count for _, count in pool.run((None, (text, *bounds, kind)) for bounds in _ranges(text)))
    finally:
        pool.stop()


def _ranges(text: Path) -> list[tuple[int, int]]:
    """Stretches of whole documents, as places in the file."""
    ranges, begin, end = [], 0, 0
    with text.open("rb") as file:
        for line in file:
            end += len(line)
            if end - begin >= CHUNK and line == b"\n":
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


def _encode(stretch: Stretch) -> int:
    path, begin, end, kind = stretch
    with path.open("rb") as file:
        file.seek(begin)
        texts = file.read(end - begin).decode().split(PARTS[kind])
    encodings = _backend.encode_batch_fast([text for text in texts if text], add_special_tokens=False)
    return sum(len(encoding.ids) for encoding in encodings)
