"""The trainer by itself: step by step or to the end, stopped and continued, and what callbacks are told."""

from dataclasses import dataclass

import pytest
import torch
from toy_lessons import small_network

from litebert.checkpoints.training import saved_states
from litebert.train.callbacks import Callback, DivergenceGuard, SaveStates
from litebert.train.objective import Part, Stage
from litebert.train.settings import Bound, OptimiserSettings, ScheduleSettings, TrainSettings
from litebert.train.trainer import Trainer


@dataclass
class Lesson:
    num_tokens: int
    target: float


class Lessons:
    """A batch for every position, the same whoever asks."""

    def stream(self, start, *, rank, world, workers):
        index = start[1]
        while True:
            yield Lesson(4, 5 * index % 7 / 7)
            index += 1

    def advance(self, position, count):
        return position[0], position[1] + count


class Nearness:
    """How far a bias is from the target of a batch."""

    def counts(self, batch):
        return {"task": 1}

    def tensors(self, batch, device):
        return {"target": torch.tensor(batch.target)}

    def parts(self, network, tensors):
        loss = (network.pooler.dense.bias - tensors["target"]).square().sum() + 0 * network.heads[
            "order"
        ].linear.bias.sum()
        return {"task": Part(loss, torch.tensor(float("nan")))}


def make(*callbacks, steps=6, **settings) -> Trainer:
    train = TrainSettings(
        bound=Bound(steps=steps),
        optimiser=OptimiserSettings(),
        schedule=ScheduleSettings(),
        batch_tokens=((0.0, 1),),
        micro_tokens=1,
        **settings,
    )
    stages = [Stage("a", 0.0, Lessons(), Nearness()), Stage("a", 0.5, Lessons(), Nearness(), weights={"task": 2.0})]
    torch.manual_seed(0)
    return Trainer(small_network(), stages, train, callbacks)


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


def same(one: Trainer, other: Trainer) -> bool:
    ours, theirs = one.network.state_dict(), other.network.state_dict()
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


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
