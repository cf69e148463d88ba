"""How a run is bounded and driven: what the one loop needs to know, whatever it trains."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from litebert.errors import InputError
from litebert.train.optimiser_settings import OptimiserSettings
from litebert.train.schedules import ScheduleSettings, check_stages, stage

if TYPE_CHECKING:
    from litebert.train.place import Place

Precision = Literal["bf16", "fp16", "fp32"]


@dataclass(frozen=True, kw_only=True)
class Bound:
    """When a run ends: after so many steps, tokens, seconds or operations, whichever is given (or reached first).

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
            raise InputError("a budget, a number of steps, of tokens or of operations must be more than nothing")

    def progress(self, place: "Place", reserve: float = 0.0) -> float:
        """How much of the run is done, from 0 to 1; ``reserve`` seconds count as gone.

        The seconds before the first step belong to the budget but not to the schedule.
        """
        clock = None if self.seconds is None else max(self.seconds - place.lead, 1e-9)
        seconds = max(place.seconds + reserve - place.lead, 0.0)
        parts = ((place.step, self.steps), (place.tokens, self.tokens), (seconds, clock), (place.flops, self.flops))
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
    narrow: bool = False  # the residual stream in half precision, too, where the forward pass is
    compiled: bool = False
    checkpointing: bool = False
    clip: float = 1.0
    recorded: bool = False  # passes recorded once for each shape and played back: on a GPU, for fixed shapes
    sharded: bool = False  # FSDP2 instead of DDP when there are several ranks
    seed: int = 0
    save_seconds: float = 300.0
    save_steps: int | None = None
    save_ends: bool = True  # also before the first step and after the last, not only on the way and when stopped
    keep: int = 2
    held_out_every: float = 0.1  # share of the run
    score_steps: int | None = None  # held-out scores after every so many steps instead, whatever time they take
    log_every: int = 10
    rollbacks: int = 3

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
