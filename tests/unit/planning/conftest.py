"""What the tests of memory share: a step predicted, measured and printed."""

import gc
from collections.abc import Callable

import pytest
import torch

from litebert.nn.attention import has_flash
from litebert.nn.config import EncoderConfig, preset_config
from litebert.planning.count import Memory, record_step
from litebert.planning.devices import Kind
from litebert.planning.step import Measured, StepSettings, measure, take_steps
from litebert.train.settings import Precision

Compare = Callable[..., float]
Predict = Callable[..., Memory]


@pytest.fixture
def predicted_over_measured() -> Compare:
    """The predicted peak of a pretraining step over the measured one."""
    return _compare


@pytest.fixture
def predicted() -> Predict:
    """The predicted peak of a pretraining step on full sequences, all logits at once as in the recorded figures."""
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
    settings = StepSettings(
        kind=kind,
        length=length,
        precision=precision,
        checkpointing=checkpointing,
        compiled=compiled,
        flash=flash,
        half_residual=narrow,
        logit_chunk=0,
    )
    return record_step(preset_config(name), settings).memory(tokens)


def _compare(
    name: str,
    kind: Kind,
    tokens: int,
    length: int,
    precision: Precision,
    checkpointing: bool,
    compiled: bool,
    narrow: bool = False,
    layers: int | None = None,
) -> float:
    settings = StepSettings(
        kind=kind,
        length=length,
        precision=precision,
        checkpointing=checkpointing,
        compiled=compiled,
        flash=kind == "cuda" and has_flash(),
        half_residual=narrow,
    )
    config = preset_config(name, [] if layers is None else [f"num_layers={layers}"])
    measured = measure(config, settings, tokens, 1) if kind == "cpu" else _measure_here(config, settings, tokens)
    predicted = record_step(config, settings).memory(tokens)
    ratio = predicted.total / measured.memory_bytes
    print(
        f"\n{name} tokens={tokens} length={length} {precision} compiled={compiled} checkpointing={checkpointing}: "
        f"predicted {predicted.total:.4g} in {predicted.at}, measured {measured.memory_bytes:.4g}, ratio {ratio:.3f}, "
        f"{measured.tokens_per_second:.4g} tokens/s"
    )
    return ratio


def _measure_here(config: EncoderConfig, settings: StepSettings, tokens: int) -> Measured:
    """On a GPU the allocator counts what a step takes, so that no process of its own has to start."""
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    return take_steps(config, settings, tokens, steps=2)
