"""When inputs leave, against loops written out plainly; heads, against scikit-learn's answer to the same question."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge

from litebert.early_exits.heads import DECAY, ExitRule, Exits, Leaver, answers_of, depths_left_at, learn_heads
from litebert.errors import InputError


def plain_patience(answers: list[tuple[float, ...]], patience: int, apart: float) -> int:
    run = 1
    for depth in range(1, len(answers) + 1):
        if depth > 1:
            near = all(abs(a - b) <= apart for a, b in zip(answers[depth - 1], answers[depth - 2], strict=True))
            run = run + 1 if near else 1
        if run >= patience:
            return depth
    return len(answers)


@pytest.mark.parametrize("kind", ["classify", "multilabel", "regress"])
def test_rules_leave_where_a_plain_loop_does(kind):
    draw = np.random.default_rng(0)
    scores = draw.normal(size=(6, 200, 1 if kind == "regress" else 3))
    scores[:, ::2] = scores[:1, ::2] + 0.3 * scores[:, ::2]  # half of them seldom change their mind
    for patience in (1, 2, 4, 6):
        apart = 0.5 if kind == "regress" else 0.0
        found = depths_left_at(scores, ExitRule(rule="patience", value=patience, tolerance=apart), kind)
        for row in range(200):
            answers = {
                "classify": [(float(one.argmax()),) for one in scores[:, row]],
                "multilabel": [tuple((one > 0).astype(float)) for one in scores[:, row]],
                "regress": [tuple(one) for one in scores[:, row]],
            }[kind]
            assert found[row] == plain_patience(answers, patience, apart), (patience, row)
    if kind == "regress":
        return
    for threshold in (0.4, 0.6, 0.9, 1.0):
        found = depths_left_at(scores, ExitRule(rule="confidence", value=threshold), kind)
        for row in range(200):
            each = torch.tensor(scores[:, row])
            chances = each.softmax(-1).amax(-1) if kind == "classify" else each.abs().sigmoid().amin(-1)
            sure = [depth for depth, share in enumerate(chances.tolist(), 1) if share >= threshold]
            assert found[row] == (sure or [6])[0], (threshold, row)


def test_all_agreeing_leave_at_once_and_the_last_depth_always_answers():
    agreeing = np.tile([[2.0, 1.0]], (4, 1, 1))
    assert depths_left_at(agreeing, ExitRule(rule="patience", value=2), "classify").tolist() == [2]
    turning = np.array([[[1.0, 0.0]], [[0.0, 1.0]], [[1.0, 0.0]], [[0.0, 1.0]]])
    assert depths_left_at(turning, ExitRule(rule="patience", value=2), "classify").tolist() == [4]
    assert depths_left_at(turning, ExitRule(rule="confidence", value=0.99), "classify").tolist() == [4]
    assert depths_left_at(turning[:1], ExitRule(rule="patience", value=2), "classify").tolist() == [1]  # one layer


def test_rows_at_depths_of_their_own_are_decided_as_together():
    """As in a buffer where every row is at another depth."""
    draw = np.random.default_rng(1)
    scores = draw.normal(size=(5, 40, 2))
    rule = ExitRule(rule="patience", value=2)
    leaver, found = Leaver(rule, "classify", 5, 40), np.zeros(40, int)
    depths = np.zeros(40, int)
    while (found == 0).any():
        rows = np.flatnonzero((found == 0) & (draw.random(40) < 0.5))
        depths[rows] += 1
        gone = leaver.leave(rows, scores[depths[rows] - 1, rows], depths[rows])
        found[rows[gone]] = depths[rows[gone]]
    assert found.tolist() == depths_left_at(scores, rule, "classify").tolist()


def test_heads_are_the_best_there_are():
    draw = np.random.default_rng(1)
    features = draw.normal(size=(1, 120, 5)) * np.array([1, 3, 0.2, 1, 5]) + 2
    seen = torch.tensor(features, dtype=torch.float32)
    labels = (features[0] @ draw.normal(size=(5, 3)) + draw.normal(size=(120, 3))).argmax(1)
    wanted = torch.nn.functional.one_hot(torch.tensor(labels), 3).float()
    weight, bias = learn_heads(seen, wanted, "classify")
    even = (features[0] - features[0].mean(0)) / features[0].std(0, ddof=1)
    theirs = LogisticRegression(C=1 / (2 * 120 * DECAY), max_iter=2000, tol=1e-8).fit(even, labels)
    ours = (seen[0] @ weight[0] + bias[0]).softmax(-1).numpy()
    assert ours == pytest.approx(theirs.predict_proba(even), abs=0.01)
    numbers = features[0] @ draw.normal(size=5) + 7
    weight, bias = learn_heads(seen, torch.tensor(numbers, dtype=torch.float32)[:, None], "regress")
    ridge = Ridge(alpha=120 * DECAY).fit(even, numbers)
    assert (seen[0] @ weight[0] + bias[0])[:, 0].numpy() == pytest.approx(ridge.predict(even), abs=0.05)
    both = torch.stack([wanted[:, 0], 1 - wanted[:, 0]], dim=1)
    weight, bias = learn_heads(seen, both, "multilabel")
    opposite = (seen[0] @ weight[0] + bias[0]).sigmoid()
    assert opposite.sum(1).numpy() == pytest.approx(np.ones(120), abs=0.01)
    with pytest.raises(InputError, match="two or more"):
        learn_heads(seen[:, :1], wanted[:1], "classify")


def test_several_labels_are_as_sure_as_the_least_certain_one():
    answers, shares = answers_of(np.array([[4.0, -4.0, 0.1]]), "multilabel")
    assert answers.tolist() == [[1.0, 0.0, 1.0]] and shares[0] == pytest.approx(1 / (1 + np.exp(-0.1)))


@pytest.mark.parametrize(("asked", "said"), [(1.5, "must be True"), (-1, "must be True"), (0.5, "a number has none")])
def test_a_rule_that_is_none_is_refused(toy_exits, asked, said):
    exits: Exits = toy_exits("regress")
    with pytest.raises(InputError, match=said):
        exits.rule(asked)


def test_another_value_than_the_stored_one_can_be_asked_for(toy_exits):
    exits: Exits = toy_exits("classify")
    assert exits.rule(True) == exits.report.exit_rule
    assert exits.rule(0.7) == ExitRule(rule="confidence", value=0.7)
    assert exits.rule(3) == ExitRule(rule="patience", value=3)
    with pytest.raises(InputError, match="at most 1"):
        ExitRule(rule="confidence", value=1.2)
    with pytest.raises(InputError, match="whole number"):
        ExitRule(rule="patience", value=1.5)
