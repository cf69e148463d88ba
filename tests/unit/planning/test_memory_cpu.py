"""The predicted peak of a pretraining step against the resident memory of a process that takes two such steps."""

from collections.abc import Callable

import pytest

FAST = [("albert-base", 512, 128, checkpointing) for checkpointing in (False, True)]
SLOW = [
    (name, tokens, length, checkpointing)
    for name, tokens, length in [
        ("albert-base", 2048, 512),
        ("albert-base-v2", 2048, 128),
        ("albert-base-v2", 4096, 512),
        ("albert-large", 1024, 128),
        ("albert-large-v2", 2048, 512),
        ("bert-base", 1024, 128),
    ]
    for checkpointing in (False, True)
]


@pytest.mark.parametrize(
    "name,tokens,length,checkpointing", [*FAST, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)]
)
def test_prediction_is_within_15_percent(
    predicted_over_measured: Callable[..., float], name: str, tokens: int, length: int, checkpointing: bool
) -> None:
    assert 0.85 < predicted_over_measured(name, "cpu", tokens, length, "fp32", checkpointing, False) < 1.15
