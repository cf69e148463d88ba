"""The predicted peak of a pretraining step against the resident memory of a process that takes two such steps."""

import pytest

from litebert.nn.families import preset_config
from litebert.plan.measure import Request, measure
from litebert.plan.memory import peak_memory
from litebert.plan.parameters import count_parameters
from litebert.plan.work import Work, lengths_for

FAST = [("albert-base", 512, 128, False), ("albert-base", 512, 128, True)]
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
def test_prediction_is_within_15_percent(name: str, tokens: int, length: int, checkpointing: bool) -> None:
    config = preset_config(name)
    lengths = lengths_for(tokens, length, mixed=False)
    measured = measure(
        Request(
            encoder=config,
            device="cpu",
            lengths=tuple(lengths),
            precision="fp32",
            checkpointing=checkpointing,
            compiled=False,
            steps=1,
        )
    )
    work = Work(
        purpose="pretrain",
        kind="cpu",
        tokens=tokens,
        sequences=len(lengths),
        longest=length,
        precision="fp32",
        checkpointing=checkpointing,
    )
    predicted = peak_memory(config, count_parameters(config), work)
    ratio = predicted.total / measured.memory_bytes
    print(
        f"\n{name} tokens={tokens} length={length} checkpointing={checkpointing}: predicted {predicted.total:.4g} at "
        f"{predicted.at}, measured {measured.memory_bytes:.4g} ({measured.runtime_bytes:.3g} of it Python and torch), "
        f"ratio {ratio:.3f}, {measured.seconds_per_step:.1f} s a step"
    )
    assert 0.85 < ratio < 1.15
