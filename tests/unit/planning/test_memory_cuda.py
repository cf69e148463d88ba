"""The predicted peak of a pretraining step against the CUDA allocator's. Prints a line for each case (run with -s).

Compiling takes seconds for every layer of a graph, so compiled steps have four layers here. Figures of whole models,
compiled and not, are recorded in test_memory_recorded.py.
"""

from collections.abc import Callable

import pytest

pytestmark = pytest.mark.gpu

# (model, tokens, length, precision), each with and without checkpointing
EAGER = [
    ("albert-base-v2", 16384, 512, "bf16"),
    ("albert-base-v2", 65536, 128, "bf16"),
    ("albert-large-v2", 16384, 128, "bf16"),
    ("albert-base", 16384, 512, "bf16"),
    ("bert-base", 32768, 512, "bf16"),
    ("albert-base-v2", 16384, 512, "fp32"),  # attention pads there
]
# (model, tokens, length, checkpointing, whether the residual stream is narrow), four layers
COMPILED = [
    ("albert-base-v2", 65536, 512, False, True),
    ("albert-base-v2", 65536, 512, True, True),
    ("albert-large-v2", 16384, 128, True, False),
    ("bert-base", 32768, 512, False, False),
]


@pytest.mark.parametrize("checkpointing", [False, True], ids=["plain", "checkpointing"])
@pytest.mark.parametrize("name,tokens,length,precision", EAGER)
def test_prediction_is_within_15_percent(
    predicted_over_measured: Callable[..., float],
    name: str,
    tokens: int,
    length: int,
    precision: str,
    checkpointing: bool,
) -> None:
    assert 0.85 < predicted_over_measured(name, "cuda", tokens, length, precision, checkpointing, False) < 1.15


@pytest.mark.parametrize("name,tokens,length,checkpointing,narrow", COMPILED)
def test_prediction_for_a_compiled_step_is_within_15_percent(
    predicted_over_measured: Callable[..., float],
    name: str,
    tokens: int,
    length: int,
    checkpointing: bool,
    narrow: bool,
) -> None:
    ratio = predicted_over_measured(name, "cuda", tokens, length, "bf16", checkpointing, True, narrow, layers=4)
    assert 0.85 < ratio < 1.15
