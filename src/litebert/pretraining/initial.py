"""How a network begins: with initial values that a recipe may choose, or with the weights of a trained model.

Initial values are values only: the architecture stays as it is.

A choice is a function of the network, the recipe and the store that changes weights in place and stands in ``CHOICES``;
one that is not asked for does nothing. None draws random numbers, so a choice leaves all other weights as they were.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from litebert.corpus.store import Store, log_frequencies
from litebert.errors import InputError
from litebert.nn.blocks import AttentionBlock, FeedForwardBlock
from litebert.nn.network import Network
from litebert.pretraining.recipe import Recipe
from litebert.text.tokenizer import Tokenizer

Choice = Callable[[Network, Recipe, Store], None]


@torch.no_grad()
def set_initial_values(network: Network, recipe: Recipe, store: Store) -> None:
    """Apply every choice of the recipe."""
    for choice in CHOICES:
        choice(network, recipe, store)


def scale_outputs(network: Network, recipe: Recipe, _store: Store) -> None:
    """Scale the matrices that write to the residual stream; ``depth``: by 1 / sqrt(2 L), one for each of 2 L writes."""
    scale = recipe.initial.output_scale
    if isinstance(scale, str):
        scale = 1 / math.sqrt(2 * network.config.encoder.num_layers)
    for block in (*network.encoder.attention, *network.encoder.feed_forward):
        if isinstance(block, AttentionBlock):
            block.out.weight.mul_(scale)
        elif isinstance(block, FeedForwardBlock):
            block.down.weight.mul_(scale)


def bias_to_frequencies(network: Network, recipe: Recipe, store: Store) -> None:
    """The masked-LM head begins at what it would learn first: how frequent words are."""
    if recipe.initial.unigram_bias:
        bias = network.heads["masked_lm"].bias
        assert isinstance(bias, Tensor)
        bias.copy_(torch.from_numpy(log_frequencies(store)))


def set_positions(network: Network, recipe: Recipe, _store: Store) -> None:
    """Position vectors that begin as waves (near ones alike), or random ones, of a given size."""
    table, std = network.encoder.embeddings.position, recipe.initial.position_std
    if table is None:
        return
    if recipe.initial.positions == "sinusoid":
        offset = network.config.encoder.position_offset
        values = waves(table.num_embeddings - offset, table.embedding_dim)
        size = values.square().mean().sqrt()
        table.weight[offset:].copy_(values / size * (std or network.config.encoder.initial_std))
    elif std:
        _resize(table, std)


def init_keys_from_queries(network: Network, recipe: Recipe, _store: Store) -> None:
    """Keys that begin as the queries: at first a token looks at those like it, its neighbours among them."""
    if recipe.initial.keys is None:
        return
    width = network.config.encoder.width
    for block in network.encoder.attention:
        assert isinstance(block, AttentionBlock)
        queries = recipe.initial.keys * block.qkv.weight[:width]
        block.qkv.weight[: 2 * width].copy_(torch.cat([queries, queries]))


def set_embedding_size(network: Network, recipe: Recipe, _store: Store) -> None:
    """The token table and the projection, drawn as before, of another standard deviation."""
    embeddings = network.encoder.embeddings
    if recipe.initial.embedding_std:
        _resize(embeddings.token, recipe.initial.embedding_std)
    if recipe.initial.projection_std and embeddings.projection is not None:
        _resize(embeddings.projection, recipe.initial.projection_std)


CHOICES: tuple[Choice, ...] = (
    scale_outputs,
    bias_to_frequencies,
    set_positions,
    init_keys_from_queries,
    set_embedding_size,
)


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


@torch.no_grad()
def warm_start(network: Network, source: Network) -> str:
    """Copy what fits, unshared blocks from the same relative depth; gives a sentence on what was copied."""
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
