"""What the tests of memory share: a step predicted, measured and printed."""

from collections.abc import Callable

import pytest

from litebert.nn.attention import has_flash
from litebert.nn.config import preset_config
from litebert.plan.measure import Request, measure
from litebert.plan.memory import Memory, peak_memory
from litebert.plan.parameters import count_parameters
from litebert.plan.work import Kind, Precision, Work, lengths_for

Compare = Callable[..., float]
Predict = Callable[..., Memory]


@pytest.fixture
def predicted_over_measured() -> Compare:
    """The predicted peak of a pretraining step over the measured one."""
    return _compare


@pytest.fixture
def predicted() -> Predict:
    """The predicted peak of a pretraining step on full sequences."""
    return _predict


def _predict(
    name: str,
    kind: Kind,
    tokens: int,
    length: int,
    precision: Precision,
    checkpointing: bool,
    compiled: bool,
    flash: bool = True,
    narrow: bool = False,
) -> Memory:
    config = preset_config(name)
    work = Work(
        purpose="pretrain",
        kind=kind,
        tokens=tokens,
        sequences=-(-tokens // length),
        longest=length,
        precision=precision,
        checkpointing=checkpointing,
        compiled=compiled,
        flash=flash,
        narrow=narrow,
    )
    return peak_memory(config, count_parameters(config), work)


def _compare(
    name: str,
    kind: Kind,
    tokens: int,
    length: int,
    precision: Precision,
    checkpointing: bool,
    compiled: bool,
    narrow: bool = False,
) -> float:
    lengths = lengths_for(tokens, length, mixed=False)
    measured = measure(
        Request(
            encoder=preset_config(name),
            device=kind,
            lengths=tuple(lengths),
            precision=precision,
            checkpointing=checkpointing,
            compiled=compiled,
            steps=1 if kind == "cpu" else 5,
            narrow=narrow,
        )
    )
    flash = kind == "cuda" and has_flash()
    predicted = _predict(name, kind, tokens, length, precision, checkpointing, compiled, flash, narrow)
    ratio = predicted.total / measured.memory_bytes
    print(
        f"\n{name} tokens={tokens} length={length} {precision} compiled={compiled} checkpointing={checkpointing}: "
        f"predicted {predicted.total:.4g} at {predicted.at}, measured {measured.memory_bytes:.4g}, ratio {ratio:.3f}, "
        f"{measured.tokens_per_second:.4g} tokens/s"
    )
    return ratio
