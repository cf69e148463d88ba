"""A budget of time is kept, from the command to the end, and the schedule runs over what is left for it."""

import pytest
from toy_pretraining import lose_everything_once, settings

from litebert.pretraining.run import pretrain
from litebert.runs import read_run
from litebert.train.metrics import read_metrics
from litebert.train.objective import Learner
from litebert.train.settings import Bound
from litebert.train.stepper import Stepper


class Clock:
    """Stands in for the loop's clock: every look at it costs ten milliseconds, so nothing depends on the machine."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 0.01
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    for module in ("clock", "trainer", "stepper", "callbacks"):
        monkeypatch.setattr(f"litebert.train.{module}.time", made)
    return made


def test_the_budget_is_kept(store, tmp_path, clock):
    result = pretrain(settings(store, tmp_path / "run", bound=Bound(seconds=10.0)))
    rows = [row for row in read_metrics(tmp_path / "run") if "rate" in row]
    assert result.status == "finished" and 9.5 <= rows[-1]["seconds"] <= 10.5
    assert clock.now <= 10.5  # the last score and save included
    assert rows[-1]["rate"] < 0.1 * max(row["rate"] for row in rows)  # near its end


def test_the_budget_begins_with_the_command(store, tmp_path, clock):
    """Four of ten seconds went into imports: the run takes the other six, its schedule begins at nothing."""
    result = pretrain(settings(store, tmp_path / "run", bound=Bound(seconds=10.0), begun=-4.0))
    rows = [row for row in read_metrics(tmp_path / "run") if "rate" in row]
    assert result.status == "finished" and rows[0]["progress"] < 0.01 and 9.4 <= rows[-1]["seconds"] <= 10.0
    assert 5.4 <= clock.now <= 6.0


def test_a_slow_first_step_does_not_eat_the_warm_up(store, tmp_path, clock, monkeypatch):
    """Compiling takes its share of the budget, but the schedule begins after it."""
    forward, slow = Learner.forward, [4.0]

    def first_is_slow(self, tensors):
        clock.now += slow.pop() if slow else 0
        return forward(self, tensors)

    monkeypatch.setattr(Learner, "forward", first_is_slow)
    pretrain(settings(store, tmp_path / "run", bound=Bound(seconds=10.0)))
    rows = {row["step"]: row for row in read_metrics(tmp_path / "run") if "rate" in row}
    assert rows[2]["seconds"] > 4.0 and rows[2]["progress"] < 0.05
    assert 9.5 <= rows[max(rows)]["seconds"] <= 10.5


@pytest.mark.parametrize(("seconds", "told"), [(3.0, False), (6.0, True), (15.0, True)])
def test_a_budget_that_compiling_eats_up_is_told(store, tmp_path, clock, monkeypatch, seconds, told):
    def slow(stepper, stage, batch):
        clock.now += seconds

    monkeypatch.setattr(Stepper, "compile", slow)
    monkeypatch.setattr(Learner, "compile", lambda learner: None)
    run = settings(store, tmp_path / "run", bound=Bound(seconds=10.0), compiled=True)
    told_of = [note for note in pretrain(run).notes if "of a budget of 10 seconds; give it longer" in note]
    assert len(told_of) == told


def test_time_that_led_up_to_the_first_step_is_no_progress_after_a_rollback_either(store, tmp_path, clock, monkeypatch):
    """Three of ten seconds went into imports; the second step diverges, and the run goes back to its very start."""
    lose_everything_once(monkeypatch, 6)
    result = pretrain(settings(store, tmp_path / "run", bound=Bound(seconds=10.0), begun=-3.0))
    assert result.status == "finished" and "went back to step 0" in " ".join(result.notes)
    rows = {row["step"]: row for row in read_metrics(tmp_path / "run") if "rate" in row}
    assert rows[2]["seconds"] > 3.0 and rows[2]["progress"] < 0.15


def test_a_dry_run_has_the_batches_of_the_run_that_it_is_for(store, tmp_path):
    longer = {"recipe": ("batches.max_steps=2",), "bound": Bound(steps=2), "fit_to": Bound(tokens=8192)}
    pretrain(settings(store, tmp_path / "run", **longer))
    assert read_run(tmp_path / "run").settings["recipe"]["batches"]["tokens"] == [[0.0, 4096]]
    assert read_metrics(tmp_path / "run")[-1]["tokens"] > 2 * 2048
