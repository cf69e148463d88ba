"""A model and a batch small enough for exact comparisons."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from litebert.nn.config import preset_config
from litebert.nn.network import pretraining_network
from litebert_lab.bench.random_batches import random_batch

TINY = ("vocab_size=60", "num_layers=4", "width=16", "embedding_width=8", "num_heads=2", "feed_forward_width=32")


@pytest.fixture(scope="session")
def tiny_config():
    return preset_config("albert-tiny", TINY)


@pytest.fixture
def network(tiny_config):
    torch.manual_seed(0)
    return pretraining_network(tiny_config)


@pytest.fixture(scope="session")
def batch(tiny_config):
    made = random_batch(tiny_config, [16, 9, 30], tokens=64, length=32, sequences=4)
    return replace(made, order_labels=np.array([0, 1, 1, -100], np.int32))
