"""How many parameters a model has, by part, counted on the real modules (without memory: on the meta device)."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from litebert.nn.config import EncoderConfig
from litebert.nn.network import HeadsConfig, Network, NetworkConfig, pretraining_network


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Counts by part; a block that several depths share counts once."""

    embeddings: int
    attention: int
    feed_forward: int
    pooler: int
    heads: int  # masked LM and order, with the pooler that the order head brings where the bare encoder has none
    largest: int  # the largest single tensor
    matrices: int  # those with two dimensions or more, which Muon steps
    linear: int  # weights of linear layers, which autocast copies to half precision
    linear_layer: int  # those of one attention and one feed-forward block

    @property
    def bare(self) -> int:
        """Encoder and pooler."""
        return self.embeddings + self.attention + self.feed_forward + self.pooler

    @property
    def with_heads(self) -> int:
        """Encoder, pooler, masked-LM and order heads."""
        return self.bare + self.heads


def count_parameters(config: EncoderConfig) -> Parameters:
    """The counts for an encoder, with the heads of pretraining apart."""
    with torch.device("meta"):
        bare = Network(NetworkConfig(encoder=config, heads=HeadsConfig()))
        full = pretraining_network(config)
    encoder = full.encoder
    return Parameters(
        embeddings=_count([encoder.embeddings]),
        attention=_count(encoder.attention),
        feed_forward=_count(encoder.feed_forward),
        pooler=0 if bare.pooler is None else _count([bare.pooler]),
        heads=_count([full]) - _count([bare]),
        largest=max(parameter.numel() for parameter in full.parameters()),
        matrices=sum(parameter.numel() for parameter in full.parameters() if parameter.dim() > 1),
        linear=_count_linear([full]),
        linear_layer=_count_linear([encoder.attention[0], encoder.feed_forward[0]]),
    )


def _count(modules: Iterable[nn.Module]) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


def _count_linear(modules: Iterable[nn.Module]) -> int:
    return sum(part.weight.numel() for module in modules for part in module.modules() if isinstance(part, nn.Linear))
