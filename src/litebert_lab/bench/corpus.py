"""How fast a store is built and batches are made, next to the libraries that others use: the same text, in one run.

Building: the tokenizer library's side does nothing but what no one can do without: each process reads its share of a
plain file and calls ``encode_batch_fast``, once on paragraphs and once on whole documents, of which the faster counts.
Ours does the whole build: hashes, sentences, word starts, checksums, the disk. All are timed from the start of the
processes to their end, in turns, and the best of each counts; processor seconds hardly move when other work shares the
machine.

Batches: transformers' collator pads rows of ids that are there already and masks single tokens. Ours starts from the
store: it cuts documents into pairs, packs them, draws spans of whole words and masks them. Both are timed over the same
rows on one core. The collator gets its rows as lists, as the datasets library gives them, and as tensors; the faster
counts.
"""

import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from litebert.cluster import map_stream
from litebert.corpus.batches import Batches, BatchSettings
from litebert.corpus.build import BuildSettings, build_store
from litebert.corpus.look import originals
from litebert.corpus.store import Store
from litebert.errors import InputError
from litebert.report import Report, Section, Table
from litebert.system import available_cores
from litebert.text.documents import documents
from litebert.text.tokenizer_files import read_tokenizer

CHUNK = 1 << 17  # bytes of text a call
BUILD_TARGET, BATCH_TARGET = 0.7, 5.0
SEPARATORS = {"paragraphs": "\n", "documents": "\n\n"}  # what the library is given, and what separates it in the file
MOST_TOKENS = 2_000_000
Stretch = tuple[Path, int, int, str]  # a file, from, to, what to cut it into


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The best of some rounds."""

    seconds: float
    processor_seconds: float
    tokens: int


@dataclass(frozen=True, kw_only=True)
class BuildFigures:
    """Speeds of building."""

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

    def table(self) -> Table:
        """The figures for a person."""
        timings = {
            "tokenizer library, paragraphs": self.paragraphs,
            "tokenizer library, documents": self.documents,
            "litebert corpus build": self.build,
        }
        size = self.text_bytes / 1e6
        title = f"building a store: {size:.1f} MB of text, {self.build_documents:,} documents, {self.workers} processes"
        rows = [
            [name, f"{size / one.seconds:.2f}", f"{one.processor_seconds:.2f} s", f"{one.tokens:,}"]
            for name, one in timings.items()
        ]
        ratios = [f"ratio ({BUILD_TARGET} or more)", f"{self.ratio:.2f}", f"{self.processor_ratio:.2f}", ""]
        return Table(title=title, rows=[["", "MB/s", "processor", "tokens"], *rows, ratios])


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
        raise InputError(f"megabytes is {megabytes:g} but must be above 0")
    workers = workers or available_cores()
    with tempfile.TemporaryDirectory(prefix="litebert-bench-") as name:
        folder = Path(name)
        text, tokenizer, store = folder / "text.txt", folder / "tokenizer", keep or folder / "store"
        text_bytes = _write_text(corpus, text, int(megabytes * 1e6))
        read_tokenizer(tokenizer_folder).save(tokenizer)

        def build() -> int:
            shutil.rmtree(store, ignore_errors=True)
            settings = BuildSettings(languages=tuple(languages))
            built = build_store([str(text)], tokenizer, store, settings, workers=workers)
            return sum(entry.tokens for entry in built.manifest.shards)

        tasks: dict[str, Callable[[], int]] = {
            "paragraphs": lambda: _library_tokens(text, tokenizer, workers, "paragraphs"),
            "documents": lambda: _library_tokens(text, tokenizer, workers, "documents"),
            "build": build,
        }
        best = dict(zip(tasks, _best(list(tasks.values()), rounds), strict=True))
        kept = sum(entry.documents for entry in Store.open(store).manifest.shards)
        return BuildFigures(workers=workers, text_bytes=text_bytes, build_documents=kept, **best)


def _best(tasks: Sequence[Callable[[], int]], rounds: int) -> list[Timing]:
    """The least seconds of each task, taken in turns; processor seconds are of this process and its ended children."""

    def clocks() -> tuple[float, float]:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return time.perf_counter(), sum(each.ru_utime + each.ru_stime for each in used)

    best = np.full((len(tasks), 2), np.inf)
    tokens = [0] * len(tasks)
    for _ in range(rounds):
        for number, task in enumerate(tasks):
            begun = clocks()
            tokens[number] = task()
            best[number] = np.minimum(best[number], np.subtract(clocks(), begun))
    rows = zip(best.tolist(), tokens, strict=True)
    return [Timing(seconds=wall, processor_seconds=processor, tokens=count) for (wall, processor), count in rows]


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
    stretches = ((text, *bounds, kind) for bounds in _ranges(text))
    return sum(count for _, count in map_stream(_Library(tokenizer_folder), stretches, workers=workers))


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


@dataclass
class _Library:
    """The library's own tokenizer, read by the first call."""

    folder: Path

    @cached_property
    def _backend(self) -> Any:
        from tokenizers import Tokenizer

        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        return Tokenizer.from_file(str(self.folder / "tokenizer.json"))

    def __call__(self, stretch: Stretch) -> int:
        path, begin, end, kind = stretch
        with path.open("rb") as file:
            file.seek(begin)
            texts = file.read(end - begin).decode().split(SEPARATORS[kind])
        encodings = self._backend.encode_batch_fast([text for text in texts if text], add_special_tokens=False)
        return sum(len(encoding.ids) for encoding in encodings)


@dataclass(frozen=True, kw_only=True)
class BatchSpeeds:
    """Tokens a second on one core, padding not counted."""

    tokens: int
    length: int
    budget: int
    collator_lists: float
    collator_tensors: float
    litebert: float
    fill: float
    epoch_start: float  # seconds per 100 million tokens
    first_batch: float  # seconds from an open store to a first batch, functions compiled

    @property
    def ratio(self) -> float:
        """Our speed over the collator's better one."""
        return self.litebert / max(self.collator_lists, self.collator_tensors)

    def table(self) -> Table:
        """The figures for a person."""
        title = f"making batches of {self.budget:,} tokens, inputs of {self.length}: {self.tokens:,} tokens, one core"
        rows = [
            ["transformers' collator, rows as lists", f"{self.collator_lists / 1e6:.2f}", "million tokens/s"],
            ["transformers' collator, rows as tensors", f"{self.collator_tensors / 1e6:.2f}", "million tokens/s"],
            ["litebert: pairs, n-gram masks, packing", f"{self.litebert / 1e6:.2f}", "million tokens/s"],
            ["ratio", f"{self.ratio:.1f}", f"({BATCH_TARGET:.0f} or more)"],
            ["fill", f"{self.fill:.2%}", ""],
            ["start of an epoch", f"{self.epoch_start:.2f}", "s per 100 million tokens"],
            ["store to first batch", f"{self.first_batch:.2f}", "s"],
        ]
        return Table(title=title, rows=rows, heading=False, left=(0, 2))


def bench_batches(folder: Path, *, length: int = 512, budget: int = 65_536, rounds: int = 3) -> BatchSpeeds:
    """Measure with the train split of a store."""
    import torch

    store = Store.open(folder)
    settings = BatchSettings(length=length, budget=min(budget, max(length, store.split("train").num_tokens // 4)))
    warm = Batches(store, "train", settings)
    count = min(warm.len(0), max(1, MOST_TOKENS // settings.budget))
    made = [warm.batch(0, index) for index in range(count)]  # also compiles
    tokens = sum(batch.num_tokens for batch in made)
    lists = [[row.tolist() for row in np.split(originals(batch), batch.starts[1:-1])] for batch in made]
    tensors = [[torch.tensor(row) for row in rows] for rows in lists]
    collate = _collator(store)

    def make() -> int:
        """From the store on, planning and reading included."""
        batches = Batches(store, "train", settings)
        return sum(batches.batch(0, index).num_tokens for index in range(count))

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        tasks: list[Callable[[], int]] = [
            lambda: len([collate([{"input_ids": row} for row in rows]) for rows in lists]),
            lambda: len([collate([{"input_ids": row} for row in rows]) for rows in tensors]),
            make,
        ]
        speeds = [tokens / best.seconds for best in _best(tasks, rounds)]
    finally:
        torch.set_num_threads(threads)
    fresh: list[Batches] = []

    def begin() -> int:
        fresh.append(Batches(store, "train", settings))
        return fresh[0].batch(0, 0).num_tokens

    first, start = _best([begin, lambda: fresh[0].len(1)], 1)
    return BatchSpeeds(
        tokens=tokens,
        length=length,
        budget=settings.budget,
        collator_lists=speeds[0],
        collator_tensors=speeds[1],
        litebert=speeds[2],
        fill=tokens / count / settings.budget,
        epoch_start=start.seconds / store.split("train").num_tokens * 1e8,
        first_batch=first.seconds,
    )


def _collator(store: Store) -> Callable[[list[dict[str, Any]]], object]:
    """The library's collator with its plain token masking, over the store's own tokenizer."""
    from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

    tokenizer = read_tokenizer(store.tokenizer_folder)
    names = {f"{role}_token": tokenizer.piece(index) for role, index in store.special_ids.items()}
    wrapped = PreTrainedTokenizerFast(tokenizer_file=str(store.tokenizer_folder / "tokenizer.json"), **names)
    return DataCollatorForLanguageModeling(wrapped, mlm_probability=0.15)


def corpus_report(build: BuildFigures, batches: BatchSpeeds) -> Report:
    """Both measurements."""
    data = {
        "build": asdict(build) | {"ratio": build.ratio, "processor_ratio": build.processor_ratio},
        "batches": asdict(batches) | {"ratio": batches.ratio},
    }
    sections = [Section(items=[build.table()]), Section(items=[batches.table()])]
    return Report(title="Corpora: litebert next to other libraries", sections=sections, data=data)
