"""Optimisers by part of the model: rates, states, Muon's thirds, and two ranks against one."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from litebert.config import build
from litebert.errors import InputError
from litebert.nn.config import EncoderConfig
from litebert.nn.families import family_config
from litebert.nn.layout import Layout
from litebert.nn.network import HeadsConfig, Network, NetworkConfig
from litebert.train.optimisers import OPTIMISERS, PARTS, OptimiserSettings, build_optimiser, part_of

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


def test_every_parameter_has_a_part_and_is_updated_once():
    for net in (small_network(), small_network(share="none"), xlnet()):
        for name in OPTIMISERS:
            optimiser = build_optimiser(net, OptimiserSettings(name=name))
            held = [pair for member in optimiser.members for group in member.param_groups for pair in group["params"]]
            assert sum(tensor.numel() for tensor in held) == sum(p.numel() for p in net.parameters())
            assert len(optimiser.parameters()) == len(list(net.parameters()))
        assert {part_of(parameter) for parameter, _ in net.named_parameters()} == set(PARTS)


def xlnet() -> Network:
    shape = {"vocab_size": 61, "width": 8, "embedding_width": 8, "num_layers": 2, "num_heads": 2}
    encoder = family_config({"family": "xlnet", **shape, "feed_forward_width": 16})
    return Network(NetworkConfig(encoder=encoder, heads=HeadsConfig(names=("masked_lm", "order"))))


def test_biases_of_two_dimensions_are_biases():
    optimiser = build_optimiser(xlnet(), OptimiserSettings(name="muon"))
    decays = {
        name: group["weight_decay"] > 0
        for member in optimiser.members
        for group in member.param_groups
        for name in group["param_names"]
    }
    assert not decays["encoder.attention.0.relative.content_bias"]
    assert decays["encoder.attention.0.relative.distance.weight"]
    by_muon = {name for group in optimiser.members[1].param_groups for name in group["param_names"]}
    assert "encoder.attention.0.relative.distance.weight" in by_muon
    assert not any("bias" in name or "norm" in name or "embeddings" in name or "heads" in name for name in by_muon)


def test_rates_by_part():
    optimiser = build_optimiser(small_network(), settings_of("muon"))
    assert optimiser.rates() == pytest.approx(
        {
            "embeddings": 3e-3,
            "attention": 5e-4,
            "feed_forward": 1e-3,
            "pooler": 1e-3,
            "heads": 1e-3,
            "attention_muon": 5e-3,
            "feed_forward_muon": 1e-2,
        }
    )
    optimiser.set_rate(0.5)
    optimiser.set_rate(0.1)  # of the base rate, not of the one before
    assert optimiser.rates()["embeddings"] == pytest.approx(3e-4)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_part_with_rate_zero_stays(name):
    net = small_network()
    before = copy.deepcopy(weights_of(net))
    optimiser = build_optimiser(net, OptimiserSettings(name=name, part_rates=(("attention", 0.0),)))
    train(Lesson(net), optimiser, range(3))
    for parameter, value in weights_of(net).items():
        assert torch.equal(value, before[parameter]) == (part_of(parameter) == "attention"), parameter


def test_muon_makes_each_third_orthogonal():
    """Thirds of very different size move by matrices with like singular values; as a whole they would not."""
    net = small_network(width=32, feed_forward_width=64)
    weight = net.encoder.attention[0].qkv.weight
    before = weight.detach().clone()
    optimiser = build_optimiser(net, OptimiserSettings(name="muon", weight_decay=0.0, muon_rate=1.0))
    scale = torch.tensor([1.0, 1e-2, 1e-4]).repeat_interleave(32)[:, None]
    weight.grad = torch.randn(96, 32, generator=torch.Generator().manual_seed(0)) * scale
    optimiser.step()
    for third in (weight.detach() - before).chunk(3):
        values = torch.linalg.svdvals(third)
        assert values[0] < 1.4 and values[values.numel() // 2] > 0.6


def test_muon_refuses_a_network_that_has_moved():
    net = small_network()
    optimiser = build_optimiser(net, OptimiserSettings(name="muon"))
    Lesson(net)(0).backward()
    weight = net.encoder.attention[0].qkv.weight
    weight.data = weight.data.clone()
    with pytest.raises(RuntimeError, match="on its device before"):
        optimiser.step()


@pytest.mark.parametrize("name", OPTIMISERS)
def test_state_round_trip_is_exact(name, tmp_path):
    straight = small_network()
    train(Lesson(straight), build_optimiser(straight, settings_of(name)), range(8))
    first = small_network()
    optimiser = build_optimiser(first, settings_of(name))
    train(Lesson(first), optimiser, range(5))
    torch.save(optimiser.state_dict(), tmp_path / "state")
    second = copy.deepcopy(first)
    resumed = build_optimiser(second, settings_of(name))
    resumed.load_state_dict(torch.load(tmp_path / "state"))
    train(Lesson(second), resumed, range(5, 8))
    assert worst(weights_of(second), weights_of(straight)) == 0


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_state_put_back_is_a_copy(name):
    net = small_network()
    optimiser = build_optimiser(net, settings_of(name))
    train(Lesson(net), optimiser, range(2))
    kept = copy.deepcopy(optimiser.state_dict())
    given = copy.deepcopy(kept)
    optimiser.load_state_dict(given)
    train(Lesson(net), optimiser, range(2, 4))
    for parameter, slots in kept.items():
        for slot, value in slots.items():
            assert torch.equal(given[parameter][slot], value)


def test_a_state_before_the_first_step_is_empty():
    net = small_network()
    optimiser = build_optimiser(net, settings_of("adamw"))
    assert optimiser.state_dict() == {}
    optimiser.load_state_dict({})


def test_a_state_of_a_smaller_network_goes_into_a_grown_one():
    net, grown = small_network(share="none", num_layers=2), small_network(share="none", num_layers=3)
    optimiser, larger = build_optimiser(net, settings_of("lamb")), build_optimiser(grown, settings_of("lamb"))
    train(Lesson(net), optimiser, range(2))
    larger.load_state_dict(optimiser.state_dict())
    assert len(larger.state_dict()) == len(optimiser.state_dict()) < len(larger.parameters())
    train(Lesson(grown), larger, range(2))
    assert len(larger.state_dict()) == len(larger.parameters())


def test_a_state_of_another_model_or_optimiser_is_refused():
    net = small_network()
    optimiser = build_optimiser(net, settings_of("muon"))
    train(Lesson(net), optimiser, range(1))
    state = optimiser.state_dict()
    with pytest.raises(InputError, match=r"qkv.weight.0', which this network and optimiser do not have"):
        build_optimiser(net, settings_of("lamb")).load_state_dict(state)
    with pytest.raises(InputError, match=r"of shape \(10, 7\), not \(12, 7\)"):
        build_optimiser(small_network(width=12), settings_of("muon")).load_state_dict(state)


def test_frozen_parameters_are_left_out():
    net = small_network()
    for parameter in net.encoder.embeddings.parameters():
        parameter.requires_grad_(False)
    optimiser = build_optimiser(net, OptimiserSettings())
    assert "embeddings" not in optimiser.rates()
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(InputError, match="no trainable parameters"):
        build_optimiser(net, OptimiserSettings())


@pytest.mark.parametrize("name", OPTIMISERS)
def test_loss_scaling(name):
    """Scaled and unscaled training agree, and an overflow in one matrix skips the step everywhere."""
    plain, scaled = small_network(), small_network()
    optimiser, under_scale = build_optimiser(plain, settings_of(name)), build_optimiser(scaled, settings_of(name))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    for step in range(3):
        Lesson(plain)(step).backward()
        optimiser.step()
        optimiser.zero_grad()
        scaler.scale(Lesson(scaled)(step)).backward()
        under_scale.unscale(scaler)
        under_scale.step_scaled(scaler)
        under_scale.zero_grad()
    assert worst(weights_of(plain), weights_of(scaled)) < (1e-6 if name != "muon" else 1e-3)  # Muon rounds to bf16
    before = copy.deepcopy(weights_of(scaled))
    scaler.scale(Lesson(scaled)(9)).backward()
    scaled.encoder.attention[0].qkv.weight.grad[0, 0] = torch.inf
    under_scale.unscale(scaler)
    under_scale.step_scaled(scaler)
    assert worst(before, weights_of(scaled)) == 0
    assert scaler.get_scale() == 2.0**9


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"name": "adam"}, "did you mean 'adamw'"),
        ({"rate": 0.0}, "rate is 0.0"),
        ({"rate": float("nan")}, "rate is nan"),
        ({"betas": (0.9, 1.0)}, "betas is"),
        ({"weight_decay": -0.1}, "weight_decay is -0.1"),
        ({"muon_momentum": 1.0}, "muon_momentum is 1.0"),
        ({"part_rates": (("attentoin", 0.1),)}, "did you mean 'attention'"),
        ({"part_rates": (("heads", 0.1), ("heads", 0.2))}, "twice"),
        ({"part_rates": (("heads", -1.0),)}, "0 or more"),
    ],
)
def test_bad_settings(fields, words):
    with pytest.raises(InputError, match=words):
        OptimiserSettings(**fields)


def test_settings_from_a_recipe():
    fields = {"name": "lamb", "rate": "1.76e-3", "part_rates": [["attention", 0.1]], "betas": [0.9, 0.98]}
    settings = build(OptimiserSettings, fields)
    assert settings.part_rate("attention") == 0.1 and settings.part_rate("heads") == 1.0
    assert settings.betas == (0.9, 0.98) and settings.rate == 0.00176


def test_settings_need_no_torch():
    """Recipes are listed and shown in an instant."""
    code = "import sys, litebert.train.optimiser_settings, litebert.train.schedules; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_state_from_the_cpu_goes_on_cuda(name):
    net = small_network()
    optimiser = build_optimiser(net, settings_of(name))
    train(Lesson(net), optimiser, range(3))
    moved = copy.deepcopy(net).cuda()
    resumed = build_optimiser(moved, settings_of(name))
    resumed.load_state_dict(optimiser.state_dict())
    for each in (optimiser, resumed):
        each.set_rate(0.5)
    Lesson(net)(3).backward()
    for mine, other in zip(net.parameters(), moved.parameters(), strict=True):
        other.grad = None if mine.grad is None else mine.grad.cuda()
    optimiser.step()
    resumed.step()
    assert worst(weights_of(net), weights_of(moved.cpu())) < (1e-6 if name != "muon" else 1e-3)  # Muon rounds to bf16


# Two ranks. The worker is this file run as a program, since spawned processes cannot import a test module by name.


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


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    """What one process and what two ranks with FSDP2 made of the same lessons, by optimiser."""
    folder = tmp_path_factory.mktemp("ranks")
    alone = {}
    for name in OPTIMISERS:
        net = small_network(share="attention")
        optimiser = build_optimiser(net, settings_of(name))
        train(Lesson(net), optimiser, range(5))
        torch.save({"weights": net.state_dict(), "state": optimiser.state_dict()}, folder / f"{name}.begun")
        train(Lesson(net), optimiser, range(5, 10))
        alone[name] = {"weights": weights_of(net), "state": optimiser.state_dict()}
        alone[name]["one step"] = one_step_on_given_gradients(small_network(share="attention"), name)
    command = [sys.executable, __file__]
    processes = [subprocess.Popen([*command, json.dumps([rank, 2, str(folder)])]) for rank in range(2)]
    try:
        assert [process.wait(timeout=120) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
    return alone, [torch.load(folder / f"found.{rank}") for rank in range(2)]


# Muon makes matrices orthogonal in bf16, which blows the last digits of a gradient up to about a hundredth of the
# 0.1 that a weight may go in these steps; given the same gradients, it is exact.
TOLERANCE = {"adamw": 1e-6, "lamb": 1e-6, "muon": 3e-3}
EXACT = {"adamw": 0.0, "lamb": 1e-7, "muon": 0.0}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_two_ranks_equal_one(two_ranks, name):
    alone, found = two_ranks
    for rank in found:
        assert worst(rank[f"{name} one step"], alone[name]["one step"]) <= EXACT[name]
        assert worst(rank[f"{name} straight"], alone[name]["weights"]) < TOLERANCE[name]
        assert worst(rank[f"{name} resumed"], alone[name]["weights"]) < TOLERANCE[name]
        assert rank[f"{name} state"].keys() == alone[name]["state"].keys()
        for key, slots in rank[f"{name} state"].items():
            assert worst(slots, alone[name]["state"][key]) < TOLERANCE[name], key


def test_the_hard_shards_were_there(two_ranks):
    first, second = (rank["lamb shards"] for rank in two_ranks[1])
    assert (first["encoder.attention.0.qkv.weight"], second["encoder.attention.0.qkv.weight"]) == (15, 15)
    assert (first["encoder.embeddings.token.weight"], second["encoder.embeddings.token.weight"]) == (31, 30)
    assert (first["heads.choice.linear.weight"], second["heads.choice.linear.weight"]) == (1, 0)


if __name__ == "__main__":
    number, count, place = json.loads(sys.argv[1])
    worker(number, count, Path(place))
