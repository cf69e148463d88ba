"""Slices and windows: what a batch may draw from, and the plan of each window, made from sentence bounds alone.

A split is cut into slices of whole documents, small enough to shuffle by and large enough to read at disk speed. An
epoch shuffles the slices and groups them into windows. Inside a window documents are cut into inputs, shuffled and
packed. The tokens of a window are copied from the shards when one of its batches is asked for, so memory does not grow
with the corpus.
"""

import copy
import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from litebert.corpus.counter_rng import make_key, open_stream, shuffled
from litebert.corpus.packing import pack
from litebert.corpus.pairs import (
    COLUMNS,
    NSP,
    ORDER_CODES,
    SECOND_SIZE,
    SIZE,
    PairRules,
    SliceBounds,
    body_size,
    cut_documents,
    exchange_seconds,
    most_inputs,
)
from litebert.corpus.settings import BatchSettings
from litebert.corpus.store import Shard, array_path
from litebert.errors import InputError

SLICE_TOKENS = 65_536
WINDOW_BATCHES = 16  # minimum batches of a window, whatever their budget
PAIRS, PACKING, MASKS, EXCHANGE = range(4)  # what a random key is for
NO_WORDS = np.zeros(0, np.uint8)
NO_WORDS.flags.writeable = False  # as the mapped array is, so that one compiled function serves both

Integers = npt.NDArray[np.int64]

# Columns of the table of slices.
SHARD, FIRST_SENTENCE, END_SENTENCE, FIRST_DOCUMENT, FIRST_TOKEN, NUM_TOKENS = range(6)


class TooLittleTextError(InputError):
    """A valid store has too little text for the settings."""


@numba.njit(cache=True, nogil=True)
def _cut(sentences: Any, documents: Any, shard: Any, size: Any, rows: Any) -> Any:
    """Write the slices of a shard to ``rows``; a document over 4 sizes is cut between sentences. Returns how many."""
    count: Any = 0
    first: Any = 0
    first_document: Any = 0
    for document in range(len(documents) - 1):
        begin, end = np.int64(documents[document]), np.int64(documents[document + 1])
        start = np.int64(sentences[first])
        if np.int64(sentences[end]) - start > 4 * size:
            for sentence in range(begin + 1, end):
                if np.int64(sentences[sentence]) - start >= 2 * size:
                    rows[count] = (shard, first, sentence, first_document, start, np.int64(sentences[sentence]) - start)
                    count, first, first_document = count + 1, sentence, document
                    start = np.int64(sentences[first])
        tokens = np.int64(sentences[end]) - start
        if tokens >= size or (document == len(documents) - 2 and tokens > 0):
            rows[count] = (shard, first, end, first_document, start, tokens)
            count, first, first_document = count + 1, end, document + 1
    return count


def cut_slices(shards: Sequence[Shard], size: int = SLICE_TOKENS) -> Integers:
    """The table of slices of a split, one row per slice, in the order of the text."""
    tables = [np.empty((0, 6), np.int64)]
    for number, shard in enumerate(map(opened, shards)):
        rows = np.empty((shard.num_tokens // size + 2, 6), np.int64)
        tables.append(rows[: _cut(shard.sentences, shard.documents, number, size, rows)])
    return np.concatenate(tables)


@dataclass(frozen=True)
class Windows:
    """The slices of a split in the order of one epoch, divided evenly over windows."""

    slices: Integers  # the table of slices in the order of the epoch
    bounds: Integers  # window w is the rows from bounds[w] to bounds[w + 1]

    @classmethod
    def draw(cls, slices: Integers, seed: int, epoch: int, window_tokens: int) -> "Windows":
        """Shuffle the slices for an epoch and group them into windows of about ``window_tokens``."""
        number = max(1, int(slices[:, NUM_TOKENS].sum()) // window_tokens)
        number = min(number, max(1, len(slices)))
        order = shuffled(open_stream(make_key(seed, epoch), 0), len(slices))
        return cls(slices[order], np.arange(number + 1) * len(slices) // number)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def rows(self, window: int) -> Integers:
        """The slices of one window."""
        return self.slices[self.bounds[window] : self.bounds[window + 1]]


def read_slices(shards: Sequence[Shard], rows: Integers) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """The tokens and word starts of some slices, one after the other."""
    size = int(rows[:, NUM_TOKENS].sum())
    tokens = allocate((size,), opened(shards[0]).tokens.dtype)
    word_starts = allocate((size,), np.dtype(np.uint8))
    offset = 0
    for row in rows:
        shard, end = shards[row[SHARD]], offset + int(row[NUM_TOKENS])
        for name, values in (("tokens", tokens), ("word_starts", word_starts)):
            _read(array_path(shard.folder, name), int(row[FIRST_TOKEN]), values[offset:end])
        offset = end
    return tokens, word_starts


def _read(path: Path, first: int, values: npt.NDArray[Any]) -> None:
    """Read ``values`` from a file, starting at item ``first``: a slice is read once, for which mapping is slow."""
    view = values.view(np.uint8).data
    with path.open("rb", buffering=0) as file:
        file.seek(first * values.itemsize)
        found = 0
        while found < len(view):
            count = file.readinto(view[found:])
            if not count:
                raise InputError(f"{path} is damaged: it ends too early; build the store again")
            found += count


def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """An array that returns its memory to the system when it is freed.

    The C library's allocator keeps freed blocks of a few megabytes for later, and windows come and go: with it,
    resident memory creeps up by a third over an epoch.
    """
    size = math.prod(shape)
    return np.frombuffer(mmap.mmap(-1, max(1, size * dtype.itemsize)), dtype, size).reshape(shape)


def opened(shard: Shard) -> Shard:
    """A shard with mappings of its own, freed with it: any corpus needs few file handles and little memory."""
    return copy.copy(shard)


@dataclass(frozen=True)
class WindowPlan:
    """The inputs of a window and how they are packed; no tokens yet."""

    rows: Integers  # its slices
    inputs: Integers  # a table with the columns of pairs.py
    order: Integers  # inputs in packed order
    bounds: Integers  # batch k is order[bounds[k]:bounds[k + 1]]

    @property
    def num_batches(self) -> int:
        return len(self.bounds) - 1


@dataclass(frozen=True)
class Window:
    """A window with its tokens."""

    plan: WindowPlan
    tokens: npt.NDArray[Any]
    word_starts: npt.NDArray[np.uint8]


class Planner:
    """Plans any window of any epoch. ``top_up`` fills the last batch of a window with inputs of the first ones."""

    def __init__(self, shards: Sequence[Shard], settings: BatchSettings, seed: int, *, top_up: bool) -> None:
        self.shards = shards
        self.settings = settings
        self.seed = seed
        self.slices = cut_slices(shards)
        self._top_up = top_up
        order = ORDER_CODES[settings.order]
        self._rules = PairRules(
            body=body_size(settings.length, order),
            order=order,
            min_document=settings.min_document,
            keep_edges=settings.edges == "masking",
        )
        sizes = [(shard.num_sentences, shard.num_documents) for shard in shards]
        self._before = np.cumsum([(0, 0), *sizes], axis=0)  # sentences and documents before each shard
        self.max_sequences = self._most_sequences() if len(self.slices) else 0

    def windows(self, epoch: int) -> Windows:
        """The windows of an epoch."""
        size = max(self.settings.window, WINDOW_BATCHES * self.settings.budget)
        return Windows.draw(self.slices, self.seed, epoch, size)

    def cut(self, epoch: int, rows: Integers) -> Integers:
        """The inputs of some slices."""
        rules, key = self._rules, make_key(self.seed, epoch, PAIRS)
        room = int((rows[:, END_SENTENCE] - rows[:, FIRST_SENTENCE]).sum()), int(rows[:, NUM_TOKENS].sum())
        inputs = allocate((most_inputs(*room, rules.body), COLUMNS), np.dtype(np.int64))
        open_shards = {number: opened(self.shards[number]) for number in np.unique(rows[:, SHARD])}
        count, offset = 0, 0
        for row in rows:
            shard = open_shards[row[SHARD]]
            begin, end = int(row[FIRST_SENTENCE]), int(row[END_SENTENCE])
            sizes = np.diff(shard.sentences[begin : end + 1])
            sentences_before, documents_before = self._before[row[SHARD]]
            bounds = SliceBounds(
                sentences=shard.sentences,
                documents=shard.documents,
                word_starts=shard.word_starts if sizes.max() > rules.body else NO_WORDS,
                begin=begin,
                end=end,
                document=int(row[FIRST_DOCUMENT]),
                shift=offset - int(shard.sentences[begin]),
                sentences_before=int(sentences_before),
                documents_before=int(documents_before),
            )
            count = cut_documents(bounds, rules, key, inputs, count)
            offset += int(row[NUM_TOKENS])
        if rules.order == NSP:
            key = make_key(self.seed, epoch, EXCHANGE, int(rows[0, FIRST_SENTENCE]))
            exchange_seconds(inputs[:count], key, rules.body)
        return inputs[:count].copy()

    def plan(self, epoch: int, windows: Windows, number: int) -> WindowPlan:
        """The plan of a window."""
        rows = windows.rows(number)
        inputs = self.cut(epoch, rows)
        stream = open_stream(make_key(self.seed, epoch, PACKING), number)
        settings = self.settings
        order, bounds = pack(
            row_sizes(inputs), stream, settings.budget, settings.length, self.max_sequences, self._top_up
        )
        return WindowPlan(rows, inputs, order, bounds)

    def _most_sequences(self) -> int:
        """Maximum sequences of a batch: as set, or 1.5 times what the mean size of inputs gives."""
        settings = self.settings
        if not settings.fixed:
            return settings.budget  # no limit: every input has three tokens or more
        minimum = -(-settings.budget // settings.length) + 1
        if settings.max_sequences is not None:
            if settings.max_sequences < minimum:
                raise InputError(f"max_sequences is {settings.max_sequences} but must be {minimum} or more")
            return settings.max_sequences
        sizes = row_sizes(self.cut(0, self.windows(0).rows(0)))
        mean = sizes.mean() if len(sizes) else float(settings.length)
        return -(-(int(1.5 * settings.budget / mean) + minimum) // 32) * 32

    def require_one_batch(self) -> None:
        """Raise an error where the corpus does not fill a single batch."""
        budget = self.settings.budget
        if len(self.slices) > budget and not self.settings.min_document:
            return
        found = 0
        for rows in np.array_split(self.slices, len(self.slices)):
            found += int(row_sizes(self.cut(0, rows)).sum())
            if found >= budget:
                return
        if self.settings.min_document:
            raise TooLittleTextError(
                f"the documents of {self.settings.min_document:,} tokens or more are too few for one batch: they have "
                f"{found:,} tokens in all and the budget is {budget:,}; add long documents, or choose a smaller "
                "min_document"
            )
        raise TooLittleTextError(
            f"the corpus is too small for one batch: its inputs have {found:,} tokens in all and the budget is "
            f"{budget:,}; choose a smaller budget or add text"
        )


def row_sizes(inputs: Integers) -> Integers:
    """How many tokens each input takes in a batch, special ones included."""
    second = inputs[:, SECOND_SIZE]
    return inputs[:, SIZE] + 2 + second + (second > 0)
