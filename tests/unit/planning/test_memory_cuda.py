"""The predicted peak of a pretraining step against the CUDA allocator's. Prints a line for each case (run with -s)."""

import itertools
from collections.abc import Callable

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

# (model, tokens, length, precision, compiled), each with and without checkpointing
CASES = [
    *itertools.product(("albert-base-v2", "albert-large-v2"), (16384, 65536), (512, 128), ("bf16",), (False,)),
    ("albert-base", 16384, 512, "bf16", False),
    ("albert-large", 16384, 512, "bf16", False),
    ("bert-base", 32768, 512, "bf16", False),
    ("albert-base-v2", 16384, 512, "fp32", False),  # attention pads there
    ("albert-base-v2", 65536, 512, "bf16", True),
    ("albert-large-v2", 65536, 512, "bf16", True),
    ("albert-base-v2", 16384, 128, "bf16", True),
    ("albert-large-v2", 16384, 128, "bf16", True),
    ("bert-base", 32768, 512, "bf16", True),
]


@pytest.mark.parametrize("checkpointing", [False, True], ids=["plain", "checkpointing"])
@pytest.mark.parametrize("name,tokens,length,precision,compiled", CASES)
def test_prediction_is_within_15_percent(
    predicted_over_measured: Callable[..., float],
    name: str,
    tokens: int,
    length: int,
    precision: str,
    compiled: bool,
    checkpointing: bool,
) -> None:
    ratio = predicted_over_measured(name, "cuda", tokens, length, precision, checkpointing, compiled)
    assert 0.85 < ratio < 1.15


@pytest.mark.parametrize("checkpointing", [False, True], ids=["plain", "checkpointing"])
@pytest.mark.parametrize("name,tokens,length", [case[:3] for case in CASES if case[4]])
def test_prediction_for_a_narrow_stream_is_within_15_percent(
    predicted_over_measured: Callable[..., float], name: str, tokens: int, length: int, checkpointing: bool
) -> None:
    ratio = predicted_over_measured(name, "cuda", tokens, length, "bf16", checkpointing, True, narrow=True)
    assert 0.85 < ratio < 1.15
