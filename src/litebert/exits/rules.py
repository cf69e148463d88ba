"""When to leave: by patience (so many heads in a row agree) or by confidence (a head is sure enough). No torch.

D depths, N inputs, L labels.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Rule = Literal["depth", "patience", "confidence"]
THRESHOLDS = (0.6, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999, 0.9999, 0.99999)  # heads are often too sure of themselves


@dataclass(frozen=True)
class Leaving:
    """The depth (N), counted from 1, at which each input leaves by a rule."""

    rule: Rule
    value: float
    depths: Integers

    @property
    def mean_depth(self) -> float:
        return float(self.depths.mean())


def at_depth(num_depths: int, count: int, depth: int) -> Leaving:
    """All at one depth."""
    assert 1 <= depth <= num_depths
    return Leaving("depth", depth, np.full(count, depth, np.int64))


def by_patience(same: npt.NDArray[np.bool_], patience: int) -> Leaving:
    """Where ``patience`` heads in a row have given one answer; ``same`` (D - 1, N): as the head before it."""
    run = np.ones(same.shape[1], np.int64)
    depths = np.zeros(same.shape[1], np.int64)
    for depth in range(1, len(same) + 2):
        if depth > 1:
            run = np.where(same[depth - 2], run + 1, 1)
        depths = np.where((depths == 0) & (run >= patience), depth, depths)
    return Leaving("patience", patience, np.where(depths == 0, len(same) + 1, depths))


def by_confidence(shares: Floats, threshold: float) -> Leaving:
    """Where a head first gives ``threshold`` or more to its answer; ``shares`` (D, N) is what each gives its own."""
    sure = shares >= threshold
    sure[-1] = True  # there is no head after the last
    return Leaving("confidence", threshold, sure.argmax(0).astype(np.int64) + 1)


def leavings(answers: Floats, shares: Floats | None, apart: float) -> list[Leaving]:
    """Every rule at every setting. Numbers (D, N) within ``apart`` are one answer; they have no ``shares``."""
    num_depths, count = answers.shape
    same = np.abs(np.diff(answers, axis=0)) <= apart
    found = [at_depth(num_depths, count, depth) for depth in range(1, num_depths + 1)]
    found += [by_patience(same, patience) for patience in range(2, num_depths + 1)]
    if shares is not None:
        found += [by_confidence(shares.copy(), threshold) for threshold in THRESHOLDS]
    return found
