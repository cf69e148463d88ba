"""A study of our own: the budget recipe with each of its ingredients taken away once (docs/recipe.md).

What stands in the place of the paper's figures are those of the pilots that the recipe was found with, losses after
twenty seconds with and without the ingredient (docs/LOG.md); nothing is judged by them.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from litebert.nn.config import EncoderConfig
from litebert_lab.study.plans import Finding, Row, Study, above_chance, worse

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


INGREDIENTS = tuple(
    Ingredient(**{**row, "words": tuple(row["words"])})
    for row in yaml.safe_load(Path(__file__).with_name("ingredients.yaml").read_text(encoding="utf-8"))
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
