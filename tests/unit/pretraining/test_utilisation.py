"""The arithmetic of a batch is that of its real tokens, and the measured product is of this machine."""

import dataclasses

import numpy as np
import pytest
import torch

from litebert.nn.config import preset_config
from litebert.planning.arithmetic import MASKED_SHARE, flops_per_token, head_flops
from litebert.planning.devices import product_rate
from litebert.pretraining.objective import batch_flops
from litebert_lab.bench.random_batches import random_batch

CONFIG = preset_config("albert-small")


def test_full_sequences_cost_what_plan_says():
    batch = random_batch(CONFIG, [128] * 8, tokens=1024, length=128, sequences=8)
    masked = batch.num_masked / 1024
    expected = 1024 * (flops_per_token(CONFIG, 128, "pretrain") + 3 * (masked - MASKED_SHARE) * head_flops(CONFIG))
    assert batch_flops(CONFIG, batch) == pytest.approx(expected, rel=1e-9)


def test_padding_costs_nothing_and_short_sequences_less():
    lean = random_batch(CONFIG, [16] * 32, tokens=512, length=128, sequences=32)
    padded = random_batch(CONFIG, [16] * 32, tokens=1024, length=128, sequences=64)
    assert batch_flops(CONFIG, dataclasses.replace(padded, num_masked=lean.num_masked)) == batch_flops(CONFIG, lean)
    long = random_batch(CONFIG, [128] * 4, tokens=512, length=128, sequences=4)
    assert batch_flops(CONFIG, dataclasses.replace(long, num_masked=lean.num_masked)) > batch_flops(CONFIG, lean)
    assert int(np.diff(padded.starts).max()) <= 128


def test_the_measured_product_is_plausible_and_leaves_random_numbers_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    assert 1e8 < product_rate(torch.device("cpu"), "fp32") < 1e15
    assert torch.equal(torch.rand(1), expected)
