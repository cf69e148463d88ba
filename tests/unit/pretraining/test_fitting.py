"""A recipe carried to the time there is: batches for enough steps, growth by steps, and what was asked for as asked."""

from dataclasses import asdict

import pytest

from litebert.config import changed
from litebert.nn.config import preset_config
from litebert.pretraining.fitting import BATCHES, MIN_BATCH, as_recorded, describe_changes, fitted
from litebert.pretraining.recipe import Recipe, read_recipe
from litebert.runs import read_run, write_run
from litebert.train.settings import Bound

BASE = preset_config("albert-base")
STEPS = (
    "batches.min_steps=1500",
    "batches.max_steps=12000",
    "reference_steps=4000",
    f"reference_tokens={4000 * 32768}",
)
RECIPE = read_recipe(
    "budget",
    [
        *("batches.tokens=[[0.0, 32768]]", "optimiser.rate_at_batch=32768", *STEPS),
        *("growth.depths=[[0,0.25],[0.4,0.5],[0.6,1.0]]", "growth.order_from=0.5", "optimiser.weight_decay=0.1"),
    ],
)


def batch(bound: Bound, peak: float = 1e15, recipe: Recipe = RECIPE) -> int:
    return fitted(recipe, BASE, bound, peak).batches.tokens[0][1]


def test_enough_tokens_keep_the_batch():
    assert batch(Bound(tokens=1500 * 32768)) == 32768
    assert batch(Bound(tokens=12_000 * 32768)) == 32768
    assert batch(Bound(seconds=330), peak=8e14) == 32768


def test_fewer_tokens_halve_it_until_there_are_enough_steps():
    assert batch(Bound(tokens=1500 * 32768 - 1)) == 16384
    assert batch(Bound(tokens=1500 * 4096)) == 4096
    assert batch(Bound(flops=1e15)) == MIN_BATCH


def test_more_tokens_double_it_and_leave_the_rates():
    longer = fitted(changed(RECIPE, {"reference_steps": 0}), BASE, Bound(tokens=40_000 * 32768), 1e15)
    assert longer.batches.tokens == ((0.0, 131_072),)
    assert longer.optimiser_for(768).muon_rate == RECIPE.optimiser.muon_rate
    assert batch(Bound(tokens=40_000 * 32768), recipe=changed(RECIPE, {"batches.max_steps": 0})) == 32768


def test_a_slow_machine_takes_the_least_batch():
    assert batch(Bound(seconds=60), peak=1e11) == MIN_BATCH


def test_steps_are_taken_at_their_word():
    assert batch(Bound(steps=10)) == batch(Bound(steps=100_000)) == 32768
    assert batch(Bound(tokens=1), recipe=changed(RECIPE, {"batches.min_steps": 0})) == 32768


def test_stages_shrink_together_and_the_rates_follow():
    recipe = changed(RECIPE, {"batches.tokens": ((0.0, 8192), (0.5, 16384)), "optimiser.rate_at_batch": 16384})
    smaller = fitted(recipe, BASE, Bound(tokens=1500 * 2048), 1e15)
    assert smaller.batches.tokens == ((0.0, 2048), (0.5, 4096))
    before, after = recipe.optimiser_for(768), smaller.optimiser_for(768)
    assert after.rate == pytest.approx(before.rate / 2)
    assert after.muon_rate == pytest.approx(before.muon_rate / 2)


def test_a_longer_run_grows_by_as_many_steps_at_lower_rates():
    assert fitted(RECIPE, BASE, Bound(steps=4000), 1e15) == RECIPE
    longer = fitted(RECIPE, BASE, Bound(steps=16_000), 1e15)
    assert [begin for begin, _ in longer.growth.depths] == pytest.approx([0.0, 0.1, 0.15])
    assert [depth for _, depth in longer.growth.depths] == [0.25, 0.5, 1.0]
    assert (longer.growth.order_from, longer.optimiser.weight_decay) == pytest.approx((0.125, 0.025))
    assert longer.optimiser.rate == pytest.approx(
        RECIPE.optimiser.rate / 2
    ) and longer.optimiser.muon_rate == pytest.approx(RECIPE.optimiser.muon_rate / 2)
    by_tokens = fitted(RECIPE, BASE, Bound(tokens=8000 * 32768), 1e15)
    assert by_tokens.optimiser.weight_decay == pytest.approx(0.05)
    assert (
        fitted(changed(RECIPE, {"reference_steps": 0}), BASE, Bound(steps=16_000), 1e15).optimiser.weight_decay == 0.1
    )


def test_the_rate_falls_after_as_many_tokens():
    """Not steps: small batches have hardly begun when they have taken as many."""
    assert fitted(RECIPE, BASE, Bound(steps=16_000), 1e15).schedule.decay == pytest.approx(0.85)
    small = changed(RECIPE, {"batches.tokens": ((0.0, 2048),)})
    assert fitted(small, BASE, Bound(steps=16_000), 1e15).schedule.decay == RECIPE.schedule.decay == 0.4
    assert fitted(small, BASE, Bound(steps=128_000), 1e15).schedule.decay == pytest.approx(0.7)
    large = fitted(RECIPE, BASE, Bound(tokens=40_000 * 32768), 1e15)
    assert (large.batches.tokens, large.schedule.decay) == (((0.0, 131_072),), pytest.approx(0.94))
    assert fitted(changed(RECIPE, {"reference_tokens": 0}), BASE, Bound(steps=16_000), 1e15).schedule.decay == 0.4


def test_what_was_asked_for_stays():
    bound = Bound(tokens=40_000 * 32768)
    kept = fitted(
        RECIPE, BASE, bound, 1e15, fixed={BATCHES, "growth.depths", "optimiser.weight_decay", "schedule.decay"}
    )
    assert (kept.batches.tokens, kept.growth.depths, kept.optimiser.weight_decay) == (
        RECIPE.batches.tokens,
        RECIPE.growth.depths,
        0.1,
    )
    assert kept.schedule.decay == RECIPE.schedule.decay
    assert kept.growth.order_from == pytest.approx(0.05)


def test_a_resumed_run_goes_on_as_it_was_begun(tmp_path):
    begun = fitted(RECIPE, BASE, Bound(tokens=40_000 * 32768), 1e15)
    write_run(tmp_path, "pretrain", {"recipe": asdict(begun)})
    assert as_recorded(RECIPE, read_run(tmp_path)) == begun
    assert as_recorded(RECIPE, read_run(tmp_path), fixed={"growth.depths"}).growth.depths == RECIPE.growth.depths
    assert as_recorded(RECIPE, None) == RECIPE
    plain = changed(
        RECIPE, {"reference_steps": 0, "reference_tokens": 0, "batches.min_steps": 0, "batches.max_steps": 0}
    )  # fits itself to nothing
    assert as_recorded(plain, read_run(tmp_path)) == plain


def test_what_changed_is_told_in_words_that_ask_for_it():
    longer = fitted(RECIPE, BASE, Bound(tokens=40_000 * 32768), 1e15)
    words = describe_changes(RECIPE, longer)
    assert words.startswith(
        "batches.tokens=131072 growth.depths=[[0.0,0.25],[0.16,0.5],[0.24,1.0]] growth.order_from=0.2 optimiser.rate=0"
    )
    again = fitted(read_recipe("budget", words.split()), BASE, Bound(steps=1), 1e15)
    assert [begin for begin, _ in again.growth.depths] == pytest.approx([begin for begin, _ in longer.growth.depths])
    assert again.growth.depths[-1][1] == 1.0 and isinstance(again.growth.depths[-1][1], float)  # all layers, not one
    assert again.batches.tokens == longer.batches.tokens
    assert again.optimiser.rate == pytest.approx(longer.optimiser.rate, rel=1e-2)
    assert describe_changes(RECIPE, RECIPE) == ""


def test_scoring_passes_take_from_the_tokens_there_are():
    """Two of twelve layers, forward only, over ten times the tokens: more than half as much as training itself."""
    mined = changed(RECIPE, {"select.kind": "hard-rows", "select.share": 0.1})
    bound = Bound(flops=1e16)
    assert batch(bound, recipe=mined) < batch(bound) == batch(bound, recipe=changed(mined, {"select.by": "frequency"}))
