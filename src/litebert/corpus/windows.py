"""Planning windows: which inputs the documents of a window give and how they are packed, from sentence bounds alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from litebert.corpus.counter_rng import make_key, open_stream
from litebert.corpus.packing import pack
from litebert.corpus.pairs import (
    COLUMNS,
    NSP,
    ORDER_CODES,
    SECOND_SIZE,
    SIZE,
    body_size,
    cut_documents,
    exchange_seconds,
    most_inputs,
)
from litebert.corpus.settings import BatchSettings
from litebert.corpus.slices import (
    END_SENTENCE,
    FIRST_DOCUMENT,
    FIRST_SENTENCE,
    NUM_TOKENS,
    SHARD,
    Integers,
    Windows,
    allocate,
    cut_slices,
    opened,
)
from litebert.corpus.store import Shard
from litebert.errors import InputError

WINDOW_BATCHES = 16  # a window has at least so many batches, whatever their budget
PAIRS, PACKING, MASKS, EXCHANGE = range(4)  # what a key is for
NO_WORDS = np.zeros(0, np.uint8)
NO_WORDS.flags.writeable = False  # as the mapped array is, so that one compiled function serves both


class TooLittleTextError(InputError):
    """A store has not the text for what is asked of it, though nothing is wrong with it."""


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
        self._order = ORDER_CODES[settings.order]
        sizes = [(shard.num_sentences, shard.num_documents) for shard in shards]
        self._numbering = np.cumsum([(0, 0), *sizes], axis=0)  # sentences and documents before each shard
        self.max_sequences = self._most_sequences() if len(self.slices) else 0

    def windows(self, epoch: int) -> Windows:
        """The windows of an epoch."""
        size = max(self.settings.window, WINDOW_BATCHES * self.settings.budget)
        return Windows.draw(self.slices, self.seed, epoch, size)

    def cut(self, epoch: int, rows: Integers) -> Integers:
        """The inputs of some slices."""
        length, key = self.settings.length, make_key(self.seed, epoch, PAIRS)
        body = body_size(length, self._order)
        room = int((rows[:, END_SENTENCE] - rows[:, FIRST_SENTENCE]).sum()), int(rows[:, NUM_TOKENS].sum())
        inputs = allocate((most_inputs(*room, body), COLUMNS), np.dtype(np.int64))
        open_shards = {number: opened(self.shards[number]) for number in np.unique(rows[:, SHARD])}
        count, offset = 0, 0
        for row in rows:
            shard = open_shards[row[SHARD]]
            sizes = np.diff(shard.sentences[row[FIRST_SENTENCE] : row[END_SENTENCE] + 1])
            count = cut_documents(
                shard.sentences,
                shard.documents,
                shard.word_starts if sizes.max() > body else NO_WORDS,  # words matter where sentences are cut
                row[FIRST_SENTENCE],
                row[END_SENTENCE],
                row[FIRST_DOCUMENT],
                self._numbering[row[SHARD]],
                offset - int(shard.sentences[row[FIRST_SENTENCE]]),
                length,
                self._order,
                self.settings.edges == "masking",
                key,
                inputs,
                count,
            )
            offset += int(row[NUM_TOKENS])
        if self._order == NSP:
            exchange_seconds(inputs[:count], make_key(self.seed, epoch, EXCHANGE, int(rows[0, FIRST_SENTENCE])), length)
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
        """The most sequences of a batch: as set, or half as many again as the mean size of inputs gives."""
        settings = self.settings
        if not settings.fixed:
            return settings.budget  # no limit: an input has three tokens or more
        least = -(-settings.budget // settings.length) + 1
        if settings.max_sequences is not None:
            if settings.max_sequences < least:
                raise InputError(f"max_sequences is {settings.max_sequences} but must be {least} or more")
            return settings.max_sequences
        mean = row_sizes(self.cut(0, self.windows(0).rows(0))).mean()
        return -(-(int(1.5 * settings.budget / mean) + least) // 32) * 32

    def require_one_batch(self) -> None:
        """Refuse a corpus that does not fill a single batch."""
        budget = self.settings.budget
        if len(self.slices) > budget:
            return
        found = 0
        for rows in np.array_split(self.slices, len(self.slices)):
            found += int(row_sizes(self.cut(0, rows)).sum())
            if found >= budget:
                return
        raise TooLittleTextError(
            f"the corpus is too small for one batch: its inputs have {found:,} tokens in all and the budget is "
            f"{budget:,}; choose a smaller budget or add text"
        )


def row_sizes(inputs: Integers) -> Integers:
    """How many tokens each input takes in a batch, special ones included."""
    second = inputs[:, SECOND_SIZE]
    return inputs[:, SIZE] + 2 + second + (second > 0)
