"""The state of an optimiser: put back it goes on exactly, into a grown network, too, and not into another."""

import copy

import pytest
import torch
from toy_lessons import Lesson, settings_of, small_network, train, weights_of, worst

from litebert.errors import InputError
from litebert.train.optimisers import build_optimiser
from litebert.train.settings import OPTIMISERS


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
