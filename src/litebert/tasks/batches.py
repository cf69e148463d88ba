"""Batches of a task for the one loop: so many examples a step, packed end to end, each a function of its position.

A step's examples are split over as many forward passes as its tokens need. Where shapes are to be few (passes
recorded on a GPU), a batch is filled up with inputs that count for nothing. No torch here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from litebert.tasks.encoding import Inputs, Targets

Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float32]
Position = tuple[int, int]  # (epoch, index)
Scalar = TypeVar("Scalar", bound=np.generic)

IGNORED = -100  # a label that counts for nothing
STEPS_AN_OCTAVE = 4  # of the sizes that batches are filled up to: at most a quarter is filling


@dataclass(frozen=True)
class TaskBatch:
    """Inputs end to end, and what is to be learnt from them. Filling has the label ``IGNORED`` or the value NaN."""

    ids: Integers
    segments: Integers
    positions: Integers
    starts: Integers
    longest: int
    num_tokens: int  # without filling
    num_units: int
    labels: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    ends: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    values: Numbers = field(default_factory=lambda: np.empty(0, np.float32))
    answered: Numbers = field(default_factory=lambda: np.empty(0, np.float32))
    cells: Integers = field(default_factory=lambda: np.empty(0, np.int64))  # of each option, in (units, most options)


def gather(inputs: Inputs, rows: Integers, *, tokens: int = 0, sequences: int = 0, longest: int = 0) -> TaskBatch:
    """These inputs end to end; with ``tokens`` and ``sequences``, filled up to so many."""
    sizes = inputs.lengths[rows]
    used = int(sizes.sum())
    rest = max(tokens - used, 0)
    filling = [min(longest, rest - done) for done in range(0, rest, longest)] if rest else []
    filling += [0] * (sequences - len(rows) - len(filling))
    every = np.concatenate([sizes, np.asarray(filling, np.int64)]) if filling else sizes
    starts = np.concatenate([[0], np.cumsum(every)]).astype(np.int64)
    positions = np.arange(starts[-1]) - np.repeat(starts[:-1], every)
    places = np.repeat(inputs.starts[:-1][rows] - starts[:-1][: len(rows)], sizes) + np.arange(used)
    ids, segments = np.zeros(starts[-1], np.int64), np.zeros(starts[-1], np.int64)
    ids[:used], segments[:used] = inputs.ids[places], inputs.segments[places]
    return TaskBatch(ids, segments, positions, starts, longest or int(sizes.max()), used, len(rows))


def token_batches(lengths: Sequence[int] | Integers, budget: int) -> list[Integers]:
    """The indices of all inputs in batches of at most ``budget`` tokens (a longer one stands alone), longest first.

    Neighbours of one length come out side by side, which the CPU's attention turns into one dense call.
    """
    order = np.argsort(-np.asarray(lengths, np.int64), kind="stable")
    batches, begin, room = [], 0, budget
    for place, length in enumerate(np.asarray(lengths, np.int64)[order].tolist()):
        if length > room and place > begin:
            batches.append(order[begin:place])
            begin, room = place, budget
        room -= length
    return [*batches, order[begin:]] if len(order) else []


def filled_size(tokens: int) -> int:
    """The next of a few sizes: four to every doubling."""
    step = max(1 << max(tokens.bit_length() - 1 - STEPS_AN_OCTAVE.bit_length() + 1, 0), 16)
    return -(-tokens // step) * step


class TaskBatches:
    """The batches of a task's training part. ``passes`` is how many forward passes a step is split over."""

    def __init__(
        self,
        inputs: Inputs,
        targets: Targets,
        *,
        batch: int,
        passes: int = 1,
        seed: int = 0,
        filled: bool = False,
        choosing: bool = False,
    ) -> None:
        assert len(targets) and 1 <= passes <= batch, (len(targets), passes, batch)
        self.inputs, self.targets, self.seed, self.filled = inputs, targets, seed, filled
        self.batch_size, self.passes = min(batch, len(targets)), min(passes, len(targets))
        self.steps = -(-len(targets) // self.batch_size)  # of an epoch
        self.choosing = choosing  # whether the inputs of a unit are options to choose from
        self.options = int(np.diff(targets.bounds).max())
        self._orders: dict[int, Integers] = {}

    def len(self) -> int:
        """How many forward passes an epoch has."""
        return self.steps * self.passes

    def advance(self, position: Position, count: int) -> Position:
        """The position so many forward passes later."""
        epochs, index = divmod(position[1] + count, self.len())
        return position[0] + epochs, index

    def stream(self, start: Position, *, rank: int = 0, world: int = 1, workers: int = 0) -> Iterator[TaskBatch]:
        """Batches from a position on, without end; rank r of w has every w-th. Making one takes no time to speak of."""
        return (self.batch(*self.advance(start, rank + number * world)) for number in count())

    def batch(self, epoch: int, index: int) -> TaskBatch:
        """The examples of one forward pass."""
        step, part = divmod(index, self.passes)
        order = self._order(epoch)
        chosen = order[step * self.batch_size : (step + 1) * self.batch_size]
        if len(chosen) < self.passes:  # the end of an epoch; every pass needs something
            chosen = np.concatenate([chosen, order[: self.passes - len(chosen)]])
        return self._make(chosen[part :: self.passes])

    def _order(self, epoch: int) -> Integers:
        if epoch not in self._orders:
            self._orders = {epoch: np.random.default_rng([self.seed, epoch]).permutation(len(self.targets))}
        return self._orders[epoch]

    def _make(self, units: Integers) -> TaskBatch:
        bounds, targets = self.targets.bounds, self.targets
        if not self.choosing:
            # By length: neighbours of one length are attended to in one call on a CPU.
            units = units[np.argsort(-self.inputs.lengths[bounds[:-1][units]], kind="stable")]
        counts = bounds[1:][units] - bounds[:-1][units]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = np.repeat(bounds[:-1][units], counts) + within
        packed = self._packed(rows)
        missing = self._most_units() - len(units) if self.filled else 0
        sequences = len(packed.starts) - 1
        more = missing if self.choosing else sequences - len(rows)
        cells = np.empty(0, np.int64)
        if self.choosing:
            grid = (len(units) + missing) * self.options
            cells = np.full(sequences, grid, np.int64)  # filling goes to a cell of its own
            cells[: len(rows)] = np.repeat(np.arange(len(units)) * self.options, counts) + within
        return TaskBatch(
            packed.ids,
            packed.segments,
            packed.positions,
            packed.starts,
            packed.longest,
            packed.num_tokens,
            len(units),
            _more(targets.labels, units, more, IGNORED),
            _more(targets.ends, units, more, IGNORED),
            _more(targets.values, units, more, np.nan),
            _more(targets.answered, units, more, np.nan),
            cells,
        )

    def _packed(self, rows: Integers) -> TaskBatch:
        if not self.filled:
            return gather(self.inputs, rows)
        longest = self.inputs.longest
        tokens = filled_size(int(self.inputs.lengths[rows].sum()))
        most = self._most_units() * self.options
        return gather(self.inputs, rows, tokens=tokens, sequences=most + 1 + tokens // 4 // longest, longest=longest)

    def _most_units(self) -> int:
        return -(-self.batch_size // self.passes)


def _more(values: npt.NDArray[Scalar], units: Integers, more: int, filler: float) -> npt.NDArray[Scalar]:
    """The targets of units, and so many that count for nothing; what the task does not have stays empty."""
    if not len(values):
        return values
    chosen = values[units]
    return np.concatenate([chosen, np.full((more, *chosen.shape[1:]), filler, chosen.dtype)]) if more else chosen
