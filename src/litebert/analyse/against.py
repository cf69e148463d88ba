"""What training on a task changed, layer by layer: the states of a text, the weights (Poor Man's BERT, section 5)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn

from litebert.analyse.inputs import Inputs
from litebert.analyse.layer_statistics import Mean, cls_states
from litebert.errors import InputError
from litebert.nn.encoder import Encoder


@dataclass(frozen=True, kw_only=True)
class Against:
    """A model beside the one it came from. Depth 0 is the embeddings; the weights of layer 1 come first."""

    model: str
    token_cosine: list[float]  # by depth
    cls_cosine: list[float]  # by depth
    weight_change: list[float]  # by layer: the length of the difference over the length of the old weights
    embedding_change: float | None  # None where the vocabularies differ


def check_comparable(encoder: Encoder, other: Encoder, name: str) -> None:
    """An error unless two encoders have layers that correspond."""
    for field, word in (("num_layers", "layers"), ("width", "units of width"), ("feed_forward_width", "inner units")):
        ours, theirs = getattr(encoder.config, field), getattr(other.config, field)
        if ours != theirs:
            raise InputError(
                f"--against {name} has {theirs} {word} where the model has {ours}; compare a model with what it was "
                "fine-tuned from"
            )


class Comparison:
    """The cosines of two encoders' states, over batches."""

    def __init__(self, encoder: Encoder, other: Encoder, name: str) -> None:
        check_comparable(encoder, other, name)
        self._encoder, self._other, self._name = encoder, other, name
        self._tokens, self._cls = Mean(), Mean()

    def add(self, states: Sequence[Tensor], inputs: Inputs) -> None:
        """A batch, and the first encoder's states for it."""
        theirs = self._other.states(inputs.ids, inputs.layout, inputs.segments)
        token = self._encoder.config.pooled_token
        self._tokens.add(_cosines(states, theirs))
        self._cls.add(_cosines(cls_states(states, inputs.layout, token), cls_states(theirs, inputs.layout, token)))

    def value(self) -> Against:
        new, old = self._encoder, self._other
        changes = [
            _relative_change(
                [new.attention[a], new.feed_forward[f]], [old.attention[other_a], old.feed_forward[other_f]]
            )
            for (a, f), (other_a, other_f) in zip(new.plan, old.plan, strict=True)
        ]
        comparable = new.embeddings.token.weight.shape == old.embeddings.token.weight.shape
        return Against(
            model=self._name,
            token_cosine=self._tokens.value().tolist(),
            cls_cosine=self._cls.value().tolist(),
            weight_change=changes,
            embedding_change=_relative_change([new.embeddings], [old.embeddings]) if comparable else None,
        )


def _cosines(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> Tensor:
    """(rows, depths)"""
    return torch.stack([torch.cosine_similarity(a, b, dim=-1) for a, b in zip(ours, theirs, strict=True)], dim=-1)


def _relative_change(new: Sequence[nn.Module], old: Sequence[nn.Module]) -> float:
    pairs = zip(*(chain.from_iterable(part.parameters() for part in parts) for parts in (new, old)), strict=True)
    change = size = 0.0
    for ours, theirs in pairs:
        change += float((ours.double() - theirs.double()).square().sum())
        size += float(theirs.double().square().sum())
    return (change / size) ** 0.5 if size else 0.0
