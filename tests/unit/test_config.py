"""Settings that nest: dotted names, presets that hold differences, old names, and what is refused."""

from dataclasses import asdict

import pytest

from litebert import config
from litebert.config import build, changed, field_names, flat, merged, nested, value_of
from litebert.errors import InputError
from litebert.pretraining.recipe import Recipe, read_recipe
from litebert.tasks.recipes import FinetuneRecipe, read_finetune_recipe


def test_dotted_words_change_one_field_of_a_group():
    recipe = read_recipe("budget", ["optimiser.rate=2e-3", "schedule.warmup=0.1"])
    usual = read_recipe("budget")
    assert (recipe.optimiser.rate, recipe.schedule.warmup) == (2e-3, 0.1)
    assert recipe == changed(usual, {"optimiser.rate": 2e-3, "schedule.warmup": 0.1})
    assert value_of(recipe, "optimiser.betas") == usual.optimiser.betas == (0.9, 0.98)


def test_old_names_are_read_and_noticed_once_each(messages):
    config._notice.cache_clear()
    old = ["rate=2e-3", "optimiser=adamw", "schedule=cosine", "depths=0.5", "initial_keys=2", "least_steps=7"]
    new = ["optimiser.rate=2e-3", "optimiser.name=adamw", "schedule.kind=cosine", "growth.depths=0.5"]
    assert read_recipe("budget", old) == read_recipe("budget", [*new, "initial.keys=2", "batches.min_steps=7"])
    assert len(messages) == len(old)
    assert messages[0] == "rate is called optimiser.rate now; the old name works until the next release"
    messages.clear()
    assert read_recipe("budget", old) and not messages
    words = ["rate=1e-4", "warmup=0.2", "most_steps=5", "clip=0.5"]
    recipe = read_finetune_recipe("budget", "tickets", "classify", words)
    assert (recipe.optimiser.rate, recipe.schedule.warmup, recipe.max_steps, recipe.optimiser.clip) == (
        1e-4,
        0.2,
        5,
        0.5,
    )
    assert len(messages) == 3  # the rate was named before


@pytest.mark.parametrize("cls", [Recipe, FinetuneRecipe])
def test_every_old_name_leads_to_a_field_and_notes_are_read_back(cls):
    assert set(cls.RENAMED.values()) <= field_names(cls)
    assert build(cls, asdict(cls())) == cls() == build(cls, flat(cls()))


def test_nesting_keeps_what_is_beside():
    assert merged({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}, "d": 4}) == {"a": {"b": 3, "c": 2}, "d": 4}
    assert nested(Recipe, {"optimiser": {"name": "lamb"}, "rate": 1.0}) == {"optimiser": {"name": "lamb", "rate": 1.0}}


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("optimiser.rat=1", r"unknown field 'optimiser\.rat'; did you mean 'optimiser\.rate'"),
        ("warmpu=1", r"unknown field 'warmpu'; did you mean 'schedule\.warmup'"),
        ("growth=3", r"growth is '3' but has fields of its own; write growth\.depths="),
        ("optimiser.rate=fast", r"optimiser\.rate is 'fast' but must be a number"),
        ("optimiser.rate=null", r"optimiser\.rate is null but must be a number"),
        ("schedule=wavy", r"schedule\.kind is 'wavy' but must be one of"),
    ],
)
def test_what_is_refused(word, says):
    with pytest.raises(InputError, match=says):
        read_recipe("budget", [word])
