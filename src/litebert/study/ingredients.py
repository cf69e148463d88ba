"""A study of our own: the budget recipe with each of its ingredients taken away once (docs/recipe.md).

What stands in the place of the paper's figures are those of the pilots that the recipe was found with, losses after
twenty seconds with and without the ingredient (docs/LOG.md); nothing is judged by them.
"""

from dataclasses import dataclass, replace

from litebert.nn.config import EncoderConfig
from litebert.study.plans import Finding, Row, Study, above_chance, worse

WHOLE = "whole"


@dataclass(frozen=True, kw_only=True)
class Ingredient:
    """Something in the recipe, and how to do without it."""

    name: str
    claim: str
    without: str  # what is there in its place
    words: tuple[str, ...]
    pilot: str
    metric: str = "mlm_loss"  # what it is there for


INGREDIENTS = (
    Ingredient(
        name="outputs",
        claim="Smaller output matrices at the start help.",
        without="outputs as large as usual",
        words=("initial.output_scale=1.0",),
        pilot="4.97, without 5.33",
    ),
    Ingredient(
        name="bias",
        claim="Starting from word frequencies helps.",
        without="output bias at zero",
        words=("initial.unigram_bias=false",),
        pilot="4.97, without 5.47",
    ),
    Ingredient(
        name="positions",
        claim="Positions that start as waves help.",
        without="random positions",
        words=("initial.positions=random",),
        pilot="4.97, without 6.04",
    ),
    Ingredient(
        name="keys",
        claim="Keys that start as the queries help.",
        without="keys drawn apart",
        words=("initial.keys=null",),
        pilot="4.97, without 5.23",
    ),
    Ingredient(
        name="muon",
        claim="Muon helps.",
        without="AdamW 4e-4 for everything",
        words=("optimiser.name=adamw", "optimiser.rate=4e-4"),
        pilot="4.97, without 5.82",
    ),
    Ingredient(
        name="growth",
        claim="Growing depth helps.",
        without="full depth throughout",
        words=("growth.depths=[]",),
        pilot="4.26, without 5.32",
    ),
    Ingredient(
        name="masking",
        claim="Masking 30% helps.",
        without="15% masked",
        words=("mask_rate=0.15",),
        pilot="5.00, without 5.32",
    ),
    Ingredient(
        name="late-order",
        claim="The order loss only later helps.",
        without="order loss from the start",
        words=("growth.order_from=0.0",),
        pilot="5.14 with none at all, from the start 5.32",
    ),
    Ingredient(
        name="pooler",
        claim="A slow pooler lets sentence order be learnt.",
        without="pooler as fast as the rest",
        words=("optimiser.pooler_rate_at_width=0",),
        pilot="NSP of a small model 62%, at six times the rate 50%",
        metric="sop_accuracy",
    ),
    Ingredient(
        name="pull",
        claim="An order loss that keeps its pull is learnt.",
        without="order pulls as it happens to",
        words=("order_grad_ratio=0",),
        pilot="sentence order in 53% of cases, without 48%",
        metric="sop_accuracy",
    ),
)
NOTHING = Ingredient(
    name="plain",
    claim="The recipe as a whole helps.",
    without="none of it: as others do",
    words=tuple(word for ingredient in INGREDIENTS for word in ingredient.words),
    pilot="3.93, without 7.00",
)


def recipe_study(_encoder: EncoderConfig) -> Study:
    """The whole recipe, then without each ingredient, then without any."""
    taken = (*INGREDIENTS, NOTHING)
    return Study(
        name="recipe",
        about="what carries the budget recipe: each ingredient taken away once",
        table="",
        rows=(
            Row(name=WHOLE, label="the whole recipe", words=()),
            *(Row(name=each.name, label=each.without, words=each.words) for each in taken),
        ),
        findings=tuple(map(_finding, taken)),
        ranked=True,
    )


def _finding(each: Ingredient) -> Finding:
    """The claim that the whole recipe is better than the one without."""
    if each.metric == "mlm_loss":
        return replace(worse(each.claim, each.name, WHOLE, paper=each.pilot), whose="pilots")
    return Finding(
        text=each.claim,
        weights={WHOLE: 1.0, each.name: -1.0},
        metric=each.metric,
        paper=each.pilot,
        whose="pilots",
        needs=(above_chance("The whole recipe learns it.", WHOLE, each.metric),),
    )
