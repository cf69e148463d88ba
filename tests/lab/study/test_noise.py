"""Verdicts: what is noise is called noise, what is not is told from its opposite, and the intervals are honest."""

import numpy as np
import pytest
from scipy import stats

from litebert_lab.study.noise import error_of, judge, ratio, t95

CLAIM = {"worse": 1.0, "better": -1.0}


def sums(draw: np.random.Generator, mean: float, text: np.ndarray, noise: float = 0.05) -> np.ndarray:
    """Loss sums over batches: a mean, what all rows share of a batch, and what is the row's own."""
    items = draw.integers(80, 120, len(text)).astype(float)
    return np.stack([items * (mean + text + draw.normal(0, noise, len(text))), items], 1)


def rows(draw, means: dict[str, float], seeds: int, between: float) -> dict[str, list[np.ndarray]]:
    text = draw.normal(0, 0.5, 40)
    return {
        name: [sums(draw, mean + draw.normal(0, between), text) for _ in range(seeds)] for name, mean in means.items()
    }


def test_a_difference_above_the_noise_is_reproduced_and_its_opposite_is_not():
    draw = np.random.default_rng(0)
    found = rows(draw, {"worse": 5.0, "better": 4.5}, 3, 0.02)
    assert judge(CLAIM, 0.0, found).verdict == "reproduced"
    assert judge({name: -weight for name, weight in CLAIM.items()}, 0.0, found).verdict == "not reproduced"
    assert judge(CLAIM, -0.5, found).verdict == "too small to tell"
    assert judge(CLAIM, 0.0, found).value == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_where_there_is_no_difference_few_are_found(seeds):
    """One in twenty at the most, where all noise that there is is one that can be seen."""
    draw = np.random.default_rng(1)
    between = 0.05 if seeds > 1 else 0.0
    means = {"worse": 5.0, "better": 5.0, "third": 4.0, "fourth": 3.0}
    false = [judge(CLAIM, 0.0, rows(draw, means, seeds, between)).verdict != "too small to tell" for _ in range(1000)]
    assert np.mean(false) < 0.075


def test_one_seed_does_not_see_the_noise_of_training_and_says_so():
    draw = np.random.default_rng(2)
    one = judge(CLAIM, 0.0, rows(draw, {"worse": 5.03, "better": 5.0}, 1, 0.0))
    assert one.verdict == "too small to tell" and "other seeds were not tried" in one.why
    assert one.interval == pytest.approx(0.05, rel=0.05)  # a hundredth, where the text alone gives less
    three = judge(CLAIM, 0.0, rows(draw, {"worse": 5.0, "better": 5.0}, 3, 0.3))
    assert three.interval > 3 * one.interval and "seeds" in three.why


def test_rows_see_the_same_text_so_what_they_share_does_not_count():
    draw = np.random.default_rng(3)
    found = rows(draw, {"worse": 5.0, "better": 4.9}, 1, 0.0)
    assert error_of(found["worse"]) > 0.05  # the text alone
    assert judge(CLAIM, 0.0, found).interval <= 0.0505  # the hundredth, and not the text's tenth


def test_the_error_of_a_ratio_is_that_of_a_bootstrap():
    draw = np.random.default_rng(4)
    items = draw.integers(50, 150, 200).astype(float)
    table = np.stack([items * draw.normal(3.0, 0.4, 200), items], 1)
    again = [ratio(table[draw.integers(0, 200, 200)]) for _ in range(2000)]
    assert error_of([table]) == pytest.approx(np.std(again), rel=0.1)


def test_what_is_missing_leaves_a_claim_open():
    draw = np.random.default_rng(5)
    found = rows(draw, {"worse": 9.0, "better": 1.0}, 1, 0.0)
    assert judge(CLAIM, 0.0, {**found, "better": []}).verdict == "too small to tell"
    assert "no figures for better" in judge(CLAIM, 0.0, {**found, "better": []}).why
    short = {name: [each[:1] for each in some] for name, some in found.items()}
    assert judge(CLAIM, 0.0, short).why == "too little held-out text"


@pytest.mark.parametrize("freedom", [1, 2, 5, 10, 11, 16, 40, 200])
def test_student(freedom):
    assert t95(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), abs=0.006)
    assert t95(None) == pytest.approx(stats.norm.ppf(0.975), abs=1e-3)
