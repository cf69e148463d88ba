"""A trainer of a bias that is pulled towards a number, in two stages."""

from dataclasses import dataclass

import torch
from toy_lessons import small_network

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


def same(one: Trainer, other: Trainer) -> bool:
    ours, theirs = one.network.state_dict(), other.network.state_dict()
    return all(torch.equal(ours[name], theirs[name]) for name in ours)
