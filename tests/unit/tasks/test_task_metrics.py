"""Metrics give what scikit-learn and SciPy give, on whatever is thrown at them."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.tasks import metrics

stats = pytest.importorskip("scipy.stats")
theirs = pytest.importorskip("sklearn.metrics")
TOLERANCE = 1e-12


@st.composite
def class_pairs(draw, most=5):
    size = draw(st.integers(1, 60))
    labels = st.integers(0, draw(st.integers(0, most)))
    return draw(st.lists(labels, min_size=size, max_size=size)), draw(st.lists(labels, min_size=size, max_size=size))


@st.composite
def number_pairs(draw):
    size = draw(st.integers(2, 60))
    # Few decimals make ties, which is where ranks go wrong.
    numbers = st.integers(-500, 500).map(lambda value: value / 100)
    return draw(st.lists(numbers, min_size=size, max_size=size)), draw(st.lists(numbers, min_size=size, max_size=size))


@st.composite
def set_pairs(draw):
    count, size = draw(st.integers(2, 6)), draw(st.integers(1, 30))
    sets = st.sets(st.integers(0, count - 1)).map(lambda found: tuple(sorted(found)))
    return (
        draw(st.lists(sets, min_size=size, max_size=size)),
        draw(st.lists(sets, min_size=size, max_size=size)),
        count,
    )


def same(ours, expected):
    return math.isclose(ours, expected, rel_tol=0, abs_tol=TOLERANCE)


@settings(deadline=None)
@given(class_pairs())
def test_classes(pair):
    targets, found = pair
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert same(metrics.accuracy(targets, found), theirs.accuracy_score(targets, found))
        expected = theirs.f1_score(targets, found, average="macro", zero_division=0)
        assert same(metrics.macro_f1(targets, found), expected)
        assert same(metrics.matthews(targets, found), theirs.matthews_corrcoef(targets, found))
        count = 1 + max(*targets, *found)
        table = theirs.confusion_matrix(targets, found, labels=range(count))
    assert (metrics.confusion(targets, found, count) == table).all()


@settings(deadline=None)
@given(class_pairs(most=1))
def test_binary_f1(pair):
    targets, found = pair
    expected = theirs.f1_score(targets, found, pos_label=1, average="binary", zero_division=0)
    assert same(metrics.binary_f1(targets, found), expected)


@settings(deadline=None)
@given(number_pairs())
def test_numbers(pair):
    targets, found = pair
    assert same(metrics.mean_absolute_error(targets, found), theirs.mean_absolute_error(targets, found))
    assert same(metrics.root_mean_squared_error(targets, found), theirs.root_mean_squared_error(targets, found))
    if len(set(targets)) > 1 and len(set(found)) > 1:
        assert same(metrics.pearson(targets, found), stats.pearsonr(targets, found).statistic)
        assert same(metrics.spearman(targets, found), stats.spearmanr(targets, found).statistic)
    else:
        assert metrics.pearson(targets, found) == metrics.spearman(targets, found) == 0.0


@settings(deadline=None)
@given(set_pairs())
def test_sets(pairs):
    targets, found, count = pairs
    wanted, given_ = (
        np.array([[label in labels for label in range(count)] for labels in rows], int) for rows in (targets, found)
    )
    for average, ours in (
        ("micro", metrics.micro_f1(targets, found, count)),
        ("macro", metrics.macro_set_f1(targets, found, count)),
    ):
        assert same(ours, theirs.f1_score(wanted, given_, average=average, zero_division=0))
    each = np.mean([metrics.set_f1(*row) for row in zip(targets, found, strict=True)])
    assert same(each, theirs.f1_score(wanted, given_, average="samples", zero_division=1))
    assert same(metrics.exact_sets(targets, found, count), theirs.accuracy_score(wanted, given_))


def test_sizes_of_real_tasks():
    random = np.random.default_rng(0)
    targets = random.integers(0, 3, 400_000).tolist()
    found = [
        target if chance < 0.7 else int(chance * 100) % 3
        for target, chance in zip(targets, random.random(400_000), strict=True)
    ]
    assert same(metrics.matthews(targets, found), theirs.matthews_corrcoef(targets, found))
    values = (np.asarray(targets) + random.normal(size=400_000)).tolist()
    assert same(metrics.pearson(targets, values), stats.pearsonr(targets, values).statistic)
    assert same(metrics.spearman(targets, values), stats.spearmanr(targets, values).statistic)


def test_pearson_of_values_too_large_to_square():
    huge = [1e200, 2e200, 4e200]
    assert same(metrics.pearson(huge, [1.0, 2.0, 4.0]), 1.0)
