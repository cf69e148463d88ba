"""A narrow residual stream: bf16 between blocks under autocast, near to what fp32 gives."""

import pytest
import torch

from litebert.nn.config import family_config
from litebert.nn.layout import Layout
from litebert.nn.network import Network, pretraining_network

LENGTHS = [40, 3, 64, 21]
SIZES = {"vocab_size": 80, "width": 64, "num_heads": 4, "num_layers": 6, "feed_forward_width": 128}
# On a CPU autocast leaves a norm's precision as it is, so only without a projection is the stream fp32 there.
BERT = {"family": "bert", **SIZES, "embedding_width": 64, "dropout": 0.0, "attention_dropout": 0.0}


def network(narrow: bool) -> Network:
    torch.manual_seed(0)
    net = pretraining_network(family_config(BERT))
    net.encoder.half_residual(narrow)
    return net


def loss_of(net: Network, half: bool, seed: int = 1) -> torch.Tensor:
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, 80, (sum(LENGTHS),), generator=random)
    places = torch.arange(0, sum(LENGTHS), 5)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        logits = net.masked_lm(net.encoder(ids, Layout.of(LENGTHS)), places)
    return torch.nn.functional.cross_entropy(logits.float(), ids[places])


def gradients(narrow: bool, half: bool) -> torch.Tensor:
    net = network(narrow)
    loss_of(net, half).backward()
    return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])


def losses(narrow: bool, half: bool, steps: int = 30) -> list[float]:
    net = network(narrow)
    optimiser = torch.optim.AdamW(net.parameters(), lr=2e-3)
    found = []
    for step in range(steps):
        loss = loss_of(net, half, seed=step % 3)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize(
    ("narrow", "half", "dtype"), [(True, True, "bfloat16"), (False, True, "float32"), (True, False, "float32")]
)
def test_the_stream_is_as_wide_as_asked(narrow, half, dtype):
    net, layout = network(narrow), Layout.of(LENGTHS)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        states = net.encoder.states(torch.zeros(sum(LENGTHS), dtype=torch.int64), layout)
    assert {state.dtype for state in states[1:]} == {getattr(torch, dtype)}


def test_gradients_are_within_a_percent_or_two_of_those_in_fp32():
    exact = gradients(False, False)
    wide, narrow = ((gradients(way, True) - exact).norm() / exact.norm() for way in (False, True))
    assert 0 < wide < narrow < 2.5 * wide < 0.02


def test_it_learns_as_fp32_does():
    exact, narrow = losses(False, False), losses(True, True)
    assert exact[-1] < 0.9 * exact[0]
    assert narrow == pytest.approx(exact, rel=0.02)
