"""The steps since the last line: what they lost, kept on the device until a line is due, and how fast they went."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import torch
from torch import Tensor


@dataclass(frozen=True)
class Lost:
    """One step's losses, still on the device."""

    step: int
    stage: int  # the number of the stage it belongs to
    tokens: int  # of the whole batch
    counts: Mapping[str, float]  # items of each part in the whole batch
    weights: Mapping[str, float]  # of the parts of the loss
    sums: Mapping[str, Tensor]  # loss and right, of each part
    norm: Tensor


@dataclass
class Stretch:
    """A stretch of a run from one line to the next."""

    steps: list[Lost] = field(default_factory=list)
    waited: float = 0.0  # seconds, for batches
    flops: float = 0.0  # arithmetic of this rank
    begun: float = field(default_factory=lambda: time.monotonic())

    def speed(self, peak: float) -> dict[str, float]:
        """Tokens a second, the share of the time spent waiting, and of ``peak`` operations a second, where known."""
        seconds = max(time.monotonic() - self.begun, 1e-9)
        tokens = sum(lost.tokens for lost in self.steps)
        speed = {"tokens_per_second": tokens / seconds, "waiting": self.waited / seconds}
        return {**speed, "mfu": self.flops / seconds / peak} if self.flops else speed


def read_losses(steps: Sequence[Lost], total: Callable[[Sequence[float]], list[float]]) -> list[dict[str, float]]:
    """A row of figures for each step, summed over the ranks by ``total``; the host waits for the device here."""
    names = list(steps[0].sums)
    table = torch.stack([torch.cat([step.sums[name] for name in names]) for step in steps]).tolist()
    norms = torch.stack([step.norm.float() for step in steps]).tolist()
    return [
        {**_figures(step, names, total(numbers)), "gradient_norm": norm}
        for step, numbers, norm in zip(steps, table, norms, strict=True)
    ]


def _figures(step: Lost, names: Sequence[str], numbers: Sequence[float]) -> dict[str, float]:
    row: dict[str, float] = {}
    for place, name in enumerate(names):
        count = step.counts[name]
        if not count:  # no pair of sentences in this batch, say: nothing was lost, nothing gained
            continue
        row[f"{name}_loss"] = numbers[2 * place] / count
        if not math.isnan(numbers[2 * place + 1]):  # there is no right or wrong in regression
            row[f"{name}_accuracy"] = numbers[2 * place + 1] / count
    row["loss"] = sum(step.weights.get(name, 1.0) * row.get(f"{name}_loss", 0.0) for name in names)
    return row


def mean_row(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of every figure over the rows that have it."""
    return {name: fmean(row[name] for row in rows if name in row) for row in rows for name in row}
