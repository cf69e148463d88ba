"""Batches out of a token store: each is a pure function of (settings, epoch, index).

An epoch shuffles slices of the corpus and groups them into windows; inside a window documents are cut into inputs,
shuffled and packed. One pass over sentence bounds counts the batches of each window, so any index leads to its window
directly: resuming costs the same anywhere, and workers and ranks share nothing. Numpy and numba, no torch.

T tokens, S sequences, M masked tokens.
"""

import copy
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from litebert.corpus.counter_rng import make_key, open_stream
from litebert.corpus.masking import LONGEST_NGRAM, MaskRules, Masks, write_masks
from litebert.corpus.pairs import LABEL, SECOND_SIZE, SECOND_START, SIZE, START, UNLABELLED
from litebert.corpus.settings import BatchSettings
from litebert.corpus.store import Store
from litebert.corpus.windows import (
    MASKS,
    Integers,
    Planner,
    TooLittleTextError,
    Window,
    Windows,
    read_slices,
    row_sizes,
)

__all__ = ["Batch", "BatchSettings", "Batches", "Position"]

HELD_OUT_SEED = 0x5EED  # held-out batches are those of one epoch under this seed, whatever the run's own
KEPT_WINDOWS = 2  # some workers are at the end of one while others begin the next

Indices = npt.NDArray[np.int32]
Position = tuple[int, int]  # (epoch, index)


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """T tokens of S sequences, one after the other, of which M are predicted.

    With fixed shapes every array is padded: T is the budget and the tail is cut into sequences of ``pad`` of at most
    ``length``; ``starts`` repeats its last value; labels and targets of padding are -100; padded ``mask_positions`` are
    0. The ``num_`` fields do not count padding.
    """

    epoch: int
    index: int
    ids: Indices  # T
    segments: Indices  # T: 0 for [CLS] x1 [SEP], 1 for x2 [SEP]
    positions: Indices  # T: from 0 in each sequence
    word_starts: npt.NDArray[np.uint8]  # T: 1 where a word of the text begins
    starts: Indices  # S + 1: where each sequence starts, then where the last one ends
    order_labels: Indices  # S: 0 in order (sop) or next (nsp), 1 swapped or random, -100 no pair
    mask_positions: Indices  # M, ascending
    mask_targets: Indices  # M: the original ids
    ngrams: npt.NDArray[np.uint8]  # words of each masked span, in the order of ``ids``
    longest: int  # maximum length of a sequence; the setting itself where shapes are fixed
    num_tokens: int
    num_sequences: int
    num_masked: int
    mask_weights: npt.NDArray[np.float32] | None = None  # M: what the predictions count for; None: 1 each


class BatchArrays(NamedTuple):
    """The arrays of a batch that are written before masking, as compiled functions take them."""

    ids: Any
    segments: Any
    positions: Any
    word_starts: Any
    starts: Any
    order_labels: Any

    @classmethod
    def empty(cls, tokens: int, sequences: int) -> "BatchArrays":
        """Uninitialised arrays for this many tokens and sequences."""
        ids, segments, positions = (np.empty(tokens, np.int32) for _ in range(3))
        starts, labels = np.empty(sequences + 1, np.int32), np.empty(sequences, np.int32)
        return cls(ids, segments, positions, np.empty(tokens, np.uint8), starts, labels)


@numba.njit(cache=True, nogil=True)
def _put_text(tokens: Any, word_starts: Any, begin: Any, size: Any, arrays: Any, place: Any) -> None:
    """Copy a segment's tokens; the first one begins a word even where a long sentence was cut."""
    for offset in range(size):
        arrays.ids[place + offset] = tokens[begin + offset]
        arrays.word_starts[place + offset] = word_starts[begin + offset]
    arrays.word_starts[place] = 1


@numba.njit(cache=True, nogil=True)
def _write_inputs(tokens: Any, word_starts: Any, inputs: Any, cls_id: Any, sep_id: Any, arrays: Any) -> None:
    """Write inputs one after the other, with special tokens around their text."""
    place = 0
    for number in range(len(inputs)):
        row = inputs[number]
        begin = place
        arrays.starts[number], arrays.order_labels[number] = begin, row[LABEL]
        arrays.ids[place], arrays.word_starts[place] = cls_id, 0
        _put_text(tokens, word_starts, row[START], row[SIZE], arrays, place + 1)
        place += 1 + row[SIZE]
        arrays.ids[place], arrays.word_starts[place] = sep_id, 0
        place += 1
        arrays.segments[begin:place] = 0
        if row[SECOND_SIZE] > 0:
            middle = place
            _put_text(tokens, word_starts, row[SECOND_START], row[SECOND_SIZE], arrays, place)
            place += row[SECOND_SIZE]
            arrays.ids[place], arrays.word_starts[place] = sep_id, 0
            place += 1
            arrays.segments[middle:place] = 1
        for position in range(begin, place):
            arrays.positions[position] = position - begin
    arrays.starts[len(inputs)] = place


@numba.njit(cache=True, nogil=True)
def write_padding(arrays: Any, used: Any, count: Any, pad_id: Any, length: Any) -> None:
    """Pad to fixed shapes: tokens from ``used`` on, sequences (of at most ``length``) from ``count`` on."""
    for position in range(used, len(arrays.ids)):
        arrays.ids[position], arrays.segments[position], arrays.word_starts[position] = pad_id, 0, 0
        arrays.positions[position] = (position - used) % length
    for number in range(count, len(arrays.order_labels)):
        arrays.order_labels[number] = UNLABELLED
        arrays.starts[number + 1] = min(arrays.starts[number] + length, len(arrays.ids))


def original_ids(batch: Batch) -> npt.NDArray[np.int32]:
    """(T) the ids before masking."""
    ids, real = batch.ids.copy(), batch.mask_targets != UNLABELLED
    ids[batch.mask_positions[real]] = batch.mask_targets[real]
    return ids


def with_all_masked(batch: Batch, mask_id: int) -> Batch:
    """The batch with every predicted token shown as [MASK], those too that were left or replaced by another token."""
    ids = batch.ids.copy()
    ids[batch.mask_positions[: batch.num_masked]] = mask_id
    return replace(batch, ids=ids)


def mask_room(settings: BatchSettings) -> int:
    """How many masked tokens there is room for where shapes are fixed."""
    return -(-int(settings.rate * settings.budget + 64) // 64) * 64


class Batches:
    """The batches of a split; those of ``held_out`` are the same, masks and all, in every epoch and under any seed."""

    def __init__(self, store: Store, split: str, settings: BatchSettings) -> None:
        self.settings = settings
        self.split = split
        self.shards = store.split(split).shards
        self._held_out = split == "held_out"
        self._seed = HELD_OUT_SEED if self._held_out else settings.seed
        self._planner = Planner(self.shards, settings, self._seed, top_up=not self._held_out)
        if not len(self._planner.slices):
            raise TooLittleTextError(f"{store.folder} has no {split.replace('_', '-')} text; build one that has")
        if not self._held_out:
            self._planner.require_one_batch()
        self.max_sequences = self._planner.max_sequences
        self.max_masked = mask_room(settings)
        self._ids = store.special_ids
        self._special = np.zeros(store.vocab_size, np.bool_)
        self._special[list(store.special_ids.values())] = True
        self._mask_rules = self._rules()
        self._lock = threading.RLock()
        # The windows of an epoch and the index of the first batch of each, then the number of batches.
        self._epochs: OrderedDict[int, tuple[Windows, Integers]] = OrderedDict()
        self._windows: OrderedDict[Position, Window] = OrderedDict()

    def at_rate(self, rate: float) -> "Batches":
        """The same batches with fewer tokens masked, in arrays of the same size where shapes are fixed."""
        assert rate <= self.settings.rate
        other = copy.copy(self)  # the plans of epochs and the windows in memory serve both
        other.settings = replace(self.settings, rate=rate)
        other._mask_rules = other._rules()
        return other

    def _rules(self) -> MaskRules:
        settings = self.settings
        return MaskRules(
            rate=settings.rate,
            longest=LONGEST_NGRAM if settings.masking == "ngram" else 1,
            whole_words=settings.masking != "plain",
            mask_id=self.mask_id,
            special=self._special,
            ordinary=np.flatnonzero(~self._special).astype(np.int32),
        )

    @property
    def mask_id(self) -> int:
        """The id of ``[MASK]``."""
        return self._ids["mask"]

    def is_text(self, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Which ids are ordinary tokens, which may be masked."""
        return ~self._special[ids]

    def len(self, epoch: int) -> int:
        """The number of batches in an epoch."""
        return int(self._epoch(epoch)[1][-1])

    def batch(self, epoch: int, index: int) -> Batch:
        """Batch ``index`` of an epoch."""
        _, firsts = self._epoch(epoch)
        if not 0 <= index < firsts[-1]:
            raise IndexError(f"epoch {epoch} has {firsts[-1]} batches, so there is no batch {index}")
        number = int(np.searchsorted(firsts, index, side="right")) - 1
        return self._make(self.window(epoch, number), epoch, index, index - int(firsts[number]))

    def batches(self, epoch: int) -> Iterator[Batch]:
        """All batches of an epoch."""
        return (self.batch(epoch, index) for index in range(self.len(epoch)))

    def advance(self, position: Position, count: int) -> Position:
        """The position ``count`` batches later, across the ends of epochs."""
        epoch, index = position[0], position[1] + count
        while index >= self.len(epoch):
            index -= self.len(epoch)
            epoch += 1
        return epoch, index

    def stream(self, start: Position = (0, 0), *, rank: int = 0, world: int = 1, workers: int = 0) -> Iterator[Batch]:
        """Batches from a position on, without end. Rank r of w ranks gets every w-th, from the r-th.

        ``start`` is the same for all ranks: after n batches each, resume at ``advance(start, n * world)``. ``workers``
        threads make batches ahead; 0 makes each batch when it is asked for.
        """
        positions = self._positions(self.advance(start, rank), world)
        if workers == 0:
            return (self.batch(*position) for position in positions)
        return self._prefetch(positions, workers)

    def window(self, epoch: int, number: int) -> Window:
        """A window of an epoch with its tokens; a few are kept for the batches that follow."""
        epoch = 0 if self._held_out else epoch
        with self._lock:
            if (epoch, number) not in self._windows:
                plan = self._planner.plan(epoch, self._epoch(epoch)[0], number)
                while len(self._windows) >= KEPT_WINDOWS:
                    self._windows.popitem(last=False)
                self._windows[epoch, number] = Window(plan, *read_slices(self.shards, plan.rows))
            self._windows.move_to_end((epoch, number))
            return self._windows[epoch, number]

    def num_windows(self, epoch: int) -> int:
        """The number of windows in an epoch."""
        return len(self._epoch(epoch)[0])

    def _positions(self, position: Position, step: int) -> Iterator[Position]:
        while True:
            yield position
            position = self.advance(position, step)

    def _prefetch(self, positions: Iterator[Position], workers: int) -> Iterator[Batch]:
        """Batches in order, made by threads a few batches ahead."""
        with ThreadPoolExecutor(workers, thread_name_prefix="batches") as pool:
            waiting: deque[Future[Batch]] = deque()
            try:
                while True:
                    while len(waiting) < 2 * workers:
                        waiting.append(pool.submit(self.batch, *next(positions)))
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()

    def _epoch(self, epoch: int) -> tuple[Windows, Integers]:
        """The plan of an epoch: one pass over sentence bounds, on all cores."""
        epoch = 0 if self._held_out else epoch
        with self._lock:
            if epoch not in self._epochs:
                windows = self._planner.windows(epoch)

                def count(number: int) -> int:
                    return self._planner.plan(epoch, windows, number).num_batches

                with ThreadPoolExecutor(min(len(windows), os.cpu_count() or 1)) as pool:
                    counts = list(pool.map(count, range(len(windows))))
                self._epochs[epoch] = windows, np.cumsum([0, *counts])
                while len(self._epochs) > 2:
                    self._epochs.popitem(last=False)
            return self._epochs[epoch]

    def _make(self, window: Window, epoch: int, index: int, number: int) -> Batch:
        """Batch ``number`` of a window."""
        settings, plan = self.settings, window.plan
        inputs = plan.inputs[plan.order[plan.bounds[number] : plan.bounds[number + 1]]]
        sizes = row_sizes(inputs)
        used, count = int(sizes.sum()), len(inputs)
        arrays = BatchArrays.empty(*((settings.budget, self.max_sequences) if settings.fixed else (used, count)))
        _write_inputs(window.tokens, window.word_starts, inputs, self._ids["cls"], self._ids["sep"], arrays)
        room = self.max_masked if settings.fixed else int(settings.rate * used) + settings.length
        masks = Masks(np.zeros(room, np.int32), np.full(room, UNLABELLED, np.int32), np.empty(room, np.uint8))
        stream = open_stream(make_key(self._seed, 0 if self._held_out else epoch, MASKS), index)
        masked, spans = write_masks(stream, inputs, arrays.ids, arrays.word_starts, self._mask_rules, masks)
        if settings.fixed:
            write_padding(arrays, used, count, self._ids["pad"], settings.length)
        kept = room if settings.fixed else masked
        return Batch(
            epoch=epoch,
            index=index,
            **arrays._asdict(),
            mask_positions=masks.positions[:kept],
            mask_targets=masks.targets[:kept],
            ngrams=masks.ngrams[:spans],
            longest=settings.length if settings.fixed else int(sizes.max()),
            num_tokens=used,
            num_sequences=count,
            num_masked=int(masked),
        )
