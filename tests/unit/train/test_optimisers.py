"""Optimisers by part of the model: rates, what decays, Muon's thirds, loss scaling."""

import copy

import pytest
import torch
from toy_lessons import Lesson, settings_of, small_network, train, weights_of, worst

from litebert.errors import InputError
from litebert.nn.config import family_config
from litebert.nn.network import HeadsConfig, Network, NetworkConfig
from litebert.train.optimisers import build_optimiser, part_of
from litebert.train.settings import OPTIMISERS, PARTS, OptimiserSettings


def test_every_parameter_has_a_part_and_is_updated_once():
    for net in (small_network(), small_network(share="none"), xlnet()):
        for name in OPTIMISERS:
            optimiser = build_optimiser(net, OptimiserSettings(name=name))
            held = [pair for member in optimiser.members for group in member.param_groups for pair in group["params"]]
            assert sum(tensor.numel() for tensor in held) == sum(p.numel() for p in net.parameters())
            assert len(optimiser.parameters()) == len(list(net.parameters()))
        assert {part_of(parameter) for parameter, _ in net.named_parameters()} == set(PARTS)
    assert part_of("heads.order.linear.weight") == "pooler"  # of one rate: the one reads the other


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
        under_scale.update(scaler, 0.0)
    assert worst(weights_of(plain), weights_of(scaled)) < (1e-6 if name != "muon" else 1e-3)  # Muon rounds to bf16
    before = copy.deepcopy(weights_of(scaled))
    scaler.scale(Lesson(scaled)(9)).backward()
    scaled.encoder.attention[0].qkv.weight.grad[0, 0] = torch.inf
    under_scale.update(scaler, 0.0)
    assert worst(before, weights_of(scaled)) == 0
    assert scaler.get_scale() == 2.0**9
