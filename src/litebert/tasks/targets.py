"""What is to be learnt about items, as arrays beside their inputs. No torch here.

I items, R inputs, L labels. A span's places are tokens of its input.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from litebert.errors import InputError
from litebert.tasks.encoding import NULL, Inputs
from litebert.tasks.examples import Choice, Example, Item, Kind, Question

Numbers = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Targets:
    """Of every unit of learning: an item, or a window of a passage where that is asked about."""

    bounds: Integers  # (units + 1) the first input of each unit, then the number of inputs
    labels: Integers  # (units) the right label or option; for spans the first token of the answer
    ends: Integers  # (units) the last token of the answer; empty for what is not a span
    values: Numbers  # (units) a number to predict, or (units, L) one and zero; else empty
    answered: Numbers  # (units) 1 where a window holds the answer; empty for what is not a span

    def __len__(self) -> int:
        return len(self.bounds) - 1


NONE_WHOLE = np.empty(0, np.int64)
NONE_REAL = np.empty(0, np.float32)


def make_targets(kind: Kind, items: Sequence[Item], inputs: Inputs, num_labels: int) -> Targets:
    """The targets of items that all have one; ``inputs`` are theirs."""
    if kind == "span":
        return _spans([item for item in items if isinstance(item, Question)], inputs)
    bounds = inputs.of_items(len(items))
    found = [item.target for item in items if isinstance(item, Example | Choice)]
    missing = next((item.key for item, target in zip(items, found, strict=True) if target is None), None)
    if missing is not None:
        raise InputError(f"item '{missing}' has no label; training needs one for every item")
    if kind == "multilabel":
        many = np.zeros((len(items), num_labels), np.float32)
        for row, target in enumerate(found):
            assert isinstance(target, tuple)
            many[row, list(target)] = 1.0
        return Targets(bounds, NONE_WHOLE, NONE_WHOLE, many, NONE_REAL)
    if kind == "regress":
        return Targets(bounds, NONE_WHOLE, NONE_WHOLE, np.asarray(found, np.float32), NONE_REAL)
    return Targets(bounds, np.asarray(found, np.int64), NONE_WHOLE, NONE_REAL, NONE_REAL)


def _spans(items: Sequence[Question], inputs: Inputs) -> Targets:
    """Every window is a unit. One without the whole answer is taught to point at no token of the passage."""
    starts, ends = np.zeros(len(inputs), np.int64), np.zeros(len(inputs), np.int64)
    answered = np.zeros(len(inputs), np.float32)
    for row in range(len(inputs)):
        begin, end = inputs.starts[row], inputs.starts[row + 1]
        places = inputs.characters[begin:end]
        null = null_place(places)
        found = _find(items[int(inputs.items[row])], places)
        starts[row], ends[row] = found or (null, null)
        answered[row] = float(found is not None)
    return Targets(np.arange(len(inputs) + 1), starts, ends, NONE_REAL, answered)


def null_place(places: npt.NDArray[np.int32]) -> int:
    """The token that stands for no answer."""
    return int(np.flatnonzero(places[:, 0] == NULL)[0])


def _find(item: Question, places: npt.NDArray[np.int32]) -> tuple[int, int] | None:
    """First and last token of the answer in a window, or None where it does not hold all of it."""
    if item.impossible or not item.answers or item.answers[0].start < 0:
        return None
    answer = item.answers[0]
    first, last = answer.start, answer.start + len(answer.text)
    inside = np.flatnonzero(places[:, 0] >= 0)
    if not len(inside) or places[inside[0], 0] > first or places[inside[-1], 1] < last:
        return None
    start = inside[np.searchsorted(places[inside, 1], first, side="right")]
    end = inside[np.searchsorted(places[inside, 0], last, side="left") - 1]
    return (int(start), int(end)) if start <= end else None
