"""Everything about the layers of a model in one pass over a text: a batch's states serve all figures, then are gone."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from litebert.analyse.against import Against, Comparison
from litebert.analyse.attention import entropies, widest
from litebert.analyse.inputs import Inputs
from litebert.analyse.layer_statistics import Mean, angles, cls_states, cosines, distances
from litebert.analyse.similarity import Similarity
from litebert.errors import InputError
from litebert.nn.encoder import Encoder


@dataclass(frozen=True, kw_only=True)
class LayerFigures:
    """What one layer does, on average over a text."""

    layer: int  # 1 at the bottom
    attention_block: int  # two layers with the same numbers here are one and the same
    feed_forward_block: int
    distance: float  # L2, between a token's state before the layer and after it
    angle: float  # degrees, likewise
    cls_cosine: float  # likewise for the token that stands for the text: 1 is a layer that does nothing to it
    entropy: float  # nats, of a token's attention, over all heads
    entropy_share: float  # of the most there can be: 1 looks everywhere equally
    entropy_heads: list[float]


@dataclass(frozen=True, kw_only=True)
class ModelFigures:
    """What the layers of one model do."""

    model: str
    family: str
    texts: int
    tokens: int
    layers: list[LayerFigures]
    similarity: list[list[float]]  # linear CKA of every pair of depths, the embeddings first
    least_contribution_first: list[int]  # the order in which `shrink --strategy contribution` drops layers
    against: Against | None = None


@torch.no_grad()
def measure(
    name: str, encoder: Encoder, batches: Iterable[Inputs], *, other: Encoder | None = None, other_name: str = ""
) -> ModelFigures:
    """The figures of an encoder over a text, and beside ``other`` where there is one."""
    distance, turn, cls, entropy, most = Mean(), Mean(), Mean(), Mean(), Mean()
    similarity = Similarity()
    comparison = None if other is None else Comparison(encoder, other, other_name)
    texts = tokens = 0
    for inputs in batches:
        states = encoder.states(inputs.ids, inputs.layout, inputs.segments)
        distance.add(distances(states))
        turn.add(angles(states))
        cls.add(cosines(cls_states(states, inputs.layout, encoder.config.pooled_token)))
        entropy.add(entropies(encoder, states, inputs))
        most.add(widest(inputs))
        similarity.add(states)
        if comparison is not None:
            comparison.add(states, inputs)
        texts += inputs.texts
        tokens += inputs.layout.num_tokens
    if not texts:
        raise InputError("there is no text to look at; give a file with a text on each line")
    by_head = entropy.value()
    layers = [
        LayerFigures(
            layer=index + 1,
            attention_block=attention,
            feed_forward_block=feed_forward,
            distance=float(distance.value()[index]),
            angle=float(turn.value()[index]),
            cls_cosine=float(cls.value()[index]),
            entropy=float(by_head[index].mean()),
            entropy_share=float(by_head[index].mean() / most.value()),
            entropy_heads=by_head[index].tolist(),
        )
        for index, (attention, feed_forward) in enumerate(encoder.plan)
    ]
    order = sorted(layers, key=lambda one: (one.cls_cosine, one.layer), reverse=True)
    return ModelFigures(
        model=name,
        family=encoder.config.family,
        texts=texts,
        tokens=tokens,
        layers=layers,
        similarity=similarity.value(),
        least_contribution_first=[one.layer for one in order],
        against=None if comparison is None else comparison.value(),
    )
