"""LAMB against a plain-loop reading of the paper's recipe."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F

from litebert.nn.config import EncoderConfig
from litebert.nn.layout import Layout
from litebert.nn.network import Network, pretraining_network
from litebert.train.lamb import Lamb
from litebert.train.optimisers import build_optimiser
from litebert.train.settings import OptimiserSettings

BETA1, BETA2, EPS, DECAY = 0.9, 0.999, 1e-6, 0.01


def small_network(**fields) -> Network:
    torch.manual_seed(0)
    shape = {"vocab_size": 61, "width": 16, "embedding_width": 8, "num_layers": 3, "num_heads": 2}
    shape |= {"feed_forward_width": 32, "max_positions": 16}
    return pretraining_network(EncoderConfig(**(shape | fields)))


def loss_of(net: Network, step: int) -> torch.Tensor:
    """A masked-LM and order loss on a batch of three sequences that depends on the step alone."""
    ids = torch.randint(5, 61, (18,), generator=torch.Generator().manual_seed(step))
    layout = Layout.of([5, 12, 1])
    states = net.encoder(ids, layout)
    order = net.heads["order"](net.pooled(states, layout))
    places = torch.arange(0, 18, 2)
    return F.cross_entropy(net.masked_lm(states, places), ids[places]) + F.cross_entropy(order, torch.tensor([0, 1, 0]))


class PlainLamb:
    """LAMB (arXiv 1904.00962, algorithm 2), one tensor at a time; query, key and value are three tensors."""

    def __init__(self, net: Network) -> None:
        self.tensors = []
        for name, parameter in net.named_parameters():
            plain = name.endswith("bias") or ".norm." in name
            thirds = [slice(16 * i, 16 * i + 16) for i in range(3)] if "qkv.weight" in name else [slice(None)]
            for rows in thirds:
                zero = torch.zeros_like(parameter[rows], dtype=torch.float64)
                self.tensors.append([parameter, rows, plain, zero, zero.clone()])

    @torch.no_grad()
    def step(self, rate: float) -> None:
        for entry in self.tensors:
            parameter, rows, plain, mean, square = entry
            if parameter.grad is None:
                continue
            gradient, weight = parameter.grad[rows].double(), parameter[rows].double()
            mean = BETA1 * mean + (1 - BETA1) * gradient
            square = BETA2 * square + (1 - BETA2) * gradient * gradient
            update = mean / (square.sqrt() + EPS)
            ratio = 1.0
            if not plain:
                update = update + DECAY * weight
                of_weight, of_update = math.sqrt((weight**2).sum()), math.sqrt((update**2).sum())
                ratio = of_weight / of_update if of_weight > 0 and of_update > 0 else 1.0
            parameter[rows] = (weight - rate * ratio * update).to(parameter.dtype)
            entry[3:] = mean, square


def distance(a: Network, b: Network) -> float:
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    return max(float((x - y).detach().abs().max()) for x, y in pairs)


@pytest.mark.parametrize("share", ["all", "none"])
def test_equals_a_plain_loop_over_forty_steps(share):
    ours = small_network(share=share).double()
    plain = copy.deepcopy(ours)
    start = copy.deepcopy(ours)
    optimiser = build_optimiser(ours, OptimiserSettings(name="lamb", rate=0.00176))
    reference = PlainLamb(plain)
    for step in range(40):
        factor = (step + 1) / 40
        optimiser.set_rate(factor)
        for net in (ours, plain):
            net.zero_grad()
            loss_of(net, step).backward()
        optimiser.step()
        reference.step(0.00176 * factor)
    assert distance(ours, plain) < 1e-12
    assert distance(ours, start) > 0.01


def test_equals_a_plain_loop_in_single_precision():
    ours = small_network()
    plain = copy.deepcopy(ours)
    optimiser, reference = build_optimiser(ours, OptimiserSettings(name="lamb", rate=0.00176)), PlainLamb(plain)
    for step in range(40):
        ours.zero_grad()
        loss_of(ours, step).backward()
        # The same gradients for both: how rounding spreads through a network is not what is asked here.
        for mine, other in zip(ours.parameters(), plain.parameters(), strict=True):
            other.grad = None if mine.grad is None else mine.grad.clone()
        optimiser.step()
        reference.step(0.00176)
    assert distance(ours, plain) < 1e-6


def test_thirds_have_ratios_of_their_own():
    """Query 100 times larger than key: the step is in proportion to each, which one ratio for all could not give."""
    weight = torch.nn.Parameter(torch.ones(6, 2))
    with torch.no_grad():
        weight[:2] *= 100
        weight[4:] = 0
    before = weight.detach().clone()
    weight.grad = torch.randn(6, 2)
    Lamb([{"params": [weight], "parts": 3}], lr=0.01, weight_decay=0.0).step()
    moved = (weight.detach() - before).view(3, -1).norm(dim=1)
    assert moved[0] == pytest.approx(0.01 * 200, rel=1e-5)
    assert moved[1] == pytest.approx(0.01 * 2, rel=1e-5)
    # A third that is all zero has the ratio 1: it moves by the bare direction.
    assert moved[2] == pytest.approx(0.01 * 2 * math.sqrt(0.1**2 / 0.001), rel=1e-3)


def test_zero_gradient_leaves_a_weight_without_decay_alone():
    weight = torch.nn.Parameter(torch.randn(4, 4))
    before = weight.detach().clone()
    weight.grad = torch.zeros(4, 4)
    Lamb([weight], lr=0.1, weight_decay=0.0).step()
    assert torch.equal(weight, before)


def test_no_trust_ratio_and_no_decay_for_norms_and_biases():
    net = small_network()
    optimiser = build_optimiser(net, OptimiserSettings(name="lamb"))
    apart = {
        name
        for group in optimiser.members[0].param_groups
        for name in group["param_names"]
        if not group["trust"] and group["weight_decay"] == 0
    }
    vectors = {name for name, parameter in net.named_parameters() if parameter.ndim == 1}
    assert apart == vectors
    in_thirds = [n for g in optimiser.members[0].param_groups if g["parts"] == 3 for n in g["param_names"]]
    assert in_thirds == ["encoder.attention.0.qkv.weight"]


def test_parameters_without_gradients_are_left_alone():
    used, unused = torch.nn.Parameter(torch.randn(3, 3)), torch.nn.Parameter(torch.randn(3, 3))
    before = unused.detach().clone()
    used.grad = torch.randn(3, 3)
    optimiser = Lamb([used, unused])
    optimiser.step()
    assert torch.equal(unused, before) and unused not in optimiser.state


def test_torch_state_round_trip_is_exact():
    """As any torch optimiser, by its own state dict."""
    torch.manual_seed(0)
    start = torch.randn(6, 4)
    gradients = [torch.randn(6, 4) for _ in range(8)]

    def run(weight, optimiser, some):
        for gradient in some:
            weight.grad = gradient.clone()
            optimiser.step()

    straight = torch.nn.Parameter(start.clone())
    run(straight, Lamb([{"params": [straight], "parts": 3}]), gradients)
    first = torch.nn.Parameter(start.clone())
    optimiser = Lamb([{"params": [first], "parts": 3}])
    run(first, optimiser, gradients[:5])
    second = torch.nn.Parameter(first.detach().clone())
    resumed = Lamb([{"params": [second], "parts": 3}], lr=1.0)
    resumed.load_state_dict(copy.deepcopy(optimiser.state_dict()))
    run(second, resumed, gradients[5:])
    assert torch.equal(second, straight)


@pytest.mark.gpu
def test_on_cuda_as_on_the_cpu():
    plain = small_network()
    moved = copy.deepcopy(plain).cuda()
    settings = OptimiserSettings(name="lamb", rate=0.00176)
    optimisers = [build_optimiser(plain, settings), build_optimiser(moved, settings)]
    for step in range(10):
        plain.zero_grad()
        loss_of(plain, step).backward()
        for mine, other in zip(plain.parameters(), moved.parameters(), strict=True):
            other.grad = None if mine.grad is None else mine.grad.cuda()
        for optimiser in optimisers:
            optimiser.step()
    assert distance(plain, moved.cpu()) < 1e-6
