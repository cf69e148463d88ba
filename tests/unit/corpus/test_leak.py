"""The leak check finds a leak that was put there, none where there is none, and solves what scikit-learn solves."""

import numpy as np
import pytest

from litebert.corpus.leak import STRENGTH, Bags, _scores, _train, classify, make_bags
from litebert.corpus.pairs import COLUMNS, DOCUMENT, LABEL, OTHER, SECOND_SIZE, SECOND_START, SIZE, START
from litebert.corpus.windows import Window, WindowPlan
from litebert.errors import InputError


def make_window(planted, *, count=3000, seed=0):
    """Pairs of random words; in a share ``planted`` of them word 7 is in x1 of swapped pairs or x2 of ordered ones."""
    random = np.random.default_rng(seed)
    tokens = random.integers(10, 500, count * 20).astype(np.uint16)
    inputs = np.zeros((count, COLUMNS), np.int64)
    inputs[:, START], inputs[:, SIZE] = np.arange(count) * 20, 10
    inputs[:, SECOND_START], inputs[:, SECOND_SIZE] = np.arange(count) * 20 + 10, 10
    inputs[:, LABEL] = random.integers(0, 2, count)
    inputs[:, DOCUMENT] = inputs[:, OTHER] = np.arange(count) // 4
    for row in inputs[random.random(count) < planted]:
        tokens[(row[START] if row[LABEL] else row[SECOND_START]) + 3] = 7
    empty = np.zeros(0, np.int64)
    return Window(WindowPlan(empty, inputs, empty, empty), tokens, np.ones(len(tokens), np.uint8))


@pytest.mark.parametrize("mirrored", [True, False])
def test_a_planted_leak_is_found(mirrored):
    leak = classify(make_bags([make_window(0.5)], mirrored=mirrored, seed=0, most=10_000))
    assert leak.num_pairs == 3000
    assert leak.accuracy > 0.68, "half of the pairs can be told, and half of the rest by luck"
    assert leak.leaks


@pytest.mark.parametrize("mirrored", [True, False])
def test_no_leak_is_found_where_there_is_none(mirrored):
    leak = classify(make_bags([make_window(0.0), make_window(0.0, seed=1)], mirrored=mirrored, seed=0, most=10_000))
    assert abs(leak.accuracy - 0.5) < 4 * leak.standard_error
    assert not leak.leaks


def test_the_solution_is_that_of_scikit_learn():
    linear_model = pytest.importorskip("sklearn.linear_model")
    sparse = pytest.importorskip("scipy.sparse")
    bags: Bags = make_bags([make_window(0.3, count=1500)], mirrored=True, seed=0, most=1500)
    chosen = np.arange(1500)
    weights = _train(bags, chosen)
    table = sparse.csr_matrix((bags.values, bags.features, bags.bounds), shape=(1500, len(weights) - 1))
    model = linear_model.LogisticRegression(C=STRENGTH, tol=1e-8, max_iter=1000).fit(table, bags.labels)
    ours = _scores(bags.bounds, bags.features, bags.values, chosen, weights)
    assert np.abs(ours - model.decision_function(table)).max() < 0.01
    assert np.std(ours) > 0.05


def test_documents_of_a_pair_are_never_on_both_sides():
    window = make_window(0.0)
    window.plan.inputs[::2, OTHER] += 1
    bags = make_bags([window], mirrored=False, seed=0, most=3000)
    inputs = window.plan.inputs
    for document in range(0, 700, 7):
        assert len(set(bags.folds[inputs[:, DOCUMENT] == document, 0].tolist())) == 1
    same_side = (bags.folds[:, 0] == bags.folds[:, 1]).mean()
    assert 0.25 < same_side < 0.45


def test_nothing_to_check_is_said():
    window = make_window(0.0)
    window.plan.inputs[:, LABEL] = -100
    with pytest.raises(InputError, match="no input has an order label"):
        make_bags([window], mirrored=True, seed=0, most=10)
