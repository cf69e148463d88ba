"""Arithmetic per token: what plan counts without data, the closed formula, and what torch counts on a real step."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from litebert.nn.config import preset_config
from litebert.nn.layout import Layout
from litebert.nn.network import pretraining_network
from litebert.planning.arithmetic import PURPOSES, flops_per_token
from litebert.planning.count import record_step
from litebert.planning.step import StepSettings, random_batch
from litebert.pretraining.objective import Pretraining

SMALL = ["num_layers=2", "width=128", "num_heads=2", "feed_forward_width=512", "vocab_size=3000"]


@pytest.mark.parametrize("name", ["albert-base", "albert-large", "albert-xlarge", "albert-xxlarge"])
def test_pretraining_follows_the_usual_formula(name: str) -> None:
    config, length = preset_config(name), 512
    layers, width, size, vocabulary = config.num_layers, config.width, config.embedding_width, config.vocab_size
    expected = 6 * (12 * layers * width**2 + 0.15 * (width * size + size * vocabulary) + size * width)
    expected += 12 * layers * width * length
    assert flops_per_token(config, length, "pretrain") == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("purpose", PURPOSES)
@pytest.mark.parametrize("name", ["albert-base", "bert-base"])
def test_what_is_counted_is_the_formula(name: str, purpose: str, checkpointing: bool) -> None:
    config = preset_config(name, ["num_layers=3"])
    settings = StepSettings(purpose=purpose, kind="cuda", length=512, precision="bf16", checkpointing=checkpointing)
    counted = record_step(config, settings)
    # The formula leaves out the pooler and the head on it, which see one token of a sequence.
    assert counted.flops_per_token == pytest.approx(flops_per_token(config, 512, purpose), rel=1e-4)
    layers = flops_per_token(preset_config(name, ["num_layers=3", "embedding_width=768"]), 512, "infer")
    repeated = layers if checkpointing and purpose != "infer" else 0.0
    assert counted.repeated_flops_per_token == pytest.approx(repeated, rel=1e-6)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize("changes", [{}, {"precision": "fp32"}, {"logit_chunk": 0}, {"mixed": True}])
def test_the_way_it_is_computed_changes_nothing(kind: str, changes: dict[str, object]) -> None:
    config = preset_config("albert-base", SMALL)
    settings = StepSettings(**{"kind": kind, "length": 64, "precision": "bf16", **changes})
    # Scores grow with the length of the sequence a token is in.
    lengths = [8 * eighth for eighth in range(1, 9)] if settings.mixed else [64]
    length = sum(size**2 for size in lengths) / sum(lengths)
    expected = flops_per_token(config, length, "pretrain")
    assert record_step(config, settings).flops_per_token == pytest.approx(expected, rel=0.005)


def test_sharing_saves_no_arithmetic() -> None:
    shared, written_out = (preset_config("albert-base", [f"share={share}"]) for share in ("all", "none"))
    for purpose in PURPOSES:
        assert flops_per_token(shared, 128, purpose) == flops_per_token(written_out, 128, purpose)


@pytest.mark.parametrize("name", ["albert-tiny", "xlnet-base"])
def test_torch_counts_the_same(name: str) -> None:
    # Attention weights are dropped so that attention is written as products, which the counter knows.
    config = preset_config(name, [*SMALL, "attention_dropout=0.1"])
    lengths = [64] * 16
    batch = random_batch(config, lengths, round(0.15 * sum(lengths)))
    objective, network = Pretraining(64), pretraining_network(config).train()
    tensors = objective.tensors(batch, torch.device("cpu"))
    with FlopCounterMode(display=False) as counter:
        sum(part.loss for part in objective.parts(network, tensors).values()).backward()
    counted = counter.get_total_flops() / sum(lengths)
    assert flops_per_token(config, 64, "pretrain") == pytest.approx(counted, rel=0.03)  # the pooler is left out
    settings = StepSettings(kind="cpu", length=64, precision="fp32")
    assert record_step(config, settings).flops_per_token == pytest.approx(counted, rel=0.006)  # distances of XLNet
    layout = Layout(tensors["starts"], tensors["positions"], 64)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network.encoder(tensors["ids"], layout, tensors["segments"])
    assert flops_per_token(config, 64, "infer") == pytest.approx(counter.get_total_flops() / sum(lengths), rel=0.03)
