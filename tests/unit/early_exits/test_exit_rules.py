"""When inputs leave, against loops written out plainly; heads, against scikit-learn's answer to the same question."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge

from litebert.early_exits.run import DECAY, THRESHOLDS, by_confidence, by_patience, learn_heads, leavings


def plain_patience(answers: list[float], patience: int, apart: float) -> int:
    run = 1
    for depth in range(1, len(answers) + 1):
        if depth > 1:
            run = run + 1 if abs(answers[depth - 1] - answers[depth - 2]) <= apart else 1
        if run >= patience:
            return depth
    return len(answers)


def plain_confidence(shares: list[float], threshold: float) -> int:
    return next((depth for depth, share in enumerate(shares, 1) if share >= threshold), len(shares))


@pytest.mark.parametrize("apart", [0.0, 1.0])
def test_rules_leave_where_a_plain_loop_does(apart):
    draw = np.random.default_rng(0)
    answers = draw.integers(0, 3, (6, 200)).astype(float)
    shares = draw.random((6, 200))
    found = leavings(answers, shares, apart)
    assert [one.value for one in found if one.rule == "depth"] == [1, 2, 3, 4, 5, 6]
    for one in found:
        for number in range(200):
            if one.rule == "patience":
                expected = plain_patience(list(answers[:, number]), int(one.value), apart)
            elif one.rule == "confidence":
                expected = plain_confidence(list(shares[:, number]), one.value)
            else:
                expected = one.value
            assert one.depths[number] == expected, (one.rule, one.value, number)
    assert {one.value for one in found if one.rule == "confidence"} == set(THRESHOLDS)
    assert not [one for one in leavings(answers, None, apart) if one.rule == "confidence"]


def test_all_agreeing_leave_at_once_and_the_last_depth_always_answers():
    assert by_patience(np.ones((3, 1), bool), 2).depths.tolist() == [2]
    assert by_patience(np.zeros((3, 1), bool), 2).depths.tolist() == [4]
    assert by_confidence(np.array([[0.1], [0.2]]), 0.9).depths.tolist() == [2]
    assert by_patience(np.zeros((0, 2), bool), 2).depths.tolist() == [1, 1]  # a model of one layer


def test_heads_are_the_best_there_are():
    draw = np.random.default_rng(1)
    features = draw.normal(size=(1, 120, 5)) * np.array([1, 3, 0.2, 1, 5]) + 2
    labels = (features[0] @ draw.normal(size=(5, 3)) + draw.normal(size=(120, 3))).argmax(1)
    (head,) = learn_heads(torch.tensor(features, dtype=torch.float32), labels.tolist(), 3)
    even = (features[0] - features[0].mean(0)) / features[0].std(0, ddof=1)
    theirs = LogisticRegression(C=1 / (2 * 120 * DECAY), max_iter=2000, tol=1e-8).fit(even, labels)
    ours = head(torch.tensor(features[0], dtype=torch.float32)).softmax(-1).numpy()
    assert ours == pytest.approx(theirs.predict_proba(even), abs=0.01)
    numbers = features[0] @ draw.normal(size=5) + 7
    (head,) = learn_heads(torch.tensor(features, dtype=torch.float32), numbers.tolist(), 0)
    ridge = Ridge(alpha=120 * DECAY).fit(even, numbers)
    found = head(torch.tensor(features[0], dtype=torch.float32))[:, 0].numpy()
    assert found == pytest.approx(ridge.predict(even), abs=0.05)
