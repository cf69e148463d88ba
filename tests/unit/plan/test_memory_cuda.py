"""The predicted peak of a pretraining step against the CUDA allocator's. Prints a line for each case (run with -s)."""

import itertools

import pytest
import torch

from litebert.nn.families import preset_config
from litebert.plan.measure import Request, measure
from litebert.plan.memory import peak_memory
from litebert.plan.parameters import count_parameters
from litebert.plan.work import Work, lengths_for

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

# (model, tokens, length, precision, compiled), each with and without checkpointing
CASES = [
    *itertools.product(("albert-base-v2", "albert-large-v2"), (16384, 65536), (512, 128), ("bf16",), (False,)),
    ("albert-base", 16384, 512, "bf16", False),  # drops attention weights, so attention pads
    ("albert-large", 16384, 512, "bf16", False),
    ("bert-base", 32768, 512, "bf16", False),
    ("albert-base-v2", 16384, 512, "fp32", False),
    ("albert-base-v2", 65536, 512, "bf16", True),
    ("albert-large-v2", 65536, 512, "bf16", True),
    ("albert-base-v2", 16384, 128, "bf16", True),
    ("albert-large-v2", 16384, 128, "bf16", True),
    ("bert-base", 32768, 512, "bf16", True),
]


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True], ids=["plain", "checkpointing"])
@pytest.mark.parametrize("name,tokens,length,precision,compiled", CASES)
def test_prediction_is_within_15_percent(
    name: str, tokens: int, length: int, precision: str, compiled: bool, checkpointing: bool
) -> None:
    config = preset_config(name)
    lengths = lengths_for(tokens, length, mixed=False)
    measured = measure(
        Request(
            encoder=config,
            device="cuda",
            lengths=tuple(lengths),
            precision=precision,
            checkpointing=checkpointing,
            compiled=compiled,
            steps=5,
        )
    )
    work = Work(
        purpose="pretrain",
        kind="cuda",
        tokens=tokens,
        sequences=len(lengths),
        longest=length,
        precision=precision,  # type: ignore[arg-type]
        checkpointing=checkpointing,
        compiled=compiled,
    )
    predicted = peak_memory(config, count_parameters(config), work)
    ratio = predicted.total / measured.memory_bytes
    print(
        f"\n{name} tokens={tokens} length={length} {precision} compiled={compiled} checkpointing={checkpointing}: "
        f"predicted {predicted.total:.4g} at {predicted.at}, measured {measured.memory_bytes:.4g}, ratio {ratio:.3f}, "
        f"{measured.tokens_per_second:.4g} tokens/s"
    )
    assert 0.85 < ratio < 1.15
