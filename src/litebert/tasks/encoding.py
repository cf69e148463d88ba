"""The inputs of a model as flat arrays, ids and segments of every input laid end to end, and batches made of them.

What an item becomes is up to its kind of task (``kinds``): one input, one for each option, one for each window of a
long passage. A batch is a function of its position alone. The examples of a step are split over as many forward
passes as its tokens need. Where shapes must be few (CUDA graphs), a batch is filled up with inputs that count for
nothing. No torch here.

R inputs, T tokens of all of them, U units of learning, L labels, O inputs of a unit, D numbers of a vector.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Small = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.float32]
Position = tuple[int, int]  # (epoch, index)
Scalar = TypeVar("Scalar", bound=np.generic)

OUTSIDE = -1  # the place, in characters, of a token that is not of the passage,
NULL = -2  # and of the one that stands for no answer
IGNORED = -100  # a label that counts for nothing
STEPS_AN_OCTAVE = 4  # of the sizes that batches are filled up to: at most a quarter is filling


def _no_integers() -> Integers:
    return np.empty(0, np.int64)


def _none_cut() -> npt.NDArray[np.bool_]:
    return np.empty(0, np.bool_)


def _no_numbers() -> Numbers:
    return np.empty(0, np.float32)


@dataclass(frozen=True)
class Inputs:
    """Every input of some items. ``starts`` has one entry more than there are inputs, the end of the last."""

    ids: Small  # (T)
    segments: Small  # (T)
    starts: Integers  # (R + 1)
    items: Integers  # (R) the number of the item that each input is of, rising
    characters: Small  # (T, 2) where a token of a passage begins and ends in it; empty where nobody asks for it
    cut: npt.NDArray[np.bool_] = field(default_factory=_none_cut)  # (R) whether texts were cut; empty: not known

    def __len__(self) -> int:
        return len(self.items)

    @cached_property
    def lengths(self) -> Integers:
        return np.diff(self.starts)

    @cached_property
    def longest(self) -> int:
        return int(self.lengths.max(initial=0))

    def of_items(self, count: int) -> Integers:
        """(count + 1) the number of the first input of each item, and the number of inputs."""
        return np.searchsorted(self.items, np.arange(count + 1))

    def tokens_of(self, rows: Integers) -> Integers:
        """The places of all tokens of some inputs."""
        return np.concatenate([np.arange(self.starts[row], self.starts[row + 1]) for row in rows])

    def replaced(self, numbers: Integers, others: "Inputs") -> "Inputs":
        """The same with the inputs of the items ``numbers`` taken from ``others``, where they count from 0."""
        kept = np.flatnonzero(~np.isin(self.items, numbers))
        owners = np.concatenate([self.items[kept], numbers[others.items]])
        order = np.argsort(owners, kind="stable")
        rows = np.concatenate([kept, len(self) + np.arange(len(others))])[order]
        both = Inputs(
            np.concatenate([self.ids, others.ids]),
            np.concatenate([self.segments, others.segments]),
            np.concatenate([self.starts, self.starts[-1] + others.starts[1:]]),
            np.concatenate([self.items, numbers[others.items]]),
            np.concatenate([self.characters, others.characters]),
            np.concatenate([self.cut, others.cut]),
        )
        tokens = both.tokens_of(rows)
        characters = both.characters[tokens] if len(both.characters) else both.characters
        starts = np.concatenate([[0], np.cumsum(both.lengths[rows])])
        cut = both.cut[rows] if len(both.cut) == len(both) else _none_cut()
        return Inputs(both.ids[tokens], both.segments[tokens], starts, owners[order], characters, cut)


@dataclass(frozen=True)
class Targets:
    """Of every unit of learning: an item, or a window of a passage where that is asked about."""

    bounds: Integers  # (U + 1) the first input of each unit, then the number of inputs
    # (U) label or option; the first token of an answer; (U, O) the numbers of texts, where equal ones are one text
    labels: Integers = field(default_factory=_no_integers)
    ends: Integers = field(default_factory=_no_integers)  # (U) the last token of the answer; else empty
    # (U) numbers, (U, L) ones and zeros, (U, O, D) vectors; else empty
    values: Numbers = field(default_factory=_no_numbers)
    answered: Numbers = field(default_factory=_no_numbers)  # (U) 1 where a window holds the answer; else empty

    def __len__(self) -> int:
        return len(self.bounds) - 1


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
    labels: Integers = field(default_factory=_no_integers)
    ends: Integers = field(default_factory=_no_integers)
    values: Numbers = field(default_factory=_no_numbers)
    answered: Numbers = field(default_factory=_no_numbers)
    cells: Integers = field(default_factory=_no_integers)  # of each option, in (units, most options)


def gather(inputs: Inputs, rows: Integers, *, tokens: int = 0, sequences: int = 0, longest: int = 0) -> TaskBatch:
    """These inputs end to end; with ``tokens`` and ``sequences``, filled up to these numbers."""
    sizes = inputs.lengths[rows]
    used = int(sizes.sum())
    filling = [min(longest, tokens - done) for done in range(used, tokens, longest or 1)]
    filling += [0] * (sequences - len(rows) - len(filling))
    every = np.concatenate([sizes, np.asarray(filling, np.int64)])
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
    step = max(1 << max(tokens.bit_length() - STEPS_AN_OCTAVE.bit_length(), 0), 16)
    return -(-tokens // step) * step


class TaskBatches:
    """The batches of a task's training split. ``passes`` is how many forward passes a step is split over.

    With ``choosing`` the inputs of a unit are options to choose from.
    """

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
        self.inputs, self.targets, self.seed, self.filled, self.choosing = inputs, targets, seed, filled, choosing
        self.batch_size, self.passes = min(batch, len(targets)), min(passes, len(targets))
        self.steps = -(-len(targets) // self.batch_size)  # of an epoch
        self.options = int(np.diff(targets.bounds).max())
        self.units = -(-self.batch_size // self.passes)  # of a forward pass
        self._orders: dict[int, Integers] = {}

    def len(self) -> int:
        """How many forward passes an epoch has."""
        return self.steps * self.passes

    def advance(self, position: Position, count: int) -> Position:
        """The position ``count`` forward passes later."""
        epochs, index = divmod(position[1] + count, self.len())
        return position[0] + epochs, index

    def stream(self, start: Position, *, rank: int = 0, world: int = 1, workers: int = 0) -> Iterator[TaskBatch]:
        """Batches from a position on, without end; rank r of w has every w-th. Making one takes no time to speak of."""
        return (self.batch(*self.advance(start, rank + number * world)) for number in count())

    def batch(self, epoch: int, index: int) -> TaskBatch:
        """The examples of one forward pass."""
        step, part = divmod(index, self.passes)
        if epoch not in self._orders:
            self._orders = {epoch: np.random.default_rng([self.seed, epoch]).permutation(len(self.targets))}
        order = self._orders[epoch]
        chosen = order[step * self.batch_size : (step + 1) * self.batch_size]
        if len(chosen) < self.passes:  # the end of an epoch; every pass needs something
            chosen = np.concatenate([chosen, order[: self.passes - len(chosen)]])
        return self._make(chosen[part :: self.passes])

    def _make(self, units: Integers) -> TaskBatch:
        targets, (first, last) = self.targets, (self.targets.bounds[:-1], self.targets.bounds[1:])
        if not self.choosing:
            # By length: neighbours of one length are attended to in one call on a CPU.
            units = units[np.argsort(-self.inputs.lengths[first[units]], kind="stable")]
        counts = last[units] - first[units]
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = np.repeat(first[units], counts) + within
        if self.choosing:
            within += np.repeat(np.arange(len(units)) * self.options, counts)  # the cell of each option
            order = np.argsort(-self.inputs.lengths[rows], kind="stable")
            rows, within = rows[order], within[order]
        packed = self._filled(rows, self.units * self.options) if self.filled else gather(self.inputs, rows)
        missing = self.units - len(units) if self.filled else 0
        sequences = len(packed.starts) - 1
        more = missing if self.choosing else sequences - len(rows)
        cells = packed.cells
        if self.choosing:
            cells = np.full(sequences, (len(units) + missing) * self.options, np.int64)  # filling has its own cell
            cells[: len(rows)] = within
        return replace(
            packed,
            num_units=len(units),
            labels=_more(targets.labels, units, more, IGNORED),
            ends=_more(targets.ends, units, more, IGNORED),
            values=_more(targets.values, units, more, np.nan),
            answered=_more(targets.answered, units, more, np.nan),
            cells=cells,
        )

    def _filled(self, rows: Integers, most: int) -> TaskBatch:
        """Inputs filled up to one of a few sizes; ``most`` is the largest number of them in a pass."""
        longest, tokens = self.inputs.longest, filled_size(int(self.inputs.lengths[rows].sum()))
        return gather(self.inputs, rows, tokens=tokens, sequences=most + 1 + tokens // 4 // longest, longest=longest)


def _more(values: npt.NDArray[Scalar], units: Integers, more: int, filler: float) -> npt.NDArray[Scalar]:
    """The targets of units, and ``more`` that count for nothing; what the task does not have stays empty."""
    if not len(values):
        return values
    chosen = values[units]
    return np.concatenate([chosen, np.full((more, *chosen.shape[1:]), filler, chosen.dtype)]) if more else chosen
