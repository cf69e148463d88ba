"""Every family is complete: all its tensors have names, its config.json reads back, and none of it needs torch."""

import subprocess
import sys

import pytest
import torch

from litebert.checkpoints.huggingface import (
    expected_shapes,
    heads_present,
    read_encoder_config,
    read_heads,
    read_theirs,
    write_config,
    write_theirs,
)
from litebert.families import FAMILIES
from litebert.nn.config import family_config
from litebert.nn.network import HeadsConfig, NetworkConfig

SMALL = {"vocab_size": 50, "width": 32, "num_layers": 2, "num_heads": 4, "feed_forward_width": 64}
HEADS = [("masked_lm", "order", "replaced"), ("classify",), ("choice",), ("span",), ()]


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("family", FAMILIES)
def test_tensors_and_config_read_back(family, heads):
    encoder = family_config({"family": family, **SMALL})
    config = NetworkConfig(encoder=encoder, heads=HeadsConfig(names=heads, answerable="span" in heads))
    ours = {name: torch.rand(shape) for name, shape in expected_shapes(config).items()}
    theirs = write_theirs(ours, config)
    written = write_config(config)
    again = read_encoder_config(written, family)
    assert again.plan == encoder.plan and expected_shapes(NetworkConfig(encoder=again)).keys() <= ours.keys()
    reading = read_theirs(theirs, NetworkConfig(encoder=again, heads=config.heads))
    assert not reading.missing and not reading.unused
    assert all(torch.equal(reading.tensors[name], tensor) for name, tensor in ours.items())
    named = set(read_heads(written, family, heads_present(theirs, family)).names)
    assert named == set(heads)


def test_the_file_of_a_family_bears_its_name():
    assert {f"litebert.families.{name}" for name in FAMILIES} <= set(sys.modules)


def test_families_and_presets_need_no_torch():
    code = "import sys, litebert.families, litebert.nn.config; print({'torch', 'tokenizers'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
