"""A pretraining recipe: every choice that the paper makes or varies, as YAML. No torch here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from litebert.config import build, parse_overrides, preset_names, read_preset
from litebert.errors import InputError, nearest
from litebert.train.optimiser_settings import OptimiserName, OptimiserSettings
from litebert.train.schedules import ScheduleKind, ScheduleSettings, check_stages, square_root_rate


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to pretrain. Stages are pairs of a share of the run and the value from there on."""

    about: str = ""
    order: Literal["sop", "nsp", "none"] = "sop"
    masking: Literal["ngram", "whole-word", "plain"] = "ngram"
    mask_rate: float = 0.15
    lengths: tuple[tuple[float, int], ...] = ((0.0, 512),)
    batch_tokens: tuple[tuple[float, int], ...] = ((0.0, 65_536),)
    micro_tokens: int = 0  # of one forward pass; 0: what suits the device
    optimiser: OptimiserName = "adamw"
    rate: float = 1e-3
    rate_at_batch: int = 0  # batch tokens that the rate is for, others following the square root; 0: any
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6
    weight_decay: float = 0.01
    part_rates: tuple[tuple[str, float], ...] = ()
    muon_rate: float = 0.02
    muon_momentum: float = 0.95
    clip: float = 1.0
    schedule: ScheduleKind = "linear"
    warmup: float = 0.025
    end: float = 0.0
    steps: int | None = None  # the recipe's own length, where no budget is given
    model: tuple[str, ...] = ()  # fields of the preset that the recipe changes, such as dropout=0

    def __post_init__(self) -> None:
        check_stages("lengths", self.lengths)
        check_stages("batch_tokens", self.batch_tokens)
        if not 0 < self.mask_rate < 1:
            raise InputError(f"mask_rate is {self.mask_rate} but must lie between 0 and 1, such as 0.15")

    def optimiser_settings(self) -> OptimiserSettings:
        """The optimiser, its rate fitted to the batch."""
        batch = max(tokens for _, tokens in self.batch_tokens)
        rate = square_root_rate(self.rate, self.rate_at_batch, batch) if self.rate_at_batch else self.rate
        return OptimiserSettings(
            name=self.optimiser,
            rate=rate,
            betas=self.betas,
            eps=self.eps,
            weight_decay=self.weight_decay,
            part_rates=self.part_rates,
            muon_rate=self.muon_rate,
            muon_momentum=self.muon_momentum,
        )

    def schedule_settings(self) -> ScheduleSettings:
        """The shape of the rate over the run."""
        return ScheduleSettings(kind=self.schedule, warmup=self.warmup, end=self.end)


def read_recipe(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """A named recipe with ``field=value`` words applied."""
    if name not in preset_names("recipes"):
        raise InputError(f"there is no recipe '{name}'{nearest(name, preset_names('recipes'))}")
    return build(Recipe, {**read_preset("recipes", name), **parse_overrides(overrides)})


RECIPE_FIELDS = frozenset(Recipe.__dataclass_fields__)
