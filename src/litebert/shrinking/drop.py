"""Dropping layers of a network: an edit of its plan, after which blocks that no depth runs are removed."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Literal

import torch

from litebert.checkpoints.huggingface import expected_shapes
from litebert.nn.attention_pattern import kept_words
from litebert.nn.config import EncoderConfig, Plan, Share
from litebert.nn.network import Network, NetworkConfig
from litebert.shrinking.strategies import FIXED, Strategy, kept_of

Sharing = Literal["all", "some", "none"]
_SHARES: tuple[Share, ...] = ("all", "attention", "ffn", "none")


def kept_plan(plan: Plan, kept: Sequence[int]) -> Plan:
    """The plan of the kept layers, blocks numbered as they were."""
    return tuple(plan[layer - 1] for layer in kept)


def shrunk_config(config: EncoderConfig, kept: Sequence[int]) -> EncoderConfig:
    """The encoder with these layers only, its blocks renumbered; without a custom plan where possible."""
    used = [_used(kept_plan(config.plan, kept), kind) for kind in (0, 1)]
    plan = tuple(
        (used[0].index(attention), used[1].index(feed_forward))
        for attention, feed_forward in kept_plan(config.plan, kept)
    )
    attention = kept_words(config.attention, config.num_layers, tuple(kept))
    plain = replace(config, num_layers=len(plan), num_groups=1, layers_per_group=1, custom_plan=(), attention=attention)
    shares = sorted(_SHARES, key=lambda share: share != config.share)  # its own setting first
    divisors = [size for size in range(1, len(plan) + 1) if len(plan) % size == 0]
    for share, inner, groups in product(shares, divisors, range(1, len(plan) + 1)):
        if groups * inner <= len(plan):
            candidate = replace(plain, share=share, num_groups=groups, layers_per_group=inner)
            if candidate.plan == plan:
                return candidate
    return replace(plain, custom_plan=plan)


@torch.no_grad()
def drop_layers(network: Network, kept: Sequence[int]) -> Network:
    """A new network with these layers only; the weights that stay are shared with the old one, not copied."""
    old = network.config.encoder
    config = replace(network.config, encoder=shrunk_config(old, kept))
    with torch.device("meta"):
        small = Network(config)
    theirs = network.state_dict()
    parts = ("encoder.attention.", "encoder.feed_forward.")
    tensors = {name: tensor for name, tensor in theirs.items() if not name.startswith(parts)}
    for kind, part in enumerate(parts):
        for new, block in enumerate(_used(kept_plan(old.plan, kept), kind)):
            prefix = f"{part}{block}."
            for name in (name for name in theirs if name.startswith(prefix)):
                tensors[f"{part}{new}.{name.removeprefix(prefix)}"] = theirs[name]
    small.load_state_dict(tensors, assign=True)
    return small.train(network.training)


def _used(plan: Plan, kind: int) -> list[int]:
    """The blocks of a kind that a plan runs, in order of first use, as sharing and groups number them, too."""
    return list(dict.fromkeys(blocks[kind] for blocks in plan))


def sharing(plan: Plan) -> Sharing:
    """Whether all layers are the same, some share a block, or none do."""
    if len(set(plan)) == 1 and len(plan) > 1:
        return "all"
    distinct = min(len(set(blocks)) for blocks in zip(*plan, strict=True))
    return "none" if distinct == len(plan) else "some"


def same_model(plan: Plan, kept: Sequence[int]) -> list[Strategy]:
    """The strategies that need no text and leave the same model with this number of layers."""
    count = len(plan) - len(kept)
    chosen = kept_plan(plan, kept)
    return [
        name for name, rule in FIXED.items() if kept_plan(plan, kept_of(len(plan), rule(len(plan), count))) == chosen
    ]


def count_parameters(config: NetworkConfig) -> int:
    """Parameters of a network including its heads; a shared block counts once."""
    return sum(shape.numel() for shape in expected_shapes(config).values())
