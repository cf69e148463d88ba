"""A run that cannot fit is refused before it begins, with the largest micro-batch that does."""

import re

import pytest
import torch

from litebert.errors import InputError
from litebert.nn.config import preset_config
from litebert.planning.count import record_step
from litebert.planning.step import StepSettings
from litebert.pretraining import memory
from litebert.pretraining.recipe import BatchPlan, Recipe
from litebert.train.parallel import Ranks
from litebert.train.settings import Bound, OptimiserSettings, ScheduleSettings, TrainSettings

CONFIG = preset_config("albert-small")
GIB = 2**30


def settings(micro: int, *, batches=((0.0, 65_536),), checkpointing: bool = False) -> TrainSettings:
    return TrainSettings(
        bound=Bound(steps=1),
        optimiser=OptimiserSettings(),
        schedule=ScheduleSettings(),
        batch_tokens=batches,
        micro_tokens=micro,
        checkpointing=checkpointing,
    )


def check(train: TrainSettings, **recipe) -> None:
    ranks = Ranks(0, 1, torch.device("cpu"), None)
    memory.check_memory(
        "albert-small", CONFIG, Recipe(batches=BatchPlan(lengths=((0.0, 128),)), **recipe), train, ranks
    )


def test_a_batch_too_large_is_refused_and_the_one_named_fits(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda _: 1.0 * GIB)
    with pytest.raises(InputError, match=r"for 65,536 tokens at once, but .* are free; use --micro-tokens") as error:
        check(settings(65_536))
    named = int(re.findall(r"--micro-tokens (\d+)", str(error.value))[0])
    check(settings(named))
    with pytest.raises(InputError):
        check(settings(2 * named))
    assert "--checkpointing" in str(error.value)


@pytest.mark.parametrize(
    "more", [{"elastic": True}, {"mask_rate": 0.3}, {"mask_rate": 0.3, "elastic": True}], ids=["depth", "masks", "both"]
)
def test_what_else_the_vocabulary_is_scored_for_counts(more):
    """A second depth and more masks leave room for fewer tokens; scores in chunks for more again."""

    def largest(**changes) -> int:
        step = StepSettings(kind="cpu", length=128, precision="fp32", **changes)
        return record_step(CONFIG, step).largest_tokens(3.0 * GIB)

    assert largest(**more, logit_chunk=0) < 0.8 * largest(logit_chunk=0)
    assert largest(**more, logit_chunk=256) > 1.2 * largest(logit_chunk=0)


def test_the_run_tells_what_it_scores(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda _: 3.0 * GIB)
    check(settings(16_384))
    with pytest.raises(InputError, match="--micro-tokens 8192"):
        check(settings(16_384), elastic=True)


def test_with_memory_enough_nothing_is_said(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda _: 200.0 * GIB)
    check(settings(65_536))
    monkeypatch.setattr(memory, "available_memory", lambda _: None)  # where it cannot be found out
    check(settings(65_536))


def test_where_no_batch_fits_a_smaller_model_is_asked_for(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda _: 1e6)
    with pytest.raises(InputError, match="use a smaller model"):
        check(settings(1024))


def test_what_is_named_divides_every_batch_of_the_run():
    ramp = settings(1024, batches=((0.0, 12_288), (0.5, 49_152)))
    assert memory.largest_micro_tokens(ramp, 128, 2, 5000) == 3072
    assert memory.largest_micro_tokens(ramp, 4096, 2, 5000) == 0


def test_memory_that_is_free_is_less_than_there_is(monkeypatch):
    free = memory.available_memory(torch.device("cpu"))
    assert free is not None and 1e8 < free < 1e14
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert memory.available_memory(torch.device("cpu")) < free / 3
