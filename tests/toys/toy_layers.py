"""Model folders with a tokenizer of letters, some of whose layers do nothing, and a text to look at them with."""

from pathlib import Path

import pytest
import torch

from litebert.checkpoints.folder import save_model
from litebert.nn.config import family_config
from litebert.nn.network import HeadsConfig, Network, NetworkConfig

SHAPE = {"vocab_size": 33, "width": 16, "num_heads": 4, "feed_forward_width": 24, "num_layers": 6}


@pytest.fixture
def model_folder(tmp_path, letter_tokenizer):
    """Write a model of a family; ``idle`` layers pass on what comes in."""

    def make(family: str = "bert", idle=(), heads=("masked_lm",), name: str = "model", **fields: object) -> Path:
        torch.manual_seed(0)
        config = family_config({"family": family, **SHAPE, **fields})
        network = Network(NetworkConfig(encoder=config, heads=HeadsConfig(names=heads))).eval()
        with torch.no_grad():
            for part, parameter in network.named_parameters():
                if "norm" not in part:
                    parameter.normal_(std=0.3)
            for layer in idle:
                attention, feed_forward = network.encoder.plan[layer - 1]
                for linear in (
                    network.encoder.attention[attention].out,
                    network.encoder.feed_forward[feed_forward].down,
                ):
                    for parameter in linear.parameters():
                        parameter.zero_()
        save_model(tmp_path / name, network, letter_tokenizer(family), verb="test")
        return tmp_path / name

    return make


@pytest.fixture
def text(tmp_path) -> Path:
    generator = torch.Generator().manual_seed(0)
    lines = []
    for number in range(40):
        letters = torch.randint(0, 26, (3 + number % 17,), generator=generator)
        lines.append("".join(chr(97 + int(letter)) for letter in letters))
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
    return tmp_path / "text.txt"


@pytest.fixture
def table(tmp_path) -> Path:
    """A file of short texts of two kinds."""
    rows = ["text,kind"]
    for number in range(60):
        word = "abcd"[number % 4] * 3 + "xyz"[number % 3]
        rows.append(f"{word}{'mn'[number % 2]},{'early' if number % 4 < 2 else 'late'}")
    (tmp_path / "table.csv").write_text("\n".join(rows) + "\n")
    return tmp_path / "table.csv"
