"""How a run is bounded and driven: what the trainer needs to know, whatever it trains. No torch here.

Learning rate, input length and batch size change over a run as functions of progress alone. Progress goes from 0 to 1
and is measured by whatever bounds the run: steps, tokens, arithmetic or the clock. Settings are checked when they are
made.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from litebert.errors import InputError, nearest

if TYPE_CHECKING:
    from litebert.train.trainer import TrainState

Precision = Literal["bf16", "fp16", "fp32"]
OptimiserName = Literal["adamw", "lamb", "muon"]
ScheduleKind = Literal["linear", "cosine", "constant", "one-cycle", "trapezoid"]
OPTIMISERS: tuple[OptimiserName, ...] = get_args(OptimiserName)
PARTS = ("embeddings", "attention", "feed_forward", "pooler", "heads")
CYCLE_START = 1 / 25  # of the top rate, where one cycle begins

Value = TypeVar("Value")


def require(correct: bool, name: str, value: object, wanted: str) -> None:
    """An error that names a setting, its value and what it must be."""
    if not correct:
        raise InputError(f"{name} is {value} but must be {wanted}")


def check_stages(name: str, stages: Sequence[tuple[float, Value]]) -> None:
    """An error that names the setting unless its stages begin at 0 and follow each other inside the run."""
    begins = [begin for begin, _ in stages]
    if not begins or begins[0] != 0:
        raise InputError(f"{name} must have a stage from 0.0 on, such as ((0.0, 128), (0.7, 512))")
    for before, begin in pairwise(begins):
        if not before < begin < 1:
            raise InputError(f"{name} has a stage at {begin} after one at {before}; stages must rise and stay below 1")


def value_at(progress: float, stages: Sequence[tuple[float, Value]]) -> Value:
    """The value of the last stage that has begun."""
    return [value for begin, value in stages if begin <= max(progress, 0.0)][-1]


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
        if self.kind not in get_args(ScheduleKind):
            raise InputError(f"there is no schedule '{self.kind}'{nearest(self.kind, get_args(ScheduleKind))}")
        require(0 <= self.warmup < 1, "warmup", self.warmup, "a share of the run, from 0 to below 1")
        require(0 <= self.end <= 1, "end", self.end, "a share of the top rate, from 0 to 1")
        require(0 < self.decay <= 1, "decay", self.decay, "a share of the run, above 0 and at most 1")


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


@dataclass(frozen=True, kw_only=True)
class OptimiserSettings:
    """Which optimiser, and its numbers; by default those of ALBERT section 4.1.

    ``part_rates`` multiplies the rate of parts of the model, such as (("attention", 0.1), ("embeddings", 3.0)). The
    pooler's part has the order head in it, too.
    """

    name: OptimiserName = "adamw"
    rate: float | None = 1e-3  # None: by the width of the model, in fine-tuning
    rate_at_batch: int = 0  # batch tokens that the rate is for; smaller ones follow the square root; 0: any
    pooler_rate_at_width: int = 0  # up to which the pooler has the rate; wider ones less, as 1 / width; 0: any
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6
    weight_decay: float = 0.01  # never on norms and biases
    part_rates: tuple[tuple[str, float], ...] = ()
    muon_rate: float = 0.02  # of the matrices inside the blocks, where the name is muon; all else has ``rate``
    muon_momentum: float = 0.95
    clip: float = 1.0  # of the norm of all gradients; 0: none

    def __post_init__(self) -> None:
        if self.name not in OPTIMISERS:
            raise InputError(f"there is no optimiser '{self.name}'{nearest(self.name, OPTIMISERS)}")
        for name in ("rate", "muon_rate", "eps"):
            value = getattr(self, name)
            require(value is None or 0 < value < math.inf, name, value, "a number above 0")
        two = len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)
        require(two, "betas", self.betas, "two numbers from 0 to below 1, such as 0.9 and 0.999")
        require(0 <= self.weight_decay < math.inf, "weight_decay", self.weight_decay, "0 or more")
        require(0 <= self.muon_momentum < 1, "muon_momentum", self.muon_momentum, "from 0 to below 1")
        parts = [part for part, _ in self.part_rates]
        for part, factor in self.part_rates:
            if part not in PARTS:
                raise InputError(f"part_rates names the part '{part}', which no model has{nearest(part, PARTS)}")
            if parts.count(part) > 1:
                raise InputError(f"part_rates names the part '{part}' twice; give it one factor")
            require(0 <= factor < math.inf, f"the factor of {part} in part_rates", factor, "0 or more")

    def for_run(self, batch: int, width: int) -> "OptimiserSettings":
        """With rates fitted to a batch of ``batch`` tokens, and the pooler's to the width of a model."""
        assert self.rate is not None
        factor = self.batch_factor(batch)
        rates = dict(self.part_rates)
        if self.pooler_rate_at_width:
            rates.setdefault("pooler", min(1.0, self.pooler_rate_at_width / width))
        return replace(
            self,
            rate=factor * self.rate,
            muon_rate=factor * self.muon_rate,
            part_rates=tuple(rates.items()),
            rate_at_batch=0,
            pooler_rate_at_width=0,
        )

    def batch_factor(self, batch: int) -> float:
        """The share of the rates to train with on batches of ``batch`` tokens.

        It follows the square root (LAMB section 4), so that small batches do not diverge.
        """
        return min(1.0, math.sqrt(batch / self.rate_at_batch)) if self.rate_at_batch else 1.0

    def part_rate(self, part: str) -> float:
        """The factor of a part of the model."""
        return dict(self.part_rates).get(part, 1.0)


@dataclass(frozen=True, kw_only=True)
class AverageSettings:
    """Which average of the weights is kept beside those of the last step (``averaging.py``)."""

    kind: Literal["none", "ema", "uniform"] = "none"  # exponential, or all steps of the end alike
    span: float = 0.03  # share of the run: of the end that is averaged, or in which the weight of a step falls to 1/e

    def __post_init__(self) -> None:
        kinds = ("none", "ema", "uniform")
        if self.kind not in kinds:
            raise InputError(f"there is no averaging '{self.kind}'{nearest(self.kind, kinds)}")
        require(0 < self.span <= 1, "averaging.span", self.span, "a share of the run, above 0 and at most 1")


@dataclass(frozen=True, kw_only=True)
class Bound:
    """When a run ends: after a number of steps, tokens, seconds or operations, whichever is reached first.

    Operations are those of the model's arithmetic on real tokens, as ``plan`` counts them: minutes of an ideal machine.
    """

    steps: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    flops: float | None = None

    def __post_init__(self) -> None:
        given = [value for value in (self.steps, self.tokens, self.seconds, self.flops) if value is not None]
        if not given:
            raise InputError("give a budget (20m), steps (1000), tokens (1e8) or flops (1e16) to train for")
        if min(given) <= 0:
            raise InputError("budget, steps, tokens and flops must be positive")

    def progress(self, state: "TrainState", reserve: float = 0.0) -> float:
        """How much of the run is done, from 0 to 1; ``reserve`` seconds count as gone.

        The seconds before the first step belong to the budget but not to the schedule.
        """
        clock = None if self.seconds is None else max(self.seconds - state.lead, 1e-9)
        seconds = max(state.seconds + reserve - state.lead, 0.0)
        parts = ((state.step, self.steps), (state.tokens, self.tokens), (seconds, clock), (state.flops, self.flops))
        return min(1.0, max(done / total for done, total in parts if total is not None))


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """Everything about a run but what is learnt."""

    bound: Bound
    optimiser: OptimiserSettings = OptimiserSettings()
    schedule: ScheduleSettings = ScheduleSettings()
    batch_tokens: tuple[tuple[float, int], ...] = ((0.0, 1),)  # of a step over all ranks, from a share of the run on
    batch_rates: tuple[tuple[float, float], ...] = ((0.0, 1.0),)  # of the optimiser's rates, for the smaller batches
    micro_tokens: int = 1  # tokens of one forward pass on one rank; only their ratio to a step's counts
    precision: Precision = "fp32"
    half_residual: bool = False  # the residual stream in half precision, too, where the forward pass is
    compiled: bool = False
    graph_per_layer: bool = False  # compile a layer once for all depths instead of all layers for each
    checkpointing: bool = False
    cuda_graphs: bool = False  # passes recorded once for each shape and replayed: on a GPU, for fixed shapes
    sharded: bool = False  # FSDP2 instead of DDP when there are several ranks
    seed: int = 0
    held_out_every: float = 0.1  # share of the run
    score_steps: int | None = None  # steps between held-out scores instead, whatever time they take
    log_every: int = 10  # steps

    def __post_init__(self) -> None:
        check_stages("batch_tokens", self.batch_tokens)
        for _, tokens in self.batch_tokens:
            if tokens < self.micro_tokens or tokens % self.micro_tokens:
                raise InputError(
                    f"batch_tokens {tokens} is not a multiple of micro_tokens {self.micro_tokens}; choose one that is"
                )

    def micro_batches(self, progress: float) -> int:
        """Forward passes of a step over all ranks."""
        return value_at(progress, self.batch_tokens) // self.micro_tokens
