"""Recipes: the paper's numbers, what follows from model and data, and the guard for models known to fail."""

import pytest

from litebert.errors import InputError
from litebert.nn.config import preset_config
from litebert.tasks.recipes import known_to_fail, read_finetune_recipe, settled

# Task, rate, batch, dropout, steps, warm-up, length: ALBERT's table of hyperparameters.
PAPER = [
    ("cola", 1e-5, 16, 0, 5336, 320, 512),
    ("stsb", 2e-5, 16, 0, 3598, 214, 512),
    ("sst2", 1e-5, 32, 0, 20935, 1256, 512),
    ("mnli", 3e-5, 128, 0, 10000, 1000, 512),
    ("qnli", 1e-5, 32, 0, 33112, 1986, 512),
    ("qqp", 5e-5, 128, 0.1, 14000, 1000, 512),
    ("rte", 3e-5, 32, 0.1, 800, 200, 512),
    ("mrpc", 2e-5, 32, 0, 800, 200, 512),
    ("wnli", 2e-5, 16, 0.1, 2000, 250, 512),
    ("squad1", 5e-5, 48, 0, 3649, 365, 384),
    ("squad2", 3e-5, 48, 0, 8144, 814, 512),
    ("race-middle", 2e-5, 32, 0.1, 12000, 1000, 512),
]


@pytest.mark.parametrize("row", PAPER, ids=lambda row: row[0])
def test_the_papers_settings(row):
    task, rate, batch, dropout, steps, warmup, length = row
    recipe = read_finetune_recipe("paper", task, "classify")
    found = (recipe.optimiser.rate, recipe.batch, recipe.dropout, recipe.steps, recipe.warmup_steps, recipe.length)
    assert found == (rate, batch, dropout, steps, warmup, length) and recipe.classifier_dropout == 0.1
    whole, notes = settled(recipe, preset_config("albert-base-v2"), units=10_000, longest=60)
    assert whole.steps == steps and abs(whole.schedule.warmup * steps - warmup) < 1e-6 and not notes


def test_what_is_left_open_follows_from_model_and_data():
    recipe = read_finetune_recipe("budget", "tickets", "classify")
    small, _ = settled(recipe, preset_config("albert-tiny"), units=600, longest=40)
    large, _ = settled(recipe, preset_config("bert-base"), units=600, longest=4000)
    assert small.optimiser.rate > large.optimiser.rate and small.length == 40 and large.length == 256
    assert small.steps == 10 * 19
    many, notes = settled(recipe, preset_config("bert-base"), units=400_000, longest=40)
    assert many.steps == 6000 and "max_steps" in notes[0]


def test_models_known_to_fail_are_guarded():
    risky = preset_config("albert-xxlarge-v2")
    assert known_to_fail(risky) and not known_to_fail(preset_config("bert-large"))
    recipe = read_finetune_recipe("paper", "qqp", "classify", ["warmup_steps=0"])
    whole, notes = settled(recipe, risky, units=10_000, longest=60)
    assert whole.optimiser.rate == 1e-5 and whole.schedule.warmup == 0.06 and len(notes) == 2
    assert settled(recipe, preset_config("bert-large"), units=10_000, longest=60)[0].optimiser.rate == 5e-5


def test_what_is_refused():
    with pytest.raises(InputError, match="are for pretraining"):
        read_finetune_recipe("budget", "tickets", "classify", ["optimiser.rate_at_batch=64"])
    with pytest.raises(InputError, match="no recipe for tickets"):
        read_finetune_recipe("paper", "tickets", "classify")
    with pytest.raises(InputError, match=r"did you mean 'optimiser\.rate'"):
        read_finetune_recipe("budget", "tickets", "classify", ["rat=1"])
    with pytest.raises(InputError, match="rate is 3"):
        read_finetune_recipe("budget", "tickets", "classify", ["optimiser.rate=3"])


def test_epochs_win_over_the_steps_of_a_preset():
    assert read_finetune_recipe("paper", "sst2", "classify").steps == 20935
    asked = read_finetune_recipe("paper", "sst2", "classify", ["epochs=1.5"])
    assert (asked.epochs, asked.steps) == (1.5, None)
    assert read_finetune_recipe("paper", "sst2", "classify", ["epochs=1.5", "steps=7"]).steps == 7
