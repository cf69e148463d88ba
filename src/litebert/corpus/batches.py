"""Batches out of a token store: each is a pure function of (settings, epoch, index).

An epoch orders slices of the corpus anew and groups them into windows; inside a window documents are cut into inputs,
shuffled and packed. One pass over sentence bounds finds how many batches each window has, so any index leads to its
window directly: resuming costs the same anywhere, and workers and ranks share nothing. Numpy and numba, no torch.
"""

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from litebert.corpus.counter_rng import make_key, open_stream
from litebert.corpus.masking import LONGEST_NGRAM
from litebert.corpus.rows import Batch, write_inputs, write_masks, write_padding
from litebert.corpus.settings import BatchSettings
from litebert.corpus.slices import Integers, Windows, read_slices
from litebert.corpus.store import Store
from litebert.corpus.windows import MASKS, Planner, TooLittleTextError, Window, row_sizes

__all__ = ["Batch", "BatchSettings", "Batches", "Position"]

HELD_OUT_SEED = 0x5EED  # held-out batches are those of one epoch under this seed, whatever the run's own
KEPT_WINDOWS = 2  # workers are at the end of one while others begin the next

Position = tuple[int, int]  # (epoch, index)


@dataclass(frozen=True)
class EpochPlan:
    """The windows of an epoch and the index of the first batch of each, then the number of batches."""

    windows: Windows
    firsts: Integers


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
            raise TooLittleTextError(f"{store.folder} has no {split.replace('_', '-')} text; build a store with some")
        if not self._held_out:
            self._planner.require_one_batch()
        self.max_sequences = self._planner.max_sequences
        self.max_masked = -(-int(settings.rate * settings.budget + 64) // 64) * 64
        self._ids = store.special_ids
        self._special = np.zeros(store.vocab_size, np.bool_)
        self._special[list(store.special_ids.values())] = True
        self._ordinary = np.flatnonzero(~self._special).astype(np.int32)
        self._lock = threading.RLock()
        self._epochs: OrderedDict[int, EpochPlan] = OrderedDict()
        self._windows: OrderedDict[Position, Window] = OrderedDict()

    @property
    def mask_id(self) -> int:
        """The id of ``[MASK]``."""
        return self._ids["mask"]

    def is_text(self, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Which ids are ordinary tokens, those that may be masked."""
        return ~self._special[ids]

    def len(self, epoch: int) -> int:
        """How many batches an epoch has."""
        return int(self._epoch(epoch).firsts[-1])

    def batch(self, epoch: int, index: int) -> Batch:
        """Batch ``index`` of an epoch."""
        plan = self._epoch(epoch)
        if not 0 <= index < plan.firsts[-1]:
            raise IndexError(f"batch {index} of epoch {epoch}, which has {plan.firsts[-1]}")
        number = int(np.searchsorted(plan.firsts, index, side="right")) - 1
        return self._make(self.window(epoch, number), epoch, index, index - int(plan.firsts[number]))

    def batches(self, epoch: int) -> Iterator[Batch]:
        """All batches of an epoch."""
        return (self.batch(epoch, index) for index in range(self.len(epoch)))

    def advance(self, position: Position, count: int) -> Position:
        """The position ``count`` batches after another, over the ends of epochs."""
        epoch, index = position[0], position[1] + count
        while index >= self.len(epoch):
            index -= self.len(epoch)
            epoch += 1
        return epoch, index

    def stream(self, start: Position = (0, 0), *, rank: int = 0, world: int = 1, workers: int = 0) -> Iterator[Batch]:
        """Batches from a position on, without end. Rank r of w ranks has every w-th, from the r-th.

        ``start`` is the same for all ranks: after n batches each, go on from ``advance(start, n * world)``. ``workers``
        threads make batches ahead; 0 makes each when it is asked for.
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
                plan = self._planner.plan(epoch, self._epoch(epoch).windows, number)
                while len(self._windows) >= KEPT_WINDOWS:
                    self._windows.popitem(last=False)
                self._windows[epoch, number] = Window(plan, *read_slices(self.shards, plan.rows))
            self._windows.move_to_end((epoch, number))
            return self._windows[epoch, number]

    def num_windows(self, epoch: int) -> int:
        """How many windows an epoch has."""
        return len(self._epoch(epoch).windows)

    def _positions(self, position: Position, step: int) -> Iterator[Position]:
        while True:
            yield position
            position = self.advance(position, step)

    def _prefetch(self, positions: Iterator[Position], workers: int) -> Iterator[Batch]:
        """Batches in order, made by threads that keep a few ahead."""
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

    def _epoch(self, epoch: int) -> EpochPlan:
        """The plan of an epoch: one pass over sentence bounds, on all cores."""
        epoch = 0 if self._held_out else epoch
        with self._lock:
            if epoch not in self._epochs:
                windows = self._planner.windows(epoch)

                def count(number: int) -> int:
                    return self._planner.plan(epoch, windows, number).num_batches

                with ThreadPoolExecutor(min(len(windows), os.cpu_count() or 1)) as pool:
                    counts = list(pool.map(count, range(len(windows))))
                self._epochs[epoch] = EpochPlan(windows, np.cumsum([0, *counts]))
                while len(self._epochs) > 2:
                    self._epochs.popitem(last=False)
            return self._epochs[epoch]

    def _make(self, window: Window, epoch: int, index: int, number: int) -> Batch:
        """Batch ``number`` of a window."""
        settings, plan = self.settings, window.plan
        chosen = plan.order[plan.bounds[number] : plan.bounds[number + 1]]
        sizes = row_sizes(plan.inputs[chosen])
        used, count = int(sizes.sum()), len(chosen)
        total, sequences = (settings.budget, self.max_sequences) if settings.fixed else (used, count)
        ids, segments, positions = (np.empty(total, np.int32) for _ in range(3))
        words = np.empty(total, np.uint8)
        starts, labels = np.empty(sequences + 1, np.int32), np.empty(sequences, np.int32)
        ends = np.array((self._ids["cls"], self._ids["sep"]), np.int32)
        write_inputs(
            window.tokens,
            window.word_starts,
            plan.inputs,
            chosen,
            ends,
            ids,
            segments,
            positions,
            words,
            starts,
            labels,
        )
        room = self.max_masked if settings.fixed else int(settings.rate * used) + settings.length
        mask_positions, mask_targets = np.zeros(room, np.int32), np.full(room, -100, np.int32)
        ngrams = np.empty(room, np.uint8)
        epoch_of_draws = 0 if self._held_out else epoch
        masked, spans = write_masks(
            open_stream(make_key(self._seed, epoch_of_draws, MASKS), index),
            plan.inputs,
            chosen,
            ids,
            words,
            settings.rate,
            LONGEST_NGRAM if settings.masking == "ngram" else 1,
            settings.masking != "plain",
            self._special,
            self._ids["mask"],
            self._ordinary,
            mask_positions,
            mask_targets,
            ngrams,
        )
        if settings.fixed:
            write_padding(
                self._ids["pad"], settings.length, ids, segments, positions, words, starts, labels, used, count
            )
        else:
            mask_positions, mask_targets = mask_positions[:masked], mask_targets[:masked]
        return Batch(
            epoch=epoch,
            index=index,
            ids=ids,
            segments=segments,
            positions=positions,
            word_starts=words,
            starts=starts,
            order_labels=labels,
            mask_positions=mask_positions,
            mask_targets=mask_targets,
            ngrams=ngrams[:spans],
            longest=settings.length if settings.fixed else int(sizes.max()),
            num_tokens=used,
            num_sequences=count,
            num_masked=int(masked),
        )
