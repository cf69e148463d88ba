"""A rule is chosen to a stated loss on held-out rows, and the loss holds on rows that it has not seen."""

from itertools import pairwise

import numpy as np
import pytest

from litebert.early_exits.calibrate import HeldOut, calibrate, full_depth
from litebert.early_exits.heads import ExitRule, loss_in_points
from litebert.tasks.encoding import Inputs
from litebert.tasks.examples import Example, TaskData, TaskSpec

DEPTHS = 6


def one_each(count: int) -> Inputs:
    """Inputs of one token, one for each item."""
    items = np.arange(count)
    return Inputs(np.ones(count, np.int32), np.zeros(count, np.int32), np.arange(count + 1), items, np.empty((0, 2)))


def rows_of(kind: str, count: int, seed: int) -> HeldOut:
    """Heads that know more, and are surer of it, the deeper they are: a margin towards the truth, and noise."""
    draw = np.random.default_rng(seed)
    knows = np.linspace(0.8, 1.6, DEPTHS)[:, None]
    ease = draw.normal(1.2, 1.0, count)
    if kind == "regress":
        targets = draw.normal(size=count)
        scores = (targets + draw.normal(size=(DEPTHS, count)) * 0.6 / knows**3)[..., None]
        items = [Example(key=str(row), first="", target=float(one)) for row, one in enumerate(targets)]
        labels, metrics = (), ("pearson",)
    else:
        targets = draw.integers(0, 2, count)
        margin = (2 * targets - 1) * (3 * knows * ease + draw.normal(size=(DEPTHS, count)))
        scores = np.stack([-margin, margin], axis=-1)
        items = [Example(key=str(row), first="", target=int(one)) for row, one in enumerate(targets)]
        labels, metrics = ("no", "yes"), ("accuracy",)
    data = TaskData(name="rows", kind=kind, labels=labels, metrics=metrics, train=(), dev={"dev": tuple(items)})
    return HeldOut(data, items, one_each(count), scores.astype(np.float32), TaskSpec(kind=kind, labels=labels))


def again(rows: HeldOut) -> HeldOut:
    """With scores that were changed."""
    spec = TaskSpec(kind=rows.data.kind, labels=rows.data.labels)
    return HeldOut(rows.data, rows.items, one_each(len(rows.items)), rows.scores, spec)


@pytest.mark.parametrize("kind", ["classify", "regress"])
@pytest.mark.parametrize("max_loss", [0.0, 0.3, 2.0])
def test_the_promise_holds_on_the_rows_it_was_made_on_and_on_others(kind, max_loss):
    spread = 1.0 if kind == "regress" else 0.0
    losses = []
    for seed in range(3):
        ours, others = rows_of(kind, 1500, seed), rows_of(kind, 1500, 100 + seed)
        report = calibrate(ours, max_loss=max_loss, spread=spread, name="toy", trained_on=0)
        assert report.loss <= max_loss + 1e-9
        assert report.points[DEPTHS - 1].metrics[report.metric] == report.full_score
        full, found = others.point(full_depth(DEPTHS)), others.point(report.exit_rule)
        losses.append(loss_in_points(report.metric, full.metrics[report.metric], found.metrics[report.metric]))
        assert abs(report.checked_loss) <= max_loss + 1.0
    assert np.mean(losses) <= max_loss + 0.5  # a row is 0.07 points; this is the mean of three draws of 1,500
    if max_loss:
        assert report.mean_depth < DEPTHS


def test_more_may_be_lost_for_fewer_layers_and_without_exits_there_are_all():
    rows = rows_of("classify", 800, 0)
    depths = [rows.choose(loss, 0.0).mean_depth for loss in (0.0, 0.3, 1.0, 5.0)]
    assert all(after <= 1.05 * before for before, after in pairwise(depths)) and depths[-1] < depths[0]
    wrong = rows_of("classify", 800, 0)
    wrong.scores[:-1] *= -1  # heads below the last are wrong, and sure of it
    report = calibrate(again(wrong), max_loss=0.3, spread=0.0, name="toy", trained_on=0)
    assert report.mean_depth == DEPTHS and report.score == report.full_score
    assert report.exit_rule == ExitRule(rule="patience", value=DEPTHS)


def test_a_lucky_value_behind_one_that_fails_is_not_chosen():
    """By confidence: at 0.99 rows leave that are wrong, at 0.6 others that happen to be right make up for it."""
    rows = rows_of("classify", 100, 0)
    right = np.array([2.0 * item.target - 1 for item in rows.items])
    margin = np.tile(right * 0.05, (DEPTHS, 1))
    margin[:-1, :10] = -5 * right[:10]  # sure and wrong, all the way to the last depth
    margin[:-1, 10:30] = right[10:30]
    margin[-1, 10:30] *= -1  # right at once, but wrong at the end
    rows.scores[:] = np.stack([-margin, margin], axis=-1)
    rules = full_depth(DEPTHS), *(ExitRule(rule="confidence", value=value) for value in (0.99, 0.6))
    full, strict, lucky = (again(rows).point(rule).metrics["accuracy"] for rule in rules)
    assert lucky > full > strict
    assert again(rows).choose(0.3, 0.0).rule == "patience"


def test_of_rules_that_save_about_as_much_the_better_one_is_chosen():
    """By patience of 2 all leave at depth 2 and are right; by confidence all leave at depth 2, some of them wrong."""
    rows = rows_of("classify", 100, 0)
    right = np.array([2.0 * item.target - 1 for item in rows.items])
    margin = np.tile(right, (DEPTHS, 1))
    margin[0] *= 0.01
    margin[0, 10:13] *= -1  # or all could leave at once
    margin[0, :3], margin[-1, :5] = 9 * -right[:3], -right[:5]  # three are sure and wrong at once; five are at the end
    rows.scores[:] = np.stack([-margin, margin], axis=-1)
    rows = again(rows)
    chosen = rows.choose(0.0, 0.0)
    assert chosen.metrics["accuracy"] >= rows.point(ExitRule(rule="confidence", value=0.8)).metrics["accuracy"] == 0.97
    assert chosen.rule == "patience" and chosen.value == 2 and chosen.mean_depth <= 1.05 * 1.97


def test_errors_in_units_lose_in_percent():
    assert loss_in_points("accuracy", 0.9, 0.897) == pytest.approx(0.3)
    assert loss_in_points("mean_absolute_error", 2.0, 2.01) == pytest.approx(0.5)
