"""How to fine-tune: the paper's settings for each task and settings for small machines, as YAML. No torch here.

``paper`` and ``budget`` differ in nothing but numbers. What a recipe leaves open follows from the model and the data.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from litebert.config import build, changed, merged, nested, parse_overrides, preset_names, read_preset
from litebert.errors import InputError
from litebert.nn.config import EncoderConfig
from litebert.tasks.examples import Kind
from litebert.train.settings import OptimiserSettings, ScheduleSettings

SettingsName = Literal["paper", "budget"]
SHARED = {"race-middle": "race", "race-high": "race"}  # tasks with the settings of another

# Default learning rates by the largest width they are for: smaller models may learn faster.
RATES = ((256, 1e-4), (512, 5e-5), (768, 3e-5), (1024, 2e-5), (4096, 1e-5))
RISKY_RATE = {1024: 2e-5, 2048: 1e-5, 4096: 1e-5}  # the most for models known to fail, by width
RISKY_WARMUP = 0.06
USUAL_LENGTH = 256  # most tokens of an input by default, for models that read no more than 512
EPOCHS = ((1_000, 10.0), (10_000, 5.0), (math.inf, 3.0))  # by the largest number of examples they are for
OPTIMISER = OptimiserSettings(rate=None)
SCHEDULE = ScheduleSettings(warmup=0.1)


@dataclass(frozen=True, kw_only=True)
class FinetuneRecipe:
    """Every choice of a fine-tuning run. None leaves it to the model and the data."""

    about: str = ""
    batch: int = 32
    epochs: float | None = None
    steps: int | None = None  # counts before epochs
    max_steps: int | None = None  # where epochs count
    optimiser: OptimiserSettings = OPTIMISER
    schedule: ScheduleSettings = SCHEDULE
    warmup_steps: int | None = None  # counts before ``schedule.warmup``
    length: int | None = None
    stride: int = 128
    dropout: float | None = None
    classifier_dropout: float | None = None
    scores: int = 8  # dev scores of a run at the least; once an epoch where that is more
    score_items: int = 0  # the most items of dev that count on the way; 0: all
    patience: int = 0  # scores without a better one after which the run ends; 0: never
    restarts: int = 3  # after a collapse
    restart_factor: float = 0.5  # of the rate
    answerable: bool = True  # a head of its own for whether there is an answer, where some questions have none
    scale: float = 20.0  # of cosines, where a text is told from others in its batch (embed)

    RENAMED: ClassVar[dict[str, str]] = {
        "most_steps": "max_steps",
        **{name: f"optimiser.{name}" for name in ("rate", "weight_decay", "betas", "eps", "clip")},
        "schedule": "schedule.kind",
        "warmup": "schedule.warmup",
        "end": "schedule.end",
    }

    def __post_init__(self) -> None:
        for name, least in (("batch", 1), ("scores", 1), ("score_items", 0), ("patience", 0), ("restarts", 0)):
            if getattr(self, name) < least:
                raise InputError(f"{name} is {getattr(self, name)} but must be {least} or more")
        if not 0 < self.scale < math.inf:
            raise InputError(f"scale is {self.scale:g} but must be a number above 0, such as 20")
        rate = self.optimiser.rate
        if rate is not None and not 0 < rate < 1:
            raise InputError(f"optimiser.rate is {rate} but must be a small number above 0, such as 3e-5")
        if self.optimiser.rate_at_batch or self.optimiser.pooler_rate_at_width:
            raise InputError(
                "optimiser.rate_at_batch and optimiser.pooler_rate_at_width are for pretraining; leave them out"
            )
        for name in ("epochs", "steps"):
            if getattr(self, name) is not None and getattr(self, name) <= 0:
                raise InputError(f"{name} is {getattr(self, name)} but must be more than 0")


def read_finetune_recipe(
    settings: SettingsName, task: str, kind: Kind, overrides: Sequence[str] = ()
) -> FinetuneRecipe:
    """The paper's recipe for a task, or that for small machines, with ``field=value`` words applied."""
    folder = f"finetune/{settings}"
    names = preset_names(folder)
    if settings == "paper":
        name = SHARED.get(task, task)
        if name not in names:
            raise InputError(f"the paper has no recipe for {task}; use budget, or a task of {', '.join(names)}")
    else:
        name = kind if kind in names else "any"
    asked = nested(FinetuneRecipe, parse_overrides(overrides), notice=True)
    if "epochs" in asked:
        asked = {"steps": None, **asked}  # of the preset; the user asks for epochs
    return build(FinetuneRecipe, merged(nested(FinetuneRecipe, read_preset(folder, name)), asked))


def settled(
    recipe: FinetuneRecipe, encoder: EncoderConfig, *, units: int, longest: int, most: int = USUAL_LENGTH
) -> tuple[FinetuneRecipe, list[str]]:
    """The recipe with nothing left open, and what was changed to keep the model from failing.

    ``units`` is how many examples there are, ``longest`` how many tokens the longer ones have, ``most`` the most tokens
    of an input where the recipe does not name a length.
    """
    notes: list[str] = []
    usual_rate = next(rate for width, rate in RATES if encoder.width <= width or width == RATES[-1][0])
    rate = recipe.optimiser.rate or usual_rate
    length = encoder.input_limit(recipe.length or max(32, min(longest, most)))
    steps = recipe.steps
    if steps is None:
        epochs = recipe.epochs or next(epochs for most, epochs in EPOCHS if units <= most)
        steps = max(1, math.ceil(epochs * math.ceil(units / recipe.batch)))
        if recipe.max_steps and steps > recipe.max_steps:
            notes.append(f"{epochs:g} epochs would be {steps:,} steps; {recipe.max_steps:,} are done (max_steps)")
            steps = recipe.max_steps
    warmup = recipe.schedule.warmup if recipe.warmup_steps is None else min(recipe.warmup_steps / steps, 0.5)
    if known_to_fail(encoder):
        safe = next((rate for width, rate in RISKY_RATE.items() if encoder.width <= width), min(RISKY_RATE.values()))
        if rate > safe:
            notes.append(f"a model of this shape is known to collapse at a rate of {rate:g}; training with {safe:g}")
            rate = safe
        if warmup < RISKY_WARMUP:
            notes.append(f"a model of this shape needs a warm-up: {RISKY_WARMUP:.0%} of the run")
            warmup = RISKY_WARMUP
    settings = {"optimiser.rate": rate, "schedule.warmup": warmup, "warmup_steps": None}
    return changed(recipe, {**settings, "length": length, "steps": steps}), notes


def known_to_fail(encoder: EncoderConfig) -> bool:
    """Large models with shared layers: they are known to fall to chance at random when fine-tuned."""
    shares = encoder.num_feed_forward_blocks < encoder.num_layers
    return shares and encoder.width >= 1024
