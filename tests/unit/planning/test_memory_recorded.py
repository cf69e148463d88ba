"""The predicted peak of a pretraining step against figures of whole models, recorded on an H200."""

from collections.abc import Callable

import pytest

from litebert.planning.count import Memory

# (model, tokens, length, precision, compiled, the allocator's peak in bytes without and with checkpointing), as
# `litebert plan MODEL --device here --measure --tokens N` measures them; None: not measured since each layer is a graph
# of its own when compiled with checkpointing (the two that are there come from a profile of the same step, docs/LOG.md)
WIDE = [
    ("albert-base-v2", 16384, 512, "bf16", False, 6.595e9, 1.71e9),
    ("albert-base-v2", 16384, 128, "bf16", False, 6.595e9, 1.71e9),
    ("albert-base-v2", 65536, 512, "bf16", False, 2.565e10, 6.155e9),
    ("albert-base-v2", 65536, 128, "bf16", False, 2.565e10, 6.157e9),
    ("albert-large-v2", 16384, 512, "bf16", False, 1.575e10, 2.779e9),
    ("albert-large-v2", 16384, 128, "bf16", False, 1.575e10, 2.78e9),
    ("albert-large-v2", 65536, 512, "bf16", False, 6.205e10, 1.022e10),
    ("albert-large-v2", 65536, 128, "bf16", False, 6.205e10, 1.023e10),
    ("albert-base", 16384, 512, "bf16", False, 6.898e9, 1.711e9),
    ("albert-large", 16384, 512, "bf16", False, 1.656e10, 2.781e9),
    ("bert-base", 32768, 512, "bf16", False, 1.51e10, 4.617e9),
    ("albert-base-v2", 16384, 512, "fp32", False, 1.323e10, 2.02e9),
    ("albert-base-v2", 65536, 512, "bf16", True, 2.271e10, 4.94e9),
    ("albert-large-v2", 65536, 512, "bf16", True, 5.95e10, 9.78e9),
    ("albert-base-v2", 16384, 128, "bf16", True, 5.934e9, None),
    ("albert-large-v2", 16384, 128, "bf16", True, 1.513e10, None),
    ("bert-base", 32768, 512, "bf16", True, 1.392e10, None),
]
# the same with the narrow residual stream of pretraining, and attention by our own kernels
NARROW = [
    ("albert-base-v2", 65536, 512, "bf16", True, 2.028e10, 3.521e9),
    ("albert-large-v2", 65536, 512, "bf16", True, 5.269e10, 6.292e9),
    ("albert-base-v2", 16384, 128, "bf16", True, 5.248e9, 1.068e9),
    ("albert-large-v2", 16384, 128, "bf16", True, 1.349e10, 1.837e9),
    ("bert-base", 32768, 512, "bf16", True, 1.276e10, 3.528e9),
]
RECORDED = [
    pytest.param(*case, checkpointing, narrow, measured, id=f"{'-'.join(map(str, case))}-{checkpointing=}-{narrow=}")
    for narrow, rows in ((False, WIDE), (True, NARROW))
    for *case, plain, less in rows
    for checkpointing, measured in ((False, plain), (True, less))
    if measured is not None
]


@pytest.mark.parametrize("name,tokens,length,precision,compiled,checkpointing,narrow,measured", RECORDED)
def test_prediction_is_near_the_record(
    predicted: Callable[..., Memory],
    name: str,
    tokens: int,
    length: int,
    precision: str,
    compiled: bool,
    checkpointing: bool,
    narrow: bool,
    measured: float,
) -> None:
    peak = predicted(name, "cuda", tokens, length, precision, checkpointing, compiled, narrow=narrow)
    tolerance = 0.1 if compiled else 0.05
    assert peak.total == pytest.approx(measured, rel=tolerance)


def test_checkpointing_a_compiled_step_takes_a_quarter_of_the_memory(predicted: Callable[..., Memory]) -> None:
    plain, less = (predicted("albert-base", "cuda", 65536, 512, "bf16", way, True).total for way in (False, True))
    assert less < plain / 4


def test_an_older_gpu_pads(predicted: Callable[..., Memory]) -> None:
    new, old = (predicted("albert-base", "cuda", 16384, 512, "fp16", False, False, flash) for flash in (True, False))
    copies = 12 * 4 * 2 * 768 * 16384  # q, k, v and what attention gives, once more in each of the 12 layers
    assert old.total - new.total == pytest.approx(copies, rel=0.02)
