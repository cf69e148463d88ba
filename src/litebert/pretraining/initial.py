"""How a network begins: with initial values that a recipe may choose, or with the weights of a trained model.

Initial values are values only: the architecture stays as it is.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from litebert.corpus.store import Store, log_frequencies
from litebert.errors import InputError
from litebert.nn.blocks import AttentionBlock, FeedForwardBlock
from litebert.nn.network import Network
from litebert.pretraining.recipe import Recipe
from litebert.text.tokenizer import Tokenizer

Stretch = Literal["tiled", "interpolated"]
POSITIONS = "encoder.embeddings.position.weight"


@torch.no_grad()
def set_initial_values(network: Network, recipe: Recipe, store: Store) -> None:
    """The choices of the recipe. None draws random numbers, so each leaves all other weights as they were."""
    initial, config, embeddings = recipe.initial, network.config.encoder, network.encoder.embeddings
    scale = initial.output_scale
    if isinstance(scale, str):  # by depth: one for each of the 2 L writes to the residual stream
        scale = 1 / math.sqrt(2 * config.num_layers)
    for attention in network.encoder.attention:
        assert isinstance(attention, AttentionBlock)
        attention.out.weight.mul_(scale)
        if initial.keys is not None:  # at first a token looks at those like it, its neighbours among them
            queries = initial.keys * attention.qkv.weight[: config.width]
            attention.qkv.weight[: 2 * config.width].copy_(torch.cat([queries, queries]))
    for feed_forward in network.encoder.feed_forward:
        assert isinstance(feed_forward, FeedForwardBlock)
        feed_forward.down.weight.mul_(scale)
    if initial.unigram_bias:  # the masked-LM head begins at what it would learn first: how frequent words are
        bias = network.heads["masked_lm"].bias
        assert isinstance(bias, Tensor)
        bias.copy_(torch.from_numpy(log_frequencies(store)))
    if embeddings.position is not None and initial.positions == "sinusoid":  # near positions are alike
        table, offset = embeddings.position, config.position_offset
        values = waves(table.num_embeddings - offset, table.embedding_dim)
        std = initial.position_std or config.initial_std
        table.weight[offset:].copy_(values / values.square().mean().sqrt() * std)
    elif embeddings.position is not None and initial.position_std:
        _resize(embeddings.position, initial.position_std)
    if initial.embedding_std:
        _resize(embeddings.token, initial.embedding_std)
    if initial.projection_std and embeddings.projection is not None:
        _resize(embeddings.projection, initial.projection_std)


def waves(length: int, width: int) -> Tensor:
    """Sines and cosines (length, width) of wavelengths from 2 pi to 10,000 times that."""
    frequencies = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    angles = torch.arange(length)[:, None] * frequencies
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)[:, :width]


def _resize(module: nn.Embedding | nn.Linear, std: float) -> None:
    """Scale weights to a standard deviation."""
    module.weight.mul_(std / module.weight.std())


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


def stretched(table: Tensor, rows: int, how: Stretch, offset: int = 0) -> Tensor:
    """A position table (P, E) with more rows: repeated, or with new ones between the old ones.

    The first ``offset`` rows are of no position and stay as they are.
    """
    unused, known = table[:offset], table[offset:]
    wanted = rows - offset
    if how == "tiled":
        return torch.cat([unused, known[torch.arange(wanted, device=table.device) % len(known)]])
    # The first position stays the first, the last the last.
    between = F.interpolate(known.T[None].float(), size=wanted, mode="linear", align_corners=True)[0].T
    return torch.cat([unused, between.to(table.dtype)])


@torch.no_grad()
def warm_start(network: Network, source: Network, positions: Stretch = "tiled") -> str:
    """Copy what fits, unshared blocks from the same relative depth; gives a sentence on what was copied.

    Where the network reads longer texts than its source, ``positions`` is how those of the source are stretched.
    """
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
        if name == POSITIONS and len(other) < len(tensor) and other.shape[1:] == tensor.shape[1:]:
            other = stretched(other, len(tensor), positions, network.config.encoder.position_offset)
        if other.shape != tensor.shape:
            raise InputError(
                f"cannot start from that model: its {'.'.join(parts)} has shape {tuple(other.shape)}, here it is "
                f"{tuple(tensor.shape)}; only the depth, the sharing and more positions may differ"
            )
        tensor.copy_(other)
        copied += 1
    return f"started from a model of depth {source_depths}: {copied} tensors copied, {left} new"
