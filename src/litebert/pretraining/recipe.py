"""A pretraining recipe: every choice that the paper makes or varies, as YAML. No torch here.

Depth may grow along a run, for models whose layers share their blocks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import ClassVar, Literal

from litebert import config
from litebert.errors import InputError, nearest
from litebert.nn.config import EncoderConfig
from litebert.train.settings import AverageSettings, OptimiserSettings, ScheduleSettings, check_stages, require


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """How long inputs and how large batches are. Stages are pairs of a share of the run and the value from there on."""

    tokens: tuple[tuple[float, int], ...] = ((0.0, 65_536),)
    lengths: tuple[tuple[float, int], ...] = ((0.0, 512),)
    parts: tuple[float, ...] = ()  # of the run for each store, where there are several; empty: the same for all
    micro_tokens: int = 0  # of one forward pass; 0: what suits the device
    min_document: int = 0  # tokens of a document; shorter ones are left out
    min_steps: int = 0  # that a budget must hold: batches are halved until it does; 0: any
    max_steps: int = 0  # that a budget may hold: batches are doubled until it does not hold more; 0: any

    def __post_init__(self) -> None:
        for name, stages in (("batches.lengths", self.lengths), ("batches.tokens", self.tokens)):
            check_stages(name, stages)
            require(min(value for _, value in stages) > 0, name, stages, "above 0")
        require(self.min_document >= 0, "batches.min_document", self.min_document, "0 or more, such as 512")
        require(min(self.parts, default=1.0) > 0, "batches.parts", self.parts, "shares above 0, such as [0.5,0.3,0.2]")


@dataclass(frozen=True, kw_only=True)
class Growth:
    """What comes in along the way."""

    depths: tuple[tuple[float, int | float], ...] = ()  # layers (3) or a share of them (0.25); empty: always all
    order_from: float = 0.0  # share of the run from which the order loss counts

    def __post_init__(self) -> None:
        wanted = "a share of the run, from 0 to below 1"
        require(0 <= self.order_from < 1, "growth.order_from", self.order_from, wanted)
        if self.depths:
            check_stages("growth.depths", self.depths)
        for _, depth in self.depths:
            if depth <= 0 or (isinstance(depth, float) and depth > 1):
                raise InputError(
                    f"growth.depths has {depth} but must have layers such as 3, or shares of all such as 0.25"
                )


@dataclass(frozen=True, kw_only=True)
class InitialValues:
    """What a fresh network begins with (``initial.py``)."""

    output_scale: float | Literal["depth"] = 1.0  # of the matrices that write to the residual stream
    unigram_bias: bool = False  # the masked-LM bias begins with the frequencies of words
    positions: Literal["random", "sinusoid"] = "random"
    position_std: float | None = None
    keys: float | None = None  # keys begin as the queries, both scaled by this; none: drawn apart
    embedding_std: float | None = None  # of the token table
    projection_std: float | None = None  # of the map from the embedding width to the width

    def __post_init__(self) -> None:
        for name in ("output_scale", "position_std", "keys", "embedding_std", "projection_std"):
            value = getattr(self, name)
            require(not isinstance(value, float) or value > 0, f"initial.{name}", value, "above 0")


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which of more candidates than a step holds are learnt from (``mining.py``)."""

    kind: Literal["none", "hard-tokens", "hard-rows"] = "none"  # what is chosen: words to mask, or whole inputs
    by: Literal["loss", "frequency", "repeats"] = "loss"  # the score: a shallow pass's loss, rarity, only repeated text
    share: float = 0.5  # of the candidates that is kept
    depth: int = 2  # layers of the pass that scores by loss
    draw: Literal["hardest", "weighted"] = "hardest"  # weighted: by chance, with weights that undo it
    discount_repeats: bool = True  # text that the store has several times counts once in all

    def __post_init__(self) -> None:
        require(0 < self.share < 1, "select.share", self.share, "between 0 and 1, such as 0.5")
        require(self.depth > 0, "select.depth", self.depth, "1 layer or more")
        if self.by == "repeats" and not self.discount_repeats:
            raise InputError("select.by=repeats needs select.discount_repeats=true; leave out one of the two")

    @property
    def passes(self) -> float:
        """Tokens that the scoring pass reads for each token that is trained on."""
        if self.kind == "none" or self.by != "loss":
            return 0.0
        return 1 / self.share if self.kind == "hard-rows" else 1.0


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How to pretrain."""

    about: str = ""
    order: Literal["sop", "nsp", "none"] = "sop"
    order_grad_ratio: float = 0.0  # gradient of the order loss at the layers over that of masked words; 0: unscaled
    masking: Literal["ngram", "whole-word", "plain"] = "ngram"
    mask_rate: float | tuple[tuple[float, float], ...] = 0.15  # all along, or in stages
    edges: Literal["masking", "pairs"] = "masking"  # under sop, what beginnings and ends of documents are for
    eval_masking: Literal["ngram", "whole-word", "plain"] = "plain"  # of held-out text, always at 15%
    elastic: bool = False  # every step also trains a random shallower depth
    objective: Literal["masked", "replaced", "all-tokens", "permutation"] = "masked"  # two begin at full depth only
    generator_depth: int | float = 4  # layers, or a share of them, that fill the masks for all layers to judge
    replaced_weight: float = 50.0  # of the loss of all layers on these guesses, beside 1 for the generator's own loss
    masked_every: int = 8  # one sequence in N keeps its masks, which all layers fill; 0: none
    fixed_embeddings: bool = False  # whether only the generator's loss trains the embeddings
    select: Selection = Selection()
    batches: BatchPlan = BatchPlan()
    growth: Growth = Growth()
    optimiser: OptimiserSettings = field(default_factory=OptimiserSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    averaging: AverageSettings = field(default_factory=AverageSettings)
    initial: InitialValues = InitialValues()
    steps: int | None = None  # the recipe's own length, where no budget is given
    reference_steps: int = 0  # longer runs keep the absolute step of growth, at lower rates; 0: off
    reference_tokens: int = 0  # longer runs keep the absolute token count at which the rate starts to fall; 0: off
    model: tuple[str, ...] = ()  # fields of the preset that the recipe changes, such as dropout=0

    RENAMED: ClassVar[dict[str, str]] = {
        "order_pull": "order_grad_ratio",
        "found_at_steps": "reference_steps",
        "found_at_tokens": "reference_tokens",
        "batch_tokens": "batches.tokens",
        "lengths": "batches.lengths",
        "micro_tokens": "batches.micro_tokens",
        "least_steps": "batches.min_steps",
        "most_steps": "batches.max_steps",
        "depths": "growth.depths",
        "order_from": "growth.order_from",
        "optimiser": "optimiser.name",
        "schedule": "schedule.kind",
        **{each.name: f"optimiser.{each.name}" for each in fields(OptimiserSettings) if each.name != "name"},
        **{each.name: f"schedule.{each.name}" for each in fields(ScheduleSettings) if each.name != "kind"},
        **{f"initial_{each.name}": f"initial.{each.name}" for each in fields(InitialValues)},
    }

    def __post_init__(self) -> None:
        check_stages("mask_rate", self.mask_rates)
        for _, rate in self.mask_rates:
            require(0 < rate < 1, "mask_rate", rate, "between 0 and 1, such as 0.15")
        require(self.order_grad_ratio >= 0, "order_grad_ratio", self.order_grad_ratio, "0 or more, such as 1")
        require(self.replaced_weight > 0, "replaced_weight", self.replaced_weight, "above 0, such as 50")
        several = self.masked_every == 0 or self.masked_every > 1
        require(several, "masked_every", self.masked_every, "0 (none), or 2 or more")
        require(self.optimiser.rate is not None, "optimiser.rate", "null", "a number, such as 1e-3")
        if self.objective != "masked" and self.elastic:
            raise InputError(f"elastic needs objective=masked, not {self.objective}; leave out one of the two")
        if self.select.kind != "none":
            self._check_selection()

    def _check_selection(self) -> None:
        kind, rate = f"select.kind={self.select.kind}", self.highest_mask_rate / self.select.share
        if self.objective != "masked" or self.elastic:
            other = "elastic" if self.elastic else f"objective={self.objective}"
            raise InputError(f"{kind} chooses for plain masked LM, not for {other}; leave out one of the two")
        if self.select.kind == "hard-tokens" and rate >= 1:
            raise InputError(
                f"mask_rate {self.highest_mask_rate} and select.share {self.select.share} would mask {rate:.0%} of all "
                "tokens as candidates; choose a lower rate or a larger share"
            )

    @property
    def mask_rates(self) -> tuple[tuple[float, float], ...]:
        """The stages of the mask rate."""
        return self.mask_rate if isinstance(self.mask_rate, tuple) else ((0.0, self.mask_rate),)

    @property
    def highest_mask_rate(self) -> float:
        """The rate that buffers and memory must have room for."""
        return max(rate for _, rate in self.mask_rates)

    def optimiser_for(self, width: int) -> OptimiserSettings:
        """The optimiser, its rate fitted to the batch, and the pooler's to the width of a model."""
        return self.optimiser.for_run(max(tokens for _, tokens in self.batches.tokens), width)

    def batch_rates(self) -> tuple[tuple[float, float], ...]:
        """The share of the optimiser's rates that goes with each stage of the batch."""
        sizes, factor = self.batches.tokens, self.optimiser.batch_factor
        largest = factor(max(size for _, size in sizes))
        return tuple((begin, factor(size) / largest) for begin, size in sizes)

    def when_stuck(self) -> str:
        """What to try when a run stays at word frequencies: what the recipe has not, or else what it needs."""
        rate, muon_rate = self.optimiser.rate, self.optimiser.muon_rate
        if self.optimiser.name == "muon" and self.initial.unigram_bias and rate is not None:
            return (
                "Give it more time or, where there is none, a smaller vocabulary (8,000 pieces suit a CPU), a smaller "
                f"model, or half the rates: optimiser.rate={rate / 2:.2g} optimiser.muon_rate={muon_rate / 2:.2g}"
            )
        return (
            "Try the budget recipe, shorter inputs first, another rate (three times lower, then higher; lower for the "
            "shared blocks than for the embeddings), layers that start shallow and grow, or the order loss only later"
        )


def layers_of(depth: int | float, num_layers: int) -> int:
    """A depth of a recipe in layers: an integer as it is, a fraction as that share of all, at least one layer."""
    if isinstance(depth, float):
        return max(1, round(depth * num_layers))
    if depth > num_layers:
        raise InputError(
            f"growth.depths asks for {depth} layers, but the model has {num_layers}; use shares such as 0.25"
        )
    return depth


def depth_stages(recipe: Recipe, encoder: EncoderConfig) -> tuple[tuple[float, int], ...]:
    """The stages of depth in layers; one at full depth where the recipe has none."""
    stages = tuple((begin, layers_of(depth, encoder.num_layers)) for begin, depth in recipe.growth.depths)
    for _, depth in stages:
        if not trains_all(encoder, depth):
            raise InputError(
                f"growth.depths runs only the first {depth} of {encoder.num_layers} layers at first; later ones have "
                "blocks of their own that would come in untrained: leave depths out (growth.depths=[]) or share all"
            )
    return stages or ((0.0, encoder.num_layers),)


def generator_layers(recipe: Recipe, encoder: EncoderConfig) -> int:
    """The number of layers that fill the masks for others to judge; 0 where the objective has no such."""
    if recipe.objective in ("masked", "permutation"):
        return 0
    depth = recipe.generator_depth
    layers = layers_of(depth, encoder.num_layers) if isinstance(depth, float) else depth
    if not 0 < layers < encoder.num_layers:
        raise InputError(
            f"generator_depth is {depth} but must be at least 1 and fewer than the model's {encoder.num_layers} "
            "layers; a third of them is a good choice"
        )
    return layers


def with_suitable_growth(recipe: Recipe, encoder: EncoderConfig) -> Recipe:
    """The recipe, its growing depth left out where the model has blocks that would come in untrained."""
    layers = encoder.num_layers
    grows = all(trains_all(encoder, layers_of(depth, layers)) for _, depth in recipe.growth.depths)
    return recipe if grows else config.changed(recipe, {"growth.depths": ()})


def trains_all(encoder: EncoderConfig, depth: int) -> bool:
    """Whether the first ``depth`` layers use every block of the plan."""
    shallow, plan = encoder.plan[:depth], encoder.plan
    return all({blocks[kind] for blocks in shallow} == {blocks[kind] for blocks in plan} for kind in (0, 1))


def read_recipe(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """A named recipe with ``field=value`` words applied."""
    if name not in config.preset_names("recipes"):
        raise InputError(f"there is no recipe '{name}'{nearest(name, config.preset_names('recipes'))}")
    preset = config.nested(Recipe, config.read_preset("recipes", name))
    asked = config.nested(Recipe, config.parse_overrides(overrides), notice=True)
    return config.build(Recipe, config.merged(preset, asked))


def is_recipe_word(word: str) -> bool:
    """Whether ``field=value`` is for a recipe, under its name of today or an old one."""
    return word.partition("=")[0] in RECIPE_FIELDS


RECIPE_FIELDS = config.field_names(Recipe) | Recipe.RENAMED.keys()
