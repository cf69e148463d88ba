"""The longest text that there is memory for: half as long until it fits, never below 512."""

from dataclasses import replace

import pytest

import litebert
from litebert.nn.config import preset_config
from litebert.planning.count import longest_in, record_step
from litebert.planning.step import StepSettings

LONG = replace(preset_config("albert-tiny"), max_positions=4096, attention="local(32)+global")
STEP = StepSettings(purpose="finetune", kind="cpu", length=512, precision="fp32")


def needed(config, length):
    return record_step(config, replace(STEP, length=length)).memory(length).total


@pytest.mark.parametrize("length", [4096, 2048, 1024, 512])
def test_the_longest_is_what_just_fits(length):
    assert longest_in(LONG, STEP, needed(LONG, length) + 1) == length


def test_a_pass_of_more_tokens_counts():
    assert longest_in(LONG, STEP, needed(LONG, 1024) + 1, pass_tokens=2048) == 512


def test_attention_weights_that_are_dropped_take_room():
    """Their tables are as large as the square of the length."""
    dropping = replace(LONG, attention_dropout=0.1, attention="full")
    room = needed(LONG, 4096) + 1
    assert longest_in(dropping, STEP, room) < 4096


def test_plan_says_how_long_texts_may_be():
    words = ["albert-tiny", "max_positions=4096", "attention=local(32)+global", "dropout=0", "attention_dropout=0"]
    found = litebert.plan(words, device="t4")[0]
    assert found.longest == {"infer": 4096, "finetune": 4096, "pretrain": 4096}
    assert litebert.plan("albert-tiny", device="t4").longest["infer"] == 512


def test_models_of_any_length_keep_the_usual_limit():
    config = replace(preset_config("xlnet-base"), num_layers=1)
    assert config.input_limit() == 512 and config.input_limit(900) == 900
    assert LONG.input_limit() == 4096 and LONG.input_limit(900) == 900 and LONG.input_limit(5000) == 4096
    assert longest_in(config, STEP, 1.0) == 512
