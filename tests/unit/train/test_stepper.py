"""A step's gradients: each part's sum over all micro-batches, by what the whole batch has of it, times its weight."""

from dataclasses import dataclass

import pytest
import torch
from toy_lessons import small_network

from litebert.train.objective import Part, Stage
from litebert.train.parallel import Ranks
from litebert.train.settings import Bound, OptimiserSettings, ScheduleSettings, TrainSettings
from litebert.train.stepper import Stepper


@dataclass
class Lesson:
    num_tokens: int
    firsts: int
    seconds: int
    size: float


class TwoParts:
    """Losses that are sums of one bias each, so that gradients are told by hand."""

    def counts(self, batch):
        return {"first": batch.firsts, "second": batch.seconds}

    def tensors(self, batch, device):
        return {"size": torch.tensor(batch.size, device=device)}

    def parts(self, network, tensors):
        biases = {"first": network.pooler.dense.bias, "second": network.heads["order"].linear.bias}
        return {name: Part(tensors["size"] * bias.sum(), torch.tensor(1)) for name, bias in biases.items()}


def stepper_of(weights, network) -> tuple[Stepper, Stage]:
    settings = TrainSettings(
        bound=Bound(steps=1),
        optimiser=OptimiserSettings(),
        schedule=ScheduleSettings(),
        batch_tokens=((0.0, 2),),
        micro_tokens=1,
    )
    stage = Stage("train", 0.0, None, TwoParts(), weights=weights)
    return Stepper(network, [stage], settings, Ranks.alone(torch.device("cpu"))), stage


@pytest.mark.parametrize(("weights", "wanted"), [({}, 8.0), ({"second": 0.5}, 4.0), ({"second": 0.0}, 0.0)])
def test_gradients_are_of_the_whole_batch_and_weighted(weights, wanted):
    network = small_network()
    torch.nn.init.constant_(network.pooler.dense.bias, 0.25)  # ten of them
    stepper, stage = stepper_of(weights, network)
    found = {}

    def look(scaler, clip):
        found["first"], found["second"] = network.pooler.dense.bias.grad, network.heads["order"].linear.bias.grad
        return torch.tensor(0.0)

    stepper.update = look
    lost = stepper.step(7, stage, [Lesson(10, 2, 1, 3.0), Lesson(20, 4, 0, 5.0)], 1.0)
    assert torch.allclose(found["first"], torch.full((10,), 8 / 6))
    assert torch.allclose(found["second"], torch.full((2,), wanted))
    assert (lost.step, lost.tokens) == (7, 30) and lost.counts == {"first": 6, "second": 1}
    assert lost.sums["first"].tolist() == [8 * 2.5, 2.0]


def test_the_rate_is_a_share_of_the_optimisers_own():
    network = small_network()
    stepper, stage = stepper_of({}, network)
    before = network.pooler.dense.bias.detach().clone()
    stepper.step(1, stage, [Lesson(1, 1, 1, 1.0)], 0.0)
    assert torch.equal(network.pooler.dense.bias, before)
    stepper.step(2, stage, [Lesson(1, 1, 1, 1.0)], 0.5)
    assert torch.allclose(before - network.pooler.dense.bias, torch.tensor(0.5e-3), rtol=1e-3)
