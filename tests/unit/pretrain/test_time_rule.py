"""A recipe carried to the time there is: batches for enough steps, growth by steps, and what was asked for as asked."""

from dataclasses import asdict, replace

import pytest

from litebert.nn.families import preset_config
from litebert.pretrain.fitting import LEAST_BATCH, as_noted, fitted, in_words
from litebert.pretrain.recipe import Recipe, read_recipe
from litebert.runs import read_run, write_run
from litebert.train.settings import Bound

BASE = preset_config("albert-base")
STEPS = ("least_steps=1500", "most_steps=12000", "found_at_steps=4000", f"found_at_tokens={4000 * 32768}")
RECIPE = read_recipe(
    "budget",
    [
        *("batch_tokens=[[0.0, 32768]]", "rate_at_batch=32768", *STEPS),
        *("depths=[[0,0.25],[0.4,0.5],[0.6,1.0]]", "order_from=0.5", "weight_decay=0.1"),
    ],
)


def batch(bound: Bound, peak: float = 1e15, recipe: Recipe = RECIPE) -> int:
    return fitted(recipe, BASE, bound, peak).batch_tokens[0][1]


def test_enough_tokens_keep_the_batch():
    assert batch(Bound(tokens=1500 * 32768)) == 32768
    assert batch(Bound(tokens=12_000 * 32768)) == 32768
    assert batch(Bound(seconds=330), peak=8e14) == 32768


def test_fewer_tokens_halve_it_until_there_are_enough_steps():
    assert batch(Bound(tokens=1500 * 32768 - 1)) == 16384
    assert batch(Bound(tokens=1500 * 4096)) == 4096
    assert batch(Bound(flops=1e15)) == LEAST_BATCH


def test_more_tokens_double_it_and_leave_the_rates():
    longer = fitted(replace(RECIPE, found_at_steps=0), BASE, Bound(tokens=40_000 * 32768), 1e15)
    assert longer.batch_tokens == ((0.0, 131_072),)
    assert longer.optimiser_settings(768).muon_rate == RECIPE.muon_rate
    assert batch(Bound(tokens=40_000 * 32768), recipe=replace(RECIPE, most_steps=0)) == 32768


def test_a_slow_machine_takes_the_least_batch():
    assert batch(Bound(seconds=60), peak=1e11) == LEAST_BATCH


def test_steps_are_taken_at_their_word():
    assert batch(Bound(steps=10)) == batch(Bound(steps=100_000)) == 32768
    assert batch(Bound(tokens=1), recipe=replace(RECIPE, least_steps=0)) == 32768


def test_stages_shrink_together_and_the_rates_follow():
    recipe = replace(RECIPE, batch_tokens=((0.0, 8192), (0.5, 16384)), rate_at_batch=16384)
    smaller = fitted(recipe, BASE, Bound(tokens=1500 * 2048), 1e15)
    assert smaller.batch_tokens == ((0.0, 2048), (0.5, 4096))
    before, after = recipe.optimiser_settings(768), smaller.optimiser_settings(768)
    assert after.rate == pytest.approx(before.rate / 2)
    assert after.muon_rate == pytest.approx(before.muon_rate / 2)


def test_a_longer_run_grows_by_as_many_steps_at_lower_rates():
    assert fitted(RECIPE, BASE, Bound(steps=4000), 1e15) == RECIPE
    longer = fitted(RECIPE, BASE, Bound(steps=16_000), 1e15)
    assert [begin for begin, _ in longer.depths] == pytest.approx([0.0, 0.1, 0.15])
    assert [depth for _, depth in longer.depths] == [0.25, 0.5, 1.0]
    assert (longer.order_from, longer.weight_decay) == pytest.approx((0.125, 0.025))
    assert longer.rate == pytest.approx(RECIPE.rate / 2) and longer.muon_rate == pytest.approx(RECIPE.muon_rate / 2)
    by_tokens = fitted(RECIPE, BASE, Bound(tokens=8000 * 32768), 1e15)
    assert by_tokens.weight_decay == pytest.approx(0.05)
    assert fitted(replace(RECIPE, found_at_steps=0), BASE, Bound(steps=16_000), 1e15).weight_decay == 0.1


def test_the_rate_falls_after_as_many_tokens():
    """Not steps: small batches have hardly begun when they have taken as many."""
    assert fitted(RECIPE, BASE, Bound(steps=16_000), 1e15).decay == pytest.approx(0.85)
    small = replace(RECIPE, batch_tokens=((0.0, 2048),))
    assert fitted(small, BASE, Bound(steps=16_000), 1e15).decay == RECIPE.decay == 0.4
    assert fitted(small, BASE, Bound(steps=128_000), 1e15).decay == pytest.approx(0.7)
    large = fitted(RECIPE, BASE, Bound(tokens=40_000 * 32768), 1e15)
    assert (large.batch_tokens, large.decay) == (((0.0, 131_072),), pytest.approx(0.94))
    assert fitted(replace(RECIPE, found_at_tokens=0), BASE, Bound(steps=16_000), 1e15).decay == 0.4


def test_what_was_asked_for_stays():
    bound = Bound(tokens=40_000 * 32768)
    kept = fitted(RECIPE, BASE, bound, 1e15, fixed={"batch_tokens", "depths", "weight_decay", "decay"})
    assert (kept.batch_tokens, kept.depths, kept.weight_decay) == (RECIPE.batch_tokens, RECIPE.depths, 0.1)
    assert kept.decay == RECIPE.decay
    assert kept.order_from == pytest.approx(0.05)


def test_a_resumed_run_goes_on_as_it_was_begun(tmp_path):
    begun = fitted(RECIPE, BASE, Bound(tokens=40_000 * 32768), 1e15)
    write_run(tmp_path, "pretrain", {"recipe": asdict(begun)})
    assert as_noted(RECIPE, read_run(tmp_path)) == begun
    assert as_noted(RECIPE, read_run(tmp_path), fixed={"depths"}).depths == RECIPE.depths
    assert as_noted(RECIPE, None) == RECIPE
    plain = replace(RECIPE, found_at_steps=0, found_at_tokens=0, least_steps=0, most_steps=0)  # fits itself to nothing
    assert as_noted(plain, read_run(tmp_path)) == plain


def test_what_changed_is_told_in_words_that_ask_for_it():
    longer = fitted(RECIPE, BASE, Bound(tokens=40_000 * 32768), 1e15)
    words = in_words(RECIPE, longer)
    assert words.startswith("batch_tokens=131072 depths=[[0.0,0.25],[0.16,0.5],[0.24,1.0]] order_from=0.2 rate=0.00")
    again = fitted(read_recipe("budget", words.split()), BASE, Bound(steps=1), 1e15)
    assert [begin for begin, _ in again.depths] == pytest.approx([begin for begin, _ in longer.depths])
    assert again.depths[-1][1] == 1.0 and isinstance(again.depths[-1][1], float)  # all layers, not one
    assert again.batch_tokens == longer.batch_tokens
    assert again.rate == pytest.approx(longer.rate, rel=1e-2)
    assert in_words(RECIPE, RECIPE) == ""
