"""Which numbers a run computes with when nobody says."""

import pytest
import torch

from litebert.train import precision

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("capabilities", "width", "wanted"),
    [
        ({"avx512_bf16": True}, 256, "bf16"),
        ({"avx512_bf16": False, "amx_bf16": True}, 128, "bf16"),
        ({"avx512_bf16": True}, 64, "fp32"),  # too narrow to gain by it
        ({"avx2": True}, 768, "fp32"),
    ],
)
def test_training_on_a_cpu_takes_what_it_multiplies_fast(monkeypatch, capabilities, width, wanted):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert precision.training_precision(CPU, width) == wanted


def test_a_torch_that_cannot_say_computes_in_fp32(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert precision.training_precision(CPU, 768) == "fp32"


def test_what_only_runs_stays_in_fp32_on_a_cpu(monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    assert precision.default_precision(CPU) == "fp32"
