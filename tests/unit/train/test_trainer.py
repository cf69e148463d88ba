"""The trainer by itself: step by step or to the end, stopped and continued, and what callbacks are told."""

import pytest
from toy_trainer import make, same

from litebert.checkpoints.training import saved_states
from litebert.train.callbacks import Callback, DivergenceGuard, SaveStates


class Told(Callback):
    """Remembers what it was told."""

    name = "told"

    def __init__(self):
        self.calls = []

    def on_start(self, trainer):
        self.calls.append("start")

    def on_stage(self, trainer, stage):
        self.calls.append(f"stage {trainer.stages.index(stage)}")

    def on_step(self, trainer):
        self.calls.append(f"step {trainer.state.step}")

    def on_figures(self, trainer, step, figures):
        self.calls.append(f"figures {step}")

    def on_rollback(self, trainer):
        self.calls.append(f"back {trainer.state.step}")

    def on_end(self, trainer, status):
        self.calls.append(status)

    def state_dict(self):
        return {"calls": self.calls}


def test_a_loop_over_it_takes_the_steps_of_fit():
    one, other = make(), make()
    result = one.fit()
    steps = list(other)
    assert [step.step for step in steps] == [1, 2, 3, 4, 5, 6] and same(one, other)
    assert other.result == result and result.status == "finished"
    assert steps[3].loss == pytest.approx(2 * steps[3].figures["task_loss"])  # of the second stage


def test_leaving_the_loop_stops_the_run_which_continues_exactly(tmp_path):
    whole = make()
    whole.fit()
    cut = make(SaveStates(tmp_path, {}, seconds=1e9))
    for step in cut:
        if step.step == 2:
            break
    assert cut.result.status == "stopped" and [saved.step for saved in saved_states(tmp_path)] == [0, 2]
    saver = SaveStates(tmp_path, {}, seconds=1e9)
    rest = make(saver)
    assert saver.restore(rest) and rest.state.step == 2
    assert rest.fit().status == "finished" and same(whole, rest)


def test_a_state_goes_into_another_trainer():
    whole, first, second = make(), make(), make()
    whole.fit()
    for step in first:
        if step.step == 4:
            second.load_state_dict(first.state_dict())
            break
    second.fit()
    assert same(whole, second)


def test_callbacks_are_told_in_order(tmp_path):
    told = Told()
    make(told, log_every=10).fit()
    assert told.calls == [
        *("start", "stage 0", "figures 1", "step 1", "figures 2", "step 2", "step 3", "figures 3"),
        *("stage 1", "step 4", "step 5", "step 6", "figures 4", "figures 5", "figures 6", "finished"),
    ]


def test_divergence_rolls_back_or_ends_the_run(tmp_path):
    class Nan(Callback):
        bad = 1

        def on_step(self, trainer):
            if trainer.state.step == 5 and self.bad:
                self.bad -= 1
                trainer.trouble = "planted"

    told, saver = Told(), SaveStates(tmp_path, {}, steps=2)
    result = make(saver, DivergenceGuard(saver), Nan(), told).fit()
    assert "back 4" in told.calls and result.status == "finished"
    assert result.notes == ("planted; went back to step 4 with the rate times 0.5",)
    assert make(DivergenceGuard(), Nan()).fit().status == "diverged"
