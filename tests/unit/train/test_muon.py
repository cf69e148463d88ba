"""Muon by the stack against torch's own, matrix by matrix."""

import pytest
import torch

from litebert.train import muon
from litebert.train.muon import StackedMuon

SHAPES = ((24, 24), (48, 24), (24, 24), (24, 48), (16, 40), (24, 24))


def matrices() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape).requires_grad_() for shape in SHAPES]


@pytest.mark.parametrize(("momentum", "has_bf16"), [(0.0, True), (0.9, True), (0.9, False)])
def test_it_is_torchs_own(momentum, has_bf16, monkeypatch):
    monkeypatch.setattr(muon, "has_bf16", lambda device: has_bf16)
    ours, theirs = matrices(), matrices()
    rates = [{"lr": 0.02, "weight_decay": 0.1}, {"lr": 0.05, "weight_decay": 0.0}]
    stacked, plain = (
        make([{"params": each[:4], **rates[0]}, {"params": each[4:], **rates[1]}], momentum=momentum)
        for make, each in ((StackedMuon, ours), (torch.optim.Muon, theirs))
    )
    for step in range(5):
        torch.manual_seed(step)
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn_like(mine)
            other.grad = mine.grad.clone()
        stacked.step()
        plain.step()
    for start, mine, other in zip(matrices(), ours, theirs, strict=True):
        moved = (other - start).norm()
        difference = (mine - other).norm() / moved
        assert moved > 0.1 and difference < (0.005 if has_bf16 else 0.03), difference  # torch's own rounds to bf16
    for mine, other in zip(stacked.state.values(), plain.state.values(), strict=True):
        torch.testing.assert_close(mine["momentum_buffer"], other["momentum_buffer"])


def test_a_matrix_without_a_gradient_stays():
    first, second = matrices()[:2]
    before = second.clone()
    optimiser = StackedMuon([first, second], lr=0.02)
    first.grad = torch.ones_like(first)
    optimiser.step()
    assert torch.equal(second, before) and second not in optimiser.state


def test_a_saved_state_of_torchs_own_goes_on():
    ours, theirs = matrices(), matrices()
    plain = torch.optim.Muon(theirs, lr=0.02)
    for matrix in theirs:
        matrix.grad = torch.ones_like(matrix)
    plain.step()
    stacked = StackedMuon(ours, lr=0.02)
    stacked.load_state_dict(plain.state_dict())
    assert all("momentum_buffer" in stacked.state[matrix] for matrix in ours)
