"""The account of activations against what autograd saves: every tensor it keeps, each storage counted once."""

import pytest
import torch

from litebert.nn.config import EncoderConfig
from litebert.nn.families import preset_config
from litebert.nn.network import pretraining_network
from litebert.plan.activations import (
    embedding_activations,
    head_activations,
    layer_activations,
    vocabulary_scores,
)
from litebert.plan.step import Batch, made_up_batch, pretraining_loss
from litebert.plan.work import Precision, Work

SMALL = ["width=96", "num_heads=4", "feed_forward_width=320", "vocab_size=500"]
LENGTHS = [40] * 5 + [24, 1]
VARIANTS = [
    ("albert-base-v2", []),
    ("albert-base", []),
    ("albert-base", ["attention_dropout=0.0"]),
    ("bert-base", ["attention_dropout=0.0", "activation=relu"]),
    ("bert-base", []),
    ("roberta-base", ["activation_dropout=0.1"]),
    ("distilbert-base", []),
    ("xlnet-base", []),
    ("xlnet-base", ["attention_dropout=0.0"]),
]


def saved_bytes(config: EncoderConfig, batch: Batch, precision: Precision, narrow: bool = False) -> int:
    """Bytes that autograd keeps from one forward pass, parameters and their half copies not counted."""
    network = pretraining_network(config).train()
    network.encoder.half_residual(narrow)
    shapes = {tuple(weight.shape) for weight in network.parameters() if weight.dim() == 2}
    shapes |= {shape[::-1] for shape in shapes}
    addresses = {weight.untyped_storage().data_ptr() for weight in network.parameters()}
    sizes: dict[int, int] = {}
    alive: list[torch.Tensor] = []  # or a freed storage's address could come again

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        is_copy = tensor.dtype == torch.bfloat16 and tuple(tensor.shape) in shapes
        if storage.data_ptr() not in addresses and not is_copy:
            sizes[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"),
    ):
        pretraining_loss(network, batch)
    return sum(sizes.values())


def work_of(lengths: list[int], precision: Precision, narrow: bool = False) -> Work:
    return Work(
        purpose="pretrain",
        kind="cpu",
        tokens=sum(lengths),
        sequences=len(lengths),
        longest=max(lengths),
        precision=precision,
        narrow=narrow,
    )


@pytest.mark.parametrize("name", ["albert-base", "bert-base"])
def test_account_of_a_narrow_stream(name: str) -> None:
    size = ["embedding_width=32"] if name.startswith("albert") else []
    words = [*SMALL, *size, "attention_dropout=0.0"]
    shallow, deep = (preset_config(name, [*words, f"num_layers={n}"]) for n in (2, 3))
    batch = made_up_batch(shallow, LENGTHS, "cpu")
    less, more = (saved_bytes(config, batch, "bf16", narrow=True) for config in (shallow, deep))
    assert layer_activations(deep, work_of(LENGTHS, "bf16", narrow=True)).kept == pytest.approx(more - less, rel=0.01)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "name,changes", VARIANTS, ids=lambda value: "-".join(value) if isinstance(value, list) else value
)
def test_account_is_what_autograd_keeps(name: str, changes: list[str], precision: Precision) -> None:
    size = ["embedding_width=32"] if name.startswith("albert") else []
    shallow, deep = (preset_config(name, [*SMALL, *size, *changes, f"num_layers={n}"]) for n in (2, 3))
    # Attention with dropout pads in groups of about one length, so the account is exact for one length only.
    grouped = deep.positions == "absolute" and deep.attention_dropout > 0
    lengths = [40] * 6 if grouped else LENGTHS
    batch, work = made_up_batch(shallow, lengths, "cpu"), work_of(lengths, precision)
    kept = {config.num_layers: saved_bytes(config, batch, precision) for config in (shallow, deep)}
    layer = layer_activations(deep, work).kept
    assert layer == pytest.approx(kept[3] - kept[2], rel=0.01)
    rest = embedding_activations(deep, work) + head_activations(deep, work) + vocabulary_scores(deep, work)
    assert 3 * layer + rest == pytest.approx(kept[3], rel=0.02)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_account_is_a_bound_where_dropout_meets_mixed_lengths(precision: Precision) -> None:
    shallow, deep = (preset_config("bert-base", [*SMALL, f"num_layers={n}"]) for n in (2, 3))
    batch = made_up_batch(shallow, LENGTHS, "cpu")
    kept = saved_bytes(deep, batch, precision) - saved_bytes(shallow, batch, precision)
    assert kept <= layer_activations(deep, work_of(LENGTHS, precision)).kept <= 1.1 * kept


def test_sharing_saves_no_activations() -> None:
    work = Work(purpose="pretrain", kind="cuda", tokens=4096, sequences=8, longest=512, precision="bf16")
    shared, written_out = (preset_config("albert-base", [f"share={share}"]) for share in ("all", "none"))
    assert layer_activations(shared, work) == layer_activations(written_out, work)


def test_fused_attention_keeps_nothing_quadratic() -> None:
    config = preset_config("albert-base-v2")
    short, long = (
        Work(purpose="pretrain", kind="cuda", tokens=8192, sequences=8192 // n, longest=n, precision="bf16")
        for n in (64, 512)
    )
    assert layer_activations(config, short) == layer_activations(config, long)
