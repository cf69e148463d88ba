"""A run that begins with a trained model, perhaps a shallower one, as the paper's deep models do."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import torch

from litebert.errors import InputError
from litebert.nn.network import Network
from litebert.pretrain.depths import layers_of
from litebert.pretrain.recipe import Recipe
from litebert.text.tokenizer import Tokenizer


def going_on(recipe: Recipe, layers: int, trained: int, fixed: Collection[str] = ()) -> Recipe:
    """The recipe for a model of so many ``layers`` that begins with ``trained`` ones; ``fixed``: fields to leave alone.

    Depth grows from the trained one on, and where that is all of it, every loss counts from the beginning.
    """
    begun = min(trained, layers)
    deeper = [(begin, depth) for begin, depth in recipe.depths if layers_of(depth, layers) >= begun]
    changed: dict[str, Any] = {}
    if deeper:
        changed["depths"] = ((0.0, deeper[0][1]), *deeper[1:])
    if begun == layers:
        changed["order_from"] = 0.0
    return replace(recipe, **{name: value for name, value in changed.items() if name not in fixed})


def check_vocabulary(theirs: Tokenizer | None, ours: Tokenizer, source: str, corpus: str) -> None:
    """Refuse a store whose ids stand for other pieces than the model has learnt."""
    if theirs is None:
        return
    size = ours.vocab_size
    if theirs.vocab_size != size or any(theirs.piece(index) != ours.piece(index) for index in range(size)):
        raise InputError(
            f"{corpus} was built with another vocabulary than that of {source}; build it again with the model's own: "
            f"litebert corpus build TEXT --tokenizer {source}"
        )


@torch.no_grad()
def warm_start(network: Network, source: Network) -> str:
    """Copy what fits: every shared part as it is, unshared blocks from the same relative depth. Says what was done."""
    theirs = source.state_dict()
    depths, source_depths = network.config.encoder.num_layers, source.config.encoder.num_layers
    copied = left = 0
    for name, tensor in network.state_dict().items():
        parts = name.split(".")
        if parts[:2] in (["encoder", "attention"], ["encoder", "feed_forward"]):
            kind = 0 if parts[1] == "attention" else 1
            depth = next(d for d, blocks in enumerate(network.config.encoder.plan) if blocks[kind] == int(parts[2]))
            parts[2] = str(source.config.encoder.plan[depth * source_depths // depths][kind])
        other = theirs.get(".".join(parts))
        if other is None:
            left += 1
            continue
        if other.shape != tensor.shape:
            raise InputError(
                f"cannot start from that model: its {'.'.join(parts)} has shape {tuple(other.shape)}, here it is "
                f"{tuple(tensor.shape)}; only the depth and the sharing may differ"
            )
        tensor.copy_(other)
        copied += 1
    return f"started from a model of depth {source_depths}: {copied} tensors copied, {left} new"
