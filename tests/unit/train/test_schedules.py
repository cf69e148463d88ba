"""Rates and stages over a run."""

import math
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litebert.errors import InputError
from litebert.train.settings import (
    CYCLE_START,
    OptimiserSettings,
    ScheduleKind,
    ScheduleSettings,
    check_stages,
    rate_factor,
    value_at,
)


def test_paper_recipe():
    paper, steps = ScheduleSettings(), 125_000
    assert rate_factor(0, paper) == 0
    assert rate_factor(1 / steps, paper) == pytest.approx(1 / 3125)
    assert rate_factor(3125 / steps, paper) == pytest.approx(1)
    assert rate_factor((3125 + 60_000) / steps, paper) == pytest.approx(1 - 60_000 / 121_875)
    assert rate_factor(1, paper) == 0


@pytest.mark.parametrize("kind", get_args(ScheduleKind))
@given(warmup=st.floats(0, 0.9), end=st.floats(0, 1), first=st.floats(0, 1), second=st.floats(0, 1))
def test_up_then_down_within_bounds(kind, warmup, end, first, second):
    settings = ScheduleSettings(kind=kind, warmup=warmup, end=end)
    before, after = sorted((first, second))
    low, high = rate_factor(before, settings), rate_factor(after, settings)
    assert 0 <= low <= 1 and 0 <= high <= 1
    if after < warmup:
        assert low <= high + 1e-12
    if before >= warmup:
        assert low >= high - 1e-12


@pytest.mark.parametrize("kind", ["linear", "cosine", "one-cycle"])
def test_ends_where_told_even_when_the_clock_overruns(kind):
    settings = ScheduleSettings(kind=kind, warmup=0.2, end=0.1)
    assert rate_factor(0.2, settings) == pytest.approx(1)
    assert rate_factor(1.0, settings) == pytest.approx(0.1)
    assert rate_factor(1.07, settings) == pytest.approx(0.1)


def test_shapes_halfway():
    def factor(progress, kind):
        return rate_factor(progress, ScheduleSettings(kind=kind, warmup=0.2))

    assert factor(0.1, "cosine") == pytest.approx(0.5)
    assert factor(0.4, "cosine") == pytest.approx((1 + math.cos(math.pi / 4)) / 2)
    assert factor(0.4, "linear") == pytest.approx(0.75)
    assert factor(0.9, "constant") == 1
    assert factor(0.0, "one-cycle") == pytest.approx(CYCLE_START)
    assert factor(0.1, "one-cycle") == pytest.approx((1 + CYCLE_START) / 2)


def test_no_warmup_starts_at_the_top():
    assert rate_factor(0.0, ScheduleSettings(warmup=0.0)) == 1


def rate_for(batch: int, rate: float = 0.00176) -> float:
    return OptimiserSettings(rate=rate, rate_at_batch=4096).for_run(batch, 768).rate


@pytest.mark.parametrize("batch, published", [(256, 0.00044), (512, 0.00062), (1024, 0.00088), (4096, 0.00176)])
def test_rate_follows_the_square_root_of_the_batch(batch, published):
    assert round(rate_for(batch), 5) == published


def test_published_rate_at_2048_is_of_the_unrounded_one():
    # 0.00176 is 5 / (1000 * 2 ** 1.5) = 0.0017678 cut off; halving the batch gives 0.00125 from that, 0.00124 from it.
    assert round(rate_for(2048, 5 / (1000 * 2**1.5)), 5) == 0.00125
    assert rate_for(2048) == pytest.approx(0.00125, rel=5e-3)


def test_stages():
    lengths = ((0.0, 128), (0.7, 256), (0.9, 512))
    found = [value_at(progress, lengths) for progress in (0, 0.5, 0.69999, 0.7, 0.89, 0.9, 1.0, 1.2)]
    assert found == [128, 128, 128, 256, 256, 512, 512, 512]


@pytest.mark.parametrize("stages", [(), ((0.1, 1),), ((0.0, 1), (0.5, 2), (0.5, 3)), ((0.0, 1), (1.0, 2))])
def test_bad_stages_are_named(stages):
    with pytest.raises(InputError, match="lengths"):
        check_stages("lengths", stages)


@pytest.mark.parametrize(
    "fields, words",
    [({"kind": "cosin"}, "did you mean 'cosine'"), ({"warmup": 1.0}, "warmup is 1.0"), ({"end": 1.5}, "end is 1.5")],
)
def test_bad_settings(fields, words):
    with pytest.raises(InputError, match=words):
        ScheduleSettings(**fields)


def test_a_trapezoid_stays_at_the_top_and_goes_down_at_the_end():
    settings = ScheduleSettings(kind="trapezoid", warmup=0.1, decay=0.4, end=0.1)
    shape = [rate_factor(progress, settings) for progress in (0.0, 0.05, 0.1, 0.5, 0.6, 0.8, 1.0, 1.2)]
    assert shape == pytest.approx([0.0, 0.5, 1.0, 1.0, 1.0, 0.55, 0.1, 0.1])
    with pytest.raises(InputError, match="decay is 0"):
        ScheduleSettings(kind="trapezoid", decay=0.0)


def test_a_trapezoid_all_decay_begins_to_fall_after_the_warm_up():
    settings = ScheduleSettings(kind="trapezoid", warmup=0.2, decay=1.0)
    assert [rate_factor(progress, settings) for progress in (0.2, 0.6)] == pytest.approx([1.0, 0.5])
