"""Batches that fit the time: enough steps where they can be had, as asked elsewhere."""

from dataclasses import asdict, replace

import pytest

from litebert.nn.families import preset_config
from litebert.pretrain.batch_rule import LEAST_BATCH, with_enough_steps, with_noted_batches
from litebert.pretrain.recipe import Recipe, read_recipe
from litebert.runs import read_run, write_run
from litebert.train.settings import Bound

BASE = preset_config("albert-base")
RECIPE = read_recipe("budget", ["least_steps=1500", "batch_tokens=[[0.0, 32768]]", "rate_at_batch=32768"])


def batch(bound: Bound, peak: float = 1e15, recipe: Recipe = RECIPE) -> int:
    return with_enough_steps(recipe, BASE, bound, peak).batch_tokens[0][1]


def test_enough_tokens_keep_the_batch():
    assert batch(Bound(tokens=1500 * 32768)) == 32768
    assert batch(Bound(seconds=330), peak=8e14) == 32768


def test_fewer_tokens_halve_it_until_there_are_enough_steps():
    assert batch(Bound(tokens=1500 * 32768 - 1)) == 16384
    assert batch(Bound(tokens=1500 * 4096)) == 4096
    assert batch(Bound(flops=1e18)) == 32768 and batch(Bound(flops=1e15)) == LEAST_BATCH


def test_a_slow_machine_takes_the_least_batch():
    assert batch(Bound(seconds=60), peak=1e11) == LEAST_BATCH


def test_steps_are_taken_at_their_word():
    assert batch(Bound(steps=10)) == 32768
    assert batch(Bound(tokens=1), recipe=replace(RECIPE, least_steps=0)) == 32768


def test_stages_shrink_together_and_the_rates_follow():
    recipe = replace(RECIPE, batch_tokens=((0.0, 8192), (0.5, 16384)), rate_at_batch=16384)
    smaller = with_enough_steps(recipe, BASE, Bound(tokens=1500 * 2048), 1e15)
    assert smaller.batch_tokens == ((0.0, 2048), (0.5, 4096))
    before, after = recipe.optimiser_settings(), smaller.optimiser_settings()
    assert after.rate == pytest.approx(before.rate / 2)
    assert after.muon_rate == pytest.approx(before.muon_rate / 2)


def test_a_resumed_run_has_the_batches_it_began_with(tmp_path):
    begun = replace(RECIPE, batch_tokens=((0.0, 4096),))
    write_run(tmp_path, "pretrain", {"recipe": asdict(begun)})
    assert with_noted_batches(RECIPE, read_run(tmp_path)) == begun
    assert with_noted_batches(RECIPE, None) == RECIPE
