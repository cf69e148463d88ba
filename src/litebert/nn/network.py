"""An encoder with its pooler and heads: what a checkpoint holds and what is trained."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

from torch import Tensor, nn

from litebert.nn.blocks import initialise
from litebert.nn.config import EncoderConfig
from litebert.nn.encoder import Encoder
from litebert.nn.heads import Classifier, MaskedLM, MultipleChoice, Pooler, ReplacedHead, SentenceOrder, Span
from litebert.nn.layout import Layout

HeadName = Literal["masked_lm", "order", "replaced", "classify", "span", "choice"]
NEEDS_POOLER = {"order", "classify", "choice"}
PRETRAINING_HEADS: tuple[HeadName, ...] = ("masked_lm", "order")


@dataclass(frozen=True, kw_only=True)
class HeadsConfig:
    """Which heads there are and what they need to know."""

    names: tuple[HeadName, ...] = ()
    labels: tuple[str, ...] = ("0", "1")
    answerable: bool = False
    problem: str = ""  # what the classifier's scores mean, in transformers' words (``problem_type``); "": unsaid


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """All that is needed to build a network of the right shape."""

    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    heads: HeadsConfig = field(default_factory=HeadsConfig)

    @property
    def has_pooler(self) -> bool:
        return self.encoder.pooler_always or bool(NEEDS_POOLER.intersection(self.heads.names))


class Network(nn.Module):
    """Encoder, pooler (where the family or a head has one) and heads."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder)
        self.pooler = Pooler(config.encoder) if config.has_pooler else None
        self.heads = nn.ModuleDict({name: _head(name, config) for name in config.heads.names})
        for part in (self.pooler, self.heads):
            if part is not None:
                initialise(part, config.encoder.initial_std)

    def pooled(self, states: Tensor, layout: Layout) -> Tensor:
        """One vector (S, H) a sequence: the pooler's, or the pooled token's own state where there is no pooler."""
        if self.pooler is not None:
            return cast(Tensor, self.pooler(states, layout))
        return states[layout.first if self.config.encoder.pooled_token == "first" else layout.last]

    def masked_lm(self, states: Tensor, positions: Tensor) -> Tensor:
        """Vocabulary logits (P, V) at the given flat positions only."""
        return self.masked_lm_at(states[positions])

    def masked_lm_at(self, states: Tensor) -> Tensor:
        """Vocabulary logits (P, V) of states (P, H) that were picked before."""
        return cast(Tensor, self.heads["masked_lm"](states, self.encoder.embeddings.token.weight))

    def masked_lm_factors(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What those logits are the product of: (P, E) states, (V, E) table, (V) bias."""
        head = cast(MaskedLM, self.heads["masked_lm"])
        return head.factors(states, self.encoder.embeddings.token.weight)


def _head(name: HeadName, config: NetworkConfig) -> nn.Module:
    encoder, heads = config.encoder, config.heads
    match name:
        case "masked_lm":
            return MaskedLM(encoder)
        case "order":
            return SentenceOrder(encoder)
        case "replaced":
            return ReplacedHead(encoder)
        case "classify":
            return Classifier(encoder, len(heads.labels))
        case "choice":
            return MultipleChoice(encoder)
        case "span":
            return Span(encoder, heads.answerable)


def pretraining_network(encoder: EncoderConfig, heads: Sequence[HeadName] = PRETRAINING_HEADS) -> Network:
    """A new network with the heads that pretraining uses."""
    return Network(NetworkConfig(encoder=encoder, heads=HeadsConfig(names=tuple(heads))))
