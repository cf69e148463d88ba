"""Divergence and plateaus on planted curves."""

import json
import math

import numpy as np
import pytest

from litebert.train.callbacks import DivergenceGuard, StuckWatch


def healthy_curve(seed: int, steps: int = 2000) -> np.ndarray:
    """From 10.4 through a plateau at 7.1 (of any length) down to 3 or so, with the noise of small batches."""
    draw = np.random.default_rng(seed)
    step = np.arange(steps)
    leave = draw.uniform(100, 1500)
    curve = 3 + 4.1 / (1 + np.exp((step - leave) / 60)) + 4.0 * np.exp(-step / 20)
    noise = draw.uniform(0.02, 0.5)
    spikes = (draw.random(steps) < 0.005) * draw.exponential(3.0, steps)
    return curve + noise * draw.standard_normal(steps) + spikes


def first_alarm(losses, guard=None) -> int | None:
    guard = guard or DivergenceGuard()
    return next((step for step, loss in enumerate(losses) if guard.observe(step, float(loss), 1.0)), None)


@pytest.mark.parametrize("seed", range(20))
def test_no_false_alarm_on_noisy_healthy_curves(seed):
    assert first_alarm(healthy_curve(seed)) is None


@pytest.mark.parametrize("seed", range(20))
def test_no_false_alarm_in_fine_tuning(seed):
    """Losses of batches of 16 around 0.3 that fall to 0.05, some of them above 1."""
    draw = np.random.default_rng(seed)
    level = 0.05 + 0.6 * np.exp(-np.arange(1000) / 200)
    assert first_alarm(draw.gamma(2.0, level / 2)) is None


@pytest.mark.parametrize("seed", range(20))
def test_explosion_is_found_within_a_few_steps(seed):
    losses = healthy_curve(seed)
    begin = 1600
    losses[begin:] = losses[begin - 20 : begin].mean() + 0.5 * (np.arange(len(losses) - begin) + 1)
    found = first_alarm(losses)
    assert found is not None and begin <= found <= begin + 20


def test_return_to_the_plateau_is_an_explosion():
    losses = np.r_[healthy_curve(1)[:1900], np.full(50, 7.1)]
    found = first_alarm(losses)
    assert found is not None and 1900 <= found < 1910


def test_slow_explosion():
    losses = np.r_[np.full(100, 3.5), 3.5 + 0.01 * np.arange(1000)]
    found = first_alarm(losses)
    assert found is not None and losses[found] < 4.6


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_are_found_at_once(bad):
    assert "loss" in DivergenceGuard().observe(0, bad, 1.0)
    assert "gradient" in DivergenceGuard().observe(0, 10.0, bad)
    assert DivergenceGuard().observe(0, 10.0, None) is None


def test_rise_in_the_first_steps_is_allowed():
    assert first_alarm(np.r_[np.linspace(10.4, 12.0, 30), np.linspace(12.0, 7.0, 100)]) is None


def test_explosion_in_the_first_steps_is_found():
    found = first_alarm(np.r_[np.full(12, 10.4), 10.4 * 1.2 ** np.arange(60)])
    assert found is not None and found < 30


def test_sentence_says_where_and_from_what():
    guard = DivergenceGuard()
    said = [guard.observe(step, loss, 1.0) for step, loss in enumerate([3.0] * 30 + [9.0] * 8)][-1]
    assert said == "the loss has exploded: 9.000 at step 37, and for 8 steps far above the 3.000 that it had reached"


def test_reset_accepts_a_new_level():
    guard = DivergenceGuard()
    assert first_alarm([3.0] * 50, guard) is None
    guard.reset()
    assert first_alarm([7.0] * 50, guard) is None


@pytest.mark.parametrize("cut", [0, 5, 300, 1603])
def test_state_goes_on_as_if_nothing_had_happened(cut):
    losses = np.r_[healthy_curve(2)[:1600], np.full(20, 9.0)]
    straight = first_alarm(losses)
    before, after = DivergenceGuard(), DivergenceGuard()
    assert first_alarm(losses[:cut], before) is None
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    assert first_alarm(losses[cut:], after) + cut == straight
    assert 1600 <= straight < 1610


def run_to_the_end(losses, entropy=7.1):
    watch, said = StuckWatch(entropy, "Try more."), []
    for step, loss in enumerate(losses):
        sentence = watch.observe(float(loss), step / len(losses))
        said += [(step, sentence)] if sentence else []
    return said


@pytest.mark.parametrize("level", [7.2, 7.04, 6.6])
def test_plateau_is_told_once(level):
    noise = 0.3 * np.random.default_rng(0).standard_normal(1000)
    [(step, sentence)] = run_to_the_end(level + noise)
    assert 350 <= step < 380
    assert "7.10" in sentence and sentence.endswith("Try more.")


def test_a_run_that_leaves_the_plateau_is_left_alone():
    step = np.arange(1000)
    noise = 0.3 * np.random.default_rng(0).standard_normal(1000)
    assert run_to_the_end(3.3 + 3.8 / (1 + np.exp((step - 250) / 20)) + noise) == []


@pytest.mark.parametrize("end", [0.7, 0.8, 0.9])
def test_a_short_run_that_is_leaving_the_plateau_is_given_time(end):
    """It falls, but is not below the level yet when a third of the run is over."""
    done = np.arange(400) / 400
    noise = 0.1 * np.random.default_rng(1).standard_normal(400)
    losses = 7.8 - 2.6 * np.clip(done / end, 0, 1) + noise  # at 6.39, nine tenths of 7.1, after 54% of the way
    assert losses[140] > 6.39 and run_to_the_end(losses) == []


def test_a_loss_that_falls_too_slowly_is_told_late():
    done = np.arange(1000) / 1000
    [(step, _)] = run_to_the_end(9.5 - 3.0 * done)
    assert 750 <= step < 760


def test_a_plateau_after_a_fall_is_told_a_tenth_of_the_run_later():
    done = np.arange(1000) / 1000
    [(step, _)] = run_to_the_end(np.where(done < 0.45, 9.5 - 5 * done, 7.2))
    assert 500 <= step <= 620


@pytest.mark.parametrize("cut", [0.05, 0.33, 0.5])
def test_stuck_is_remembered(cut):
    done = np.arange(1000) / 1000
    losses = np.where(done < 0.45, 9.5 - 5 * done, 7.2)
    [(told, _)] = run_to_the_end(losses)
    watch, said = StuckWatch(7.1, "Try more."), []
    for step, loss in enumerate(losses):
        if step == int(cut * 1000):
            state = json.loads(json.dumps(watch.state_dict()))
            watch = StuckWatch(7.1, "Try more.")
            watch.load_state_dict(state)
        said += [step] if watch.observe(float(loss), step / 1000) else []
    assert said == [told]
