"""Distances, angles and contribution, on vectors whose answer is known."""

import math

import pytest
import torch

from litebert.analyse.layer_statistics import Mean, angle, angles, contribution, distances
from litebert.analyse.measure import measure
from litebert.shrinking.strategies import drop_similar


def test_known_steps():
    before = torch.tensor([[3.0, 0.0], [0.0, 2.0]])
    after = torch.tensor([[3.0, 4.0], [2.0, 0.0]])
    assert distances([before, after])[:, 0].tolist() == pytest.approx([4.0, math.sqrt(8)])
    assert angles([before, after])[:, 0].tolist() == pytest.approx([53.1301, 90.0], abs=1e-4)


@pytest.mark.parametrize("degrees", [0.0, 1e-3, 1.0, 90.0, 179.9, 180.0])
def test_angles_are_exact_at_both_ends(degrees):
    turn = math.radians(degrees)
    a, b = torch.tensor([2.0, 0.0]), 5 * torch.tensor([math.cos(turn), math.sin(turn)])
    assert float(angle(a, b)) == pytest.approx(degrees, rel=1e-4, abs=1e-5)


def test_means_do_not_depend_on_how_batches_are_cut():
    torch.manual_seed(0)
    rows = torch.randn(100, 3)
    whole, parts = Mean(), Mean()
    whole.add(rows)
    for part in rows.split(7):
        parts.add(part)
    assert torch.allclose(whole.value(), parts.value(), atol=1e-14)
    assert torch.allclose(whole.value(), rows.double().mean(0))


def make_idle(network, *layers: int) -> None:
    """Let these layers pass on what comes in: their branches give nothing and the norm meets normal states."""
    with torch.no_grad():
        for layer in layers:
            for part in (network.encoder.attention[layer - 1].out, network.encoder.feed_forward[layer - 1].down):
                part.weight.zero_()
                part.bias.zero_()


@pytest.mark.parametrize("idle", [(2,), (1, 4), (3, 5, 6)])
def test_contribution_finds_layers_that_do_nothing(idle, make_network, make_inputs):
    network = make_network(num_layers=6)
    make_idle(network, *idle)
    cosines = contribution(network.encoder, [make_inputs(5, 9), make_inputs(3, seed=2)])
    assert drop_similar(cosines, len(idle)) == idle
    for layer, cosine in enumerate(cosines, start=1):
        assert (cosine > 1 - 1e-9) == (layer in idle)


def test_the_same_figures_stand_in_the_analysis(make_network, make_inputs):
    network = make_network(num_layers=6)
    make_idle(network, 2, 5)
    batches = [make_inputs(5, 9), make_inputs(3, seed=2)]
    found = measure("it", network.encoder, batches)
    assert [one.cls_cosine for one in found.layers] == contribution(network.encoder, batches)
    assert sorted(found.least_contribution_first[:2]) == [2, 5]
    assert [one.distance < 1e-4 for one in found.layers] == [layer in (2, 5) for layer in range(1, 7)]
    assert (found.texts, found.tokens) == (3, 17)


def test_the_token_that_stands_for_a_text_is_the_last_in_xlnet(make_network, make_inputs):
    first = make_network()
    last = make_network(pooled_token="last")
    inputs = make_inputs(1, 1, 1)
    assert contribution(first.encoder, [inputs]) == contribution(last.encoder, [inputs])
    inputs = make_inputs(5, 6)
    assert contribution(first.encoder, [inputs]) != contribution(last.encoder, [inputs])
