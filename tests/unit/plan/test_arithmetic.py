"""Arithmetic per token against the closed formula and against what torch counts."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from litebert.nn.config import preset_config
from litebert.nn.network import pretraining_network
from litebert.plan.arithmetic import Purpose, flops_per_token
from litebert.plan.step import made_up_batch, pretraining_loss


@pytest.mark.parametrize("name", ["albert-base", "albert-large", "albert-xlarge", "albert-xxlarge"])
def test_pretraining_follows_the_usual_formula(name: str) -> None:
    config, length = preset_config(name), 512
    layers, width, size, vocabulary = config.num_layers, config.width, config.embedding_width, config.vocab_size
    expected = 6 * (12 * layers * width**2 + 0.15 * (width * size + size * vocabulary) + size * width)
    expected += 12 * layers * width * length
    assert flops_per_token(config, length, "pretrain") == pytest.approx(expected, rel=1e-12)


def test_sharing_saves_no_arithmetic() -> None:
    shared, written_out = (preset_config("albert-base", [f"share={share}"]) for share in ("all", "none"))
    purposes: tuple[Purpose, ...] = ("infer", "finetune", "pretrain")
    for purpose in purposes:
        assert flops_per_token(shared, 128, purpose) == flops_per_token(written_out, 128, purpose)


@pytest.mark.parametrize("name", ["albert-tiny", "xlnet-base"])
def test_torch_counts_the_same(name: str) -> None:
    # Attention weights are dropped so that attention is written as products, which the counter knows.
    config = preset_config(
        name,
        [
            "num_layers=2",
            "width=128",
            "num_heads=2",
            "feed_forward_width=512",
            "vocab_size=3000",
            "attention_dropout=0.1",
        ],
    )
    lengths = [64] * 16
    batch = made_up_batch(config, lengths, "cpu")
    network = pretraining_network(config).train()
    with FlopCounterMode(display=False) as counter:
        pretraining_loss(network, batch).backward()
    counted = counter.get_total_flops() / sum(lengths)
    assert flops_per_token(config, 64, "pretrain") == pytest.approx(counted, rel=0.03)  # the pooler is left out
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network.encoder(batch.ids, batch.layout, batch.segments)
    assert flops_per_token(config, 64, "infer") == pytest.approx(counter.get_total_flops() / sum(lengths), rel=0.03)
