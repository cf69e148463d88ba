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
    objective: Literal["masked", "replaced", "all-tokens"] = "masked"  # others from the moment of full depth on
    generator_depth: int | float = 4  # layers, or a share of them, that guess masked words for all layers to judge
    replaced_weight: float = 50.0  # of what all layers lose on the guesses, beside 1 for the generator's own loss
    masked_every: int = 8  # one sequence in so many keeps its masks, which all layers fill; 0: none
    fixed_embeddings: bool = False  # whether the generator alone moves the embeddings
    masking: Literal["ngram", "whole-word", "plain"] = "ngram"
    mask_rate: float = 0.15
    edges: Literal["masking", "pairs"] = "masking"  # under sop, what beginnings and ends of documents are for
    eval_masking: Literal["ngram", "whole-word", "plain"] = "plain"  # of held-out text, always at 15%
    order_from: float = 0.0  # share of the run from which the order loss counts
    order_pull: float = 0.0  # of the order loss at the layers, as a multiple of masked words'; 0: as it happens to be
    lengths: tuple[tuple[float, int], ...] = ((0.0, 512),)
    depths: tuple[tuple[float, int | float], ...] = ()  # layers (3) or a share of them (0.25); empty: always all
    elastic: bool = False  # every step also trains a random shallower depth
    batch_tokens: tuple[tuple[float, int], ...] = ((0.0, 65_536),)
    least_steps: int = 0  # that a budget must hold: batches are halved until it does; 0: never
    most_steps: int = 0  # that a budget may hold: batches are doubled until it does not hold more; 0: never
    found_at_steps: int = 0  # longer runs grow and begin order after as many steps, with lower rates; 0: as they are
    found_at_tokens: int = 0  # in runs of more the rate falls after as many tokens; 0: as ``decay`` has it
    micro_tokens: int = 0  # of one forward pass; 0: what suits the device
    optimiser: OptimiserName = "adamw"
    rate: float = 1e-3
    rate_at_batch: int = 0  # batch tokens that the rate is for; smaller ones follow the square root; 0: any
    pooler_rate_at_width: int = 0  # up to which the pooler has the rate; wider ones less, as 1 / width; 0: any
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
    decay: float = 0.3  # share of the run in which a trapezoid goes down
    initial_output_scale: float | Literal["depth"] = 1.0  # of the matrices that write to the residual stream
    initial_unigram_bias: bool = False  # the masked-LM bias begins with the frequencies of words
    initial_positions: Literal["random", "sinusoid"] = "random"
    initial_position_std: float | None = None
    initial_keys: float | None = None  # keys begin as the queries, both scaled by this; none: drawn apart
    initial_embedding_std: float | None = None  # of the token table
    initial_projection_std: float | None = None  # of the map from the embedding width to the width
    steps: int | None = None  # the recipe's own length, where no budget is given
    model: tuple[str, ...] = ()  # fields of the preset that the recipe changes, such as dropout=0

    def __post_init__(self) -> None:
        check_stages("lengths", self.lengths)
        check_stages("batch_tokens", self.batch_tokens)
        if not 0 < self.mask_rate < 1:
            raise InputError(f"mask_rate is {self.mask_rate} but must lie between 0 and 1, such as 0.15")
        if self.objective != "masked" and self.elastic:
            raise InputError(
                f"elastic goes with objective masked only, not with {self.objective}; leave one of both out"
            )
        if self.replaced_weight <= 0:
            raise InputError(f"replaced_weight is {self.replaced_weight} but must be above 0, such as 50")
        if self.masked_every < 0 or self.masked_every == 1:
            raise InputError(f"masked_every is {self.masked_every} but must be 0 (none), or 2 or more")
        if not 0 <= self.order_from < 1:
            raise InputError(f"order_from is {self.order_from} but must be a share of the run, from 0 to below 1")
        if self.order_pull < 0:
            raise InputError(f"order_pull is {self.order_pull} but must be 0 or more, such as 1")
        if self.depths:
            check_stages("depths", self.depths)
        for _, depth in self.depths:
            if depth <= 0 or (isinstance(depth, float) and depth > 1):
                raise InputError(f"depths has {depth} but must have layers such as 3, or shares of all such as 0.25")
        for name in ("output_scale", "position_std", "keys", "embedding_std", "projection_std"):
            value = getattr(self, f"initial_{name}")
            if isinstance(value, float) and value <= 0:
                raise InputError(f"initial_{name} is {value} but must be above 0")

    def optimiser_settings(self, width: int) -> OptimiserSettings:
        """The optimiser, its rate fitted to the batch, and the pooler's to the width of a model."""
        batch = max(tokens for _, tokens in self.batch_tokens)
        factor = min(1.0, square_root_rate(1.0, self.rate_at_batch, batch)) if self.rate_at_batch else 1.0
        rates = dict(self.part_rates)
        if self.pooler_rate_at_width:
            rates.setdefault("pooler", min(1.0, self.pooler_rate_at_width / width))
        return OptimiserSettings(
            name=self.optimiser,
            rate=factor * self.rate,
            betas=self.betas,
            eps=self.eps,
            weight_decay=self.weight_decay,
            part_rates=tuple(rates.items()),
            muon_rate=factor * self.muon_rate,
            muon_momentum=self.muon_momentum,
        )

    def schedule_settings(self) -> ScheduleSettings:
        """The shape of the rate over the run."""
        return ScheduleSettings(kind=self.schedule, warmup=self.warmup, end=self.end, decay=self.decay)

    def when_stuck(self) -> str:
        """What to try when a run stays at word frequencies: what the recipe has not, or else what it needs."""
        if self.optimiser == "muon" and self.initial_unigram_bias:
            return (
                "Give it more time or, where there is none, a smaller vocabulary (8,000 pieces suit a CPU), a smaller "
                f"model, or half the rates: rate={self.rate / 2:.2g} muon_rate={self.muon_rate / 2:.2g}"
            )
        return (
            "Try the budget recipe, shorter inputs first, another rate (three times lower, then higher; lower for the "
            "shared blocks than for the embeddings), layers that start shallow and grow, or the order loss only later"
        )


def read_recipe(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """A named recipe with ``field=value`` words applied."""
    if name not in preset_names("recipes"):
        raise InputError(f"there is no recipe '{name}'{nearest(name, preset_names('recipes'))}")
    asked = parse_overrides(overrides)
    stages = {field: [[0, asked[field]]] for field in STAGED if isinstance(asked.get(field), int | float)}
    return build(Recipe, {**read_preset("recipes", name), **asked, **stages})


STAGED = ("lengths", "batch_tokens", "depths")  # a plain number is one stage, from the beginning to the end
RECIPE_FIELDS = frozenset(Recipe.__dataclass_fields__)
