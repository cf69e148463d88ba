"""How a run is bounded and driven: what the trainer needs to know, whatever it trains.

Settings are checked when they are made. No torch here, so that recipes are shown in an instant.
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from litebert.errors import InputError, nearest
from litebert.train.schedules import ScheduleSettings, check_stages, square_root_rate, stage

if TYPE_CHECKING:
    from litebert.train.trainer import TrainState

Precision = Literal["bf16", "fp16", "fp32"]
OptimiserName = Literal["adamw", "lamb", "muon"]
OPTIMISERS: tuple[OptimiserName, ...] = ("adamw", "lamb", "muon")
PARTS = ("embeddings", "attention", "feed_forward", "pooler", "heads")


@dataclass(frozen=True, kw_only=True)
class OptimiserSettings:
    """Which optimiser, and its numbers; by default those of the paper (PAPERS.md, section 3).

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
        for name, value in (("rate", self.rate), ("muon_rate", self.muon_rate), ("eps", self.eps)):
            if value is not None and not 0 < value < math.inf:
                raise InputError(f"{name} is {value} but must be a number above 0")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(f"betas is {self.betas} but must be two numbers from 0 to below 1, such as 0.9 and 0.999")
        if not 0 <= self.weight_decay < math.inf:
            raise InputError(f"weight_decay is {self.weight_decay} but must be 0 or more")
        if not 0 <= self.muon_momentum < 1:
            raise InputError(f"muon_momentum is {self.muon_momentum} but must lie from 0 to below 1")
        self._check_part_rates()

    def _check_part_rates(self) -> None:
        seen = set()
        for part, factor in self.part_rates:
            if part not in PARTS:
                raise InputError(f"part_rates names the part '{part}', which no model has{nearest(part, PARTS)}")
            if part in seen:
                raise InputError(f"part_rates names the part '{part}' twice; give it one factor")
            if not 0 <= factor < math.inf:
                raise InputError(f"part_rates has {factor} for {part} but a factor must be 0 or more")
            seen.add(part)

    def for_run(self, batch: int, width: int) -> "OptimiserSettings":
        """With rates fitted to a batch of ``batch`` tokens, and the pooler's to the width of a model."""
        assert self.rate is not None
        factor = min(1.0, square_root_rate(1.0, self.rate_at_batch, batch)) if self.rate_at_batch else 1.0
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

    def part_rate(self, part: str) -> float:
        """The factor of a part of the model."""
        return dict(self.part_rates).get(part, 1.0)


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
            raise InputError("say how long to train: --budget 20m, --steps 1000, --tokens 1e8 or --flops 1e16")
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
    optimiser: OptimiserSettings
    schedule: ScheduleSettings
    batch_tokens: tuple[tuple[float, int], ...]  # tokens of a step over all ranks, from a share of the run on
    micro_tokens: int  # tokens of one forward pass on one rank
    precision: Precision = "fp32"
    half_residual: bool = False  # the residual stream in half precision, too, where the forward pass is
    compiled: bool = False
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
        return stage(progress, self.batch_tokens) // self.micro_tokens
