"""When a run counts as collapsed, and when it does not."""

import math
from dataclasses import replace

import numpy as np
import pytest

from litebert.tasks.callbacks import CollapseGuard
from litebert.tasks.encoding import Inputs
from litebert.tasks.examples import Choice, Example, TaskSpec
from litebert.tasks.kinds import KINDS, HeadScores

NONE = np.zeros(0, np.float32)
PROBES = Inputs(np.zeros(8, np.int32), np.zeros(8, np.int32), np.arange(9), np.arange(8), np.zeros((0, 2), np.int32))


class Model:
    """Stands in for a predictor: scores of eight inputs that differ by ``spread``, towards one label or both."""

    def __init__(self, kind: str = "classify") -> None:
        self.note = TaskSpec(kind=kind, labels=("a", "b"))
        self.spread, self.leaning = 0.1, 0.0

    def scores(self, inputs: Inputs) -> HeadScores:
        wave = self.spread * np.linspace(-1, 1, 8, dtype=np.float32)
        return HeadScores(np.stack([wave + self.leaning, -wave], 1), NONE, NONE)


def watched(model: Model, **changes) -> CollapseGuard:
    watch = CollapseGuard(model, PROBES, **{"chance": math.log(2), "steps": 1000, "warmup": 0.1, **changes})
    watch.on_start(None)
    return watch


def test_the_same_scores_for_all_at_the_loss_of_chance_is_a_collapse_in_the_first_tenth():
    model = Model()
    watch = watched(model)
    model.spread = 0.001
    verdicts = [watch.observe(step, 0.7) for step in range(1, 101)]
    first = next(step for step, verdict in enumerate(verdicts, start=1) if verdict)
    assert first <= 100 and "collapsed" in watch.verdict and "0.693" in watch.verdict


def test_the_first_steps_of_a_short_run_are_not_judged():
    model = Model()
    watch = watched(model, steps=3)
    model.spread = 0.001
    assert not any(watch.observe(step, 0.7) for step in (1, 2, 3))


def test_a_loss_that_leaves_chance_is_a_recovery():
    model = Model()
    watch = watched(model)
    model.spread = 0.001
    assert any(watch.observe(step, 0.7) for step in range(1, 101)) and not watch.has_recovered()
    for step in range(101, 201):
        watch.observe(step, 0.2)
    assert watch.has_recovered()


@pytest.mark.parametrize(("spread", "loss"), [(0.001, 0.5), (0.1, 0.7), (5.0, 0.7)])
def test_a_lower_loss_or_scores_that_differ_are_none(spread, loss):
    model = Model()
    watch = watched(model)
    model.spread = spread
    assert not any(watch.observe(step, loss) for step in range(1, 1001))


def test_one_answer_for_all_long_after_the_warm_up_is_stuck_unless_the_loss_falls():
    for falling, expected in ((0.0, True), (1e-3, False)):
        model = Model()
        watch = watched(model)
        model.leaning = 3.0
        found = [step for step in range(1, 601) if watch.observe(step, 2.0 - falling * step)]
        assert bool(found) == expected
        if expected:
            assert found[0] >= 400 and "stuck" in watch.verdict
    model = Model()
    short = watched(model, steps=60)
    model.leaning = 3.0
    assert not any(short.observe(step, 0.7) for step in range(1, 61))  # too few steps to judge


def test_it_remembers_over_a_resume():
    model = Model()
    watch = watched(model)
    for step in range(1, 30):
        watch.observe(step, 0.7)
    other = watched(model)
    other.load_state_dict(watch.state_dict())
    model.spread = 0.0001
    steps = range(30, 101)
    assert [watch.observe(step, 0.7) for step in steps] == [other.observe(step, 0.7) for step in steps]
    assert watch.verdict


def test_chance():
    texts = [Example(key="", first="a", target=target) for target in (0, 0, 0, 1)]
    assert KINDS["classify"].chance_loss(texts, PROBES, 2) == pytest.approx(0.5623351)
    numbers = [replace(text, target=float(n)) for n, text in enumerate(texts)]
    assert KINDS["regress"].chance_loss(numbers, PROBES, 0) == pytest.approx(1.25)
    many = [replace(text, target=target) for text, target in zip(texts, [(0,), (0, 1), (), (0,)], strict=True)]
    assert KINDS["multilabel"].chance_loss(many, PROBES, 2) == pytest.approx(0.5623351)
    asked = [Choice(key="", passage="", question="", options=("a", "b", "c", "d"), target=0)]
    assert KINDS["choice"].chance_loss(asked, PROBES, 0) == pytest.approx(math.log(4))
