"""A small network, lessons that train all of it, and those lessons as a rank of several takes them.

Run as a program (``toy_lessons.py '[rank, world, "FOLDER"]'``) it is such a rank: spawned processes cannot import a
test module by name.
"""

import copy
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from litebert.nn.config import EncoderConfig
from litebert.nn.layout import Layout
from litebert.nn.network import HeadsConfig, Network, NetworkConfig
from litebert.train.optimisers import build_optimiser
from litebert.train.settings import OPTIMISERS, OptimiserSettings

RATES = {"adamw": 1e-3, "lamb": 2e-3, "muon": 1e-3}


def small_network(**fields) -> Network:
    """Odd sizes, and a head of one row, so that two ranks hold shards of unequal size and one holds nothing."""
    torch.manual_seed(0)
    shape = {"vocab_size": 61, "width": 10, "embedding_width": 7, "num_layers": 3, "num_heads": 2}
    shape |= {"feed_forward_width": 21, "max_positions": 16}
    heads = HeadsConfig(names=("masked_lm", "order", "choice"))
    return Network(NetworkConfig(encoder=EncoderConfig(**(shape | fields)), heads=heads))


class Lesson(nn.Module):
    """A network and a loss that reaches every parameter, on a batch that depends on the step alone."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network.eval()  # no dropout in the head of choices

    def forward(self, step: int) -> torch.Tensor:
        net = self.network
        ids = torch.randint(5, 61, (18,), generator=torch.Generator().manual_seed(step))
        layout = Layout.of([5, 12, 1])
        states = net.encoder(ids, layout)
        pooled = net.pooled(states, layout)
        loss = F.cross_entropy(net.masked_lm(states, torch.arange(18)), ids)
        loss = loss + F.cross_entropy(net.heads["order"](pooled), torch.tensor([0, 1, 0]))
        return loss + net.heads["choice"](pooled, 3).square().mean()


def settings_of(name: str) -> OptimiserSettings:
    return OptimiserSettings(
        name=name, rate=RATES[name], part_rates=(("attention", 0.5), ("embeddings", 3.0)), muon_rate=0.01
    )


def train(lesson: nn.Module, optimiser, steps) -> None:
    for step in steps:
        optimiser.set_rate(1 - step / 20)
        lesson(step).backward()
        optimiser.step()
        optimiser.zero_grad()


def weights_of(net: Network) -> dict[str, torch.Tensor]:
    return {name: p.full_tensor() if isinstance(p, DTensor) else p for name, p in net.state_dict().items()}


def worst(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).abs().max()) for name in a)


def shard(lesson: Lesson) -> None:
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(lesson.network.encoder.feed_forward[1], mesh=mesh)
    fully_shard(lesson, mesh=mesh)


def one_step_on_given_gradients(net: Network, name: str) -> dict[str, torch.Tensor]:
    """The weights after a step from gradients drawn here, the same to the last digit for any number of ranks."""
    optimiser = build_optimiser(net, settings_of(name))
    draw = torch.Generator().manual_seed(1)
    for parameter in net.parameters():
        gradient = torch.randn(parameter.shape, generator=draw)
        if isinstance(parameter, DTensor):
            gradient = distribute_tensor(gradient, parameter.device_mesh, parameter.placements)
        parameter.grad = gradient
    optimiser.step()
    optimiser.zero_grad()
    return copy.deepcopy(weights_of(net))


def worker(rank: int, world: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=world)
    found = {}
    for name in OPTIMISERS:
        torch.manual_seed(0)
        lesson = Lesson(small_network(share="attention"))
        shard(lesson)
        optimiser = build_optimiser(lesson.network, settings_of(name))
        train(lesson, optimiser, range(10))
        found[f"{name} straight"] = weights_of(lesson.network)
        found[f"{name} shards"] = {n: torch.tensor(len(p.to_local())) for n, p in lesson.network.named_parameters()}
        found[f"{name} state"] = {
            key: {slot: value.full_tensor() if isinstance(value, DTensor) else value for slot, value in slots.items()}
            for key, slots in optimiser.state_dict().items()
        }
        # Going on, sharded, from what one process had left.
        begun = torch.load(folder / f"{name}.begun")
        net = small_network(share="attention")
        net.load_state_dict(begun["weights"])
        lesson = Lesson(net)
        shard(lesson)
        optimiser = build_optimiser(lesson.network, settings_of(name))
        optimiser.load_state_dict(begun["state"])
        train(lesson, optimiser, range(5, 10))
        found[f"{name} resumed"] = weights_of(lesson.network)
        lesson = Lesson(small_network(share="attention"))
        shard(lesson)
        found[f"{name} one step"] = one_step_on_given_gradients(lesson.network, name)
    torch.save(found, folder / f"found.{rank}")
    dist.destroy_process_group()


if __name__ == "__main__":
    number, count, place = json.loads(sys.argv[1])
    worker(number, count, Path(place))
