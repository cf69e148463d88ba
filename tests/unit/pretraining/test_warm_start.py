"""A recipe for a model that is trained already, and a store whose ids mean something else to it."""

import pytest

from litebert.pretraining.fitting import recipe_for_warm_start
from litebert.pretraining.recipe import read_recipe

RECIPE = read_recipe("budget", ["growth.depths=[[0,0.25],[0.4,0.5],[0.6,1.0]]", "growth.order_from=0.5"])


@pytest.mark.parametrize(
    ("trained", "depths", "order_from"),
    [
        (12, ((0.0, 1.0),), 0.0),
        (24, ((0.0, 1.0),), 0.0),
        (7, ((0.0, 1.0),), 0.5),
        (6, ((0.0, 0.5), (0.6, 1.0)), 0.5),
        (3, ((0.0, 0.25), (0.4, 0.5), (0.6, 1.0)), 0.5),
        (1, ((0.0, 0.25), (0.4, 0.5), (0.6, 1.0)), 0.5),
    ],
)
def test_depth_grows_from_the_trained_one_on(trained, depths, order_from):
    found = recipe_for_warm_start(RECIPE, 12, trained)
    assert (found.growth.depths, found.growth.order_from) == (depths, order_from)


def test_what_was_asked_for_stays():
    found = recipe_for_warm_start(RECIPE, 12, 12, fixed={"growth.depths", "growth.order_from"})
    assert (found.growth.depths, found.growth.order_from) == (RECIPE.growth.depths, RECIPE.growth.order_from)


def test_a_model_without_growth_only_has_its_losses_at_once():
    found = recipe_for_warm_start(read_recipe("budget", ["growth.depths=[]", "growth.order_from=0.5"]), 12, 12)
    assert (found.growth.depths, found.growth.order_from) == ((), 0.0)
