"""How the rate, the length of inputs and the batch change over a run, as functions of progress alone.

Progress goes from 0 to 1 and is measured by whatever bounds the run: steps, tokens, arithmetic or the clock.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeVar

from litebert.errors import InputError, nearest

ScheduleKind = Literal["linear", "cosine", "constant", "one-cycle", "trapezoid"]
KINDS: tuple[ScheduleKind, ...] = ("linear", "cosine", "constant", "one-cycle", "trapezoid")
CYCLE_START = 1 / 25  # of the top rate, where one cycle begins

Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class ScheduleSettings:
    """The shape of the rate; by default the paper's: 3,125 of 125,000 steps up, then straight down to 0.

    ``one-cycle`` goes up and down along half cosines from a 25th of the top rate; ``constant`` stays at the top;
    ``trapezoid`` stays there until the last ``decay`` of the run and then goes straight down.
    """

    kind: ScheduleKind = "linear"
    warmup: float = 3125 / 125_000  # share of the run
    end: float = 0.0  # share of the top rate at the end
    decay: float = 0.3  # share of the run in which a trapezoid goes down

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"there is no schedule '{self.kind}'{nearest(self.kind, KINDS)}")
        if not 0 <= self.warmup < 1:
            raise InputError(f"warmup is {self.warmup} but must be a share of the run, from 0 to below 1")
        if not 0 <= self.end <= 1:
            raise InputError(f"end is {self.end} but must be a share of the top rate, from 0 to 1")
        if not 0 < self.decay <= 1:
            raise InputError(f"decay is {self.decay} but must be a share of the run, above 0 and at most 1")


def rate_factor(progress: float, settings: ScheduleSettings) -> float:
    """The share of the top rate to train with; progress beyond 1 (a clock overrun) counts as 1."""
    progress, warmup, end = min(max(progress, 0.0), 1.0), settings.warmup, settings.end
    if progress < warmup:
        up = progress / warmup
        return CYCLE_START + (1 - CYCLE_START) * _half_cosine(1 - up) if settings.kind == "one-cycle" else up
    # From the top at the end of the warm-up. The released code decays from step 0 on and so jumps down at that point.
    down = (progress - warmup) / (1 - warmup)
    match settings.kind:
        case "constant":
            return 1.0
        case "linear":
            return 1 - (1 - end) * down
        case "trapezoid":
            return 1 - (1 - end) * min(1.0, max(0.0, 1 - (1 - progress) / min(settings.decay, 1 - warmup)))
        case "cosine" | "one-cycle":
            return end + (1 - end) * _half_cosine(down)


def _half_cosine(share: float) -> float:
    """From 1 at 0 down to 0 at 1."""
    return (1 + math.cos(math.pi * share)) / 2


def square_root_rate(rate: float, reference_batch: float, batch: float) -> float:
    """The rate for another batch: it follows the square root (LAMB section 4), so small batches do not diverge."""
    if min(rate, reference_batch, batch) <= 0:
        raise InputError(f"a rate ({rate}) and batches ({reference_batch}, {batch}) must be above 0")
    return rate * math.sqrt(batch / reference_batch)


def check_stages(name: str, stages: Sequence[tuple[float, Value]]) -> None:
    """An error that names the setting unless its stages begin at 0 and follow each other inside the run."""
    begins = [begin for begin, _ in stages]
    if not begins or begins[0] != 0:
        raise InputError(f"{name} must have a stage from 0.0 on, such as ((0.0, 128), (0.7, 512))")
    for before, begin in pairwise(begins):
        if not before < begin < 1:
            raise InputError(f"{name} has a stage at {begin} after one at {before}; stages must rise and stay below 1")


def stage(progress: float, stages: Sequence[tuple[float, Value]]) -> Value:
    """The value in force: that of the last stage that has begun."""
    return [value for begin, value in stages if begin <= max(progress, 0.0)][-1]
