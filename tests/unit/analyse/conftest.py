"""Small encoders with weights large enough to matter, and random inputs for them."""

import pytest
import torch

from litebert.analyse.inputs import Inputs
from litebert.nn.config import EncoderConfig
from litebert.nn.layout import Layout
from litebert.nn.network import Network, NetworkConfig


@pytest.fixture
def make_network():
    """A network of four layers unless said otherwise."""

    def make(seed: int = 0, std: float = 0.3, **fields: object) -> Network:
        shape = {"vocab_size": 50, "width": 16, "embedding_width": 16, "num_heads": 4, "feed_forward_width": 24}
        settings = {"share": "none", "num_layers": 4, **shape, **fields}
        torch.manual_seed(seed)
        network = Network(NetworkConfig(encoder=EncoderConfig(**settings))).eval()
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                if "norm" not in name:
                    parameter.normal_(std=std)
        return network

    return make


@pytest.fixture
def make_inputs():
    """Random texts of these lengths."""

    def make(*lengths: int, seed: int = 1) -> Inputs:
        generator = torch.Generator().manual_seed(seed)
        total = sum(lengths)
        ids = torch.randint(5, 50, (total,), generator=generator)
        return Inputs(ids, Layout.of(list(lengths)), torch.zeros(total, dtype=torch.long))

    return make
