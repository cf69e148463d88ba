"""The layers of a model measured in one pass over a text; what ``litebert layers`` does, usable from Python.

A batch's states serve all statistics and are then dropped. Models are loaded one at a time. A model can be compared
with the one it was fine-tuned from: how far its states and weights have moved, by layer (Poor Man's BERT, section 5).
"""

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from litebert.analyse.inputs import Inputs, batches, count_texts, text_lines, tokenizer_for
from litebert.analyse.layer_statistics import (
    Mean,
    Similarity,
    angles,
    cls_states,
    cosines,
    distances,
    entropies,
    max_entropy,
)
from litebert.checkpoints.folder import Loaded, load_model, model_folder
from litebert.errors import InputError
from litebert.nn.encoder import Encoder
from litebert.nn.network import HeadsConfig, Network
from litebert.parameters import format_duration
from litebert.system import usable_device
from litebert.terminal import progress

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LayersRequest:
    """Which models to measure, on what text."""

    models: tuple[str, ...]
    text: tuple[str, ...]
    against: str | None = None
    untrained: bool = False
    most_texts: int | None = None
    max_length: int = 512
    tokenizer: Path | None = None
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class Against:
    """A model compared with the one it came from. Depth 0 is the embeddings; weights start at layer 1."""

    model: str
    token_cosine: list[float]  # by depth
    cls_cosine: list[float]  # by depth
    weight_change: list[float]  # by layer: L2 norm of the difference over that of the old weights
    embedding_change: float | None  # None where the vocabularies differ


@dataclass(frozen=True, kw_only=True)
class LayerFigures:
    """What one layer does, on average over a text."""

    layer: int  # 1 at the bottom
    attention_block: int  # two layers with the same block numbers are the same layer
    feed_forward_block: int
    distance: float  # L2, between a token's state before the layer and after it
    angle: float  # degrees, between the same states
    cls_cosine: float  # before and after the layer, of the [CLS] token: 1 means the layer does not change it
    entropy: float  # nats, of a token's attention, over all heads
    entropy_share: float  # of the maximum: 1 attends to all tokens equally
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


def analyse(request: LayersRequest) -> list[ModelFigures]:
    """The figures of every requested model, in order."""
    usable_device(request.device)
    if "-" in request.text and len(request.models) + request.untrained > 1:
        raise InputError("standard input can be read for one model only; put the text into a file")
    other = None if request.against is None else _load(request.against, request)
    found = []
    for index, model in enumerate(request.models):
        loaded = _load(model, request)
        if not model_folder(model).is_dir():
            log.warning("%s is a preset: its weights are random", model)
        found.append(_figures(model, loaded, request, other))
        if request.untrained and index == 0:
            torch.manual_seed(0)
            loaded.network = Network(loaded.network.config).eval().to(request.device)
            found.append(_figures(f"{model} untrained", loaded, request, None))
    return found


def _load(model: str, request: LayersRequest) -> Loaded:
    with progress() as show:
        show(f"loading {model}")
        return load_model(model, heads=HeadsConfig(), device=request.device)


def _figures(name: str, loaded: Loaded, request: LayersRequest, other: Loaded | None) -> ModelFigures:
    encoder: Encoder = loaded.network.encoder
    tokenizer = tokenizer_for(name, loaded.tokenizer, request.tokenizer, encoder.config.family)
    theirs = None if other is None or request.tokenizer is not None else other.tokenizer
    if theirs is not None and theirs.fingerprint != tokenizer.fingerprint:
        raise InputError(
            f"against {request.against} has another tokenizer than {name}, so their tokens cannot be compared; if one "
            "fits both, name it as tokenizer"
        )
    lines = text_lines(request.text, request.most_texts)
    inputs = batches(lines, tokenizer, encoder.config, max_length=request.max_length, device=request.device)
    return measure(
        name,
        encoder,
        with_progress(inputs, name, count_texts(request.text, request.most_texts)),
        other=None if other is None else other.network.encoder,
        other_name=request.against or "",
    )


def with_progress(inputs: Iterable[Inputs], name: str, total: int | None) -> Iterator[Inputs]:
    """The same batches; where a person watches, it shows how many texts are done and the time left."""
    begun, done = time.monotonic(), 0
    with progress() as show:
        show(f"{name}: {'reading' if total is None else f'0 of {total:,}'} texts")
        for one in inputs:
            yield one
            done += one.texts
            if total is None:
                show(f"{name}: {done:,} texts")
            else:
                left = (time.monotonic() - begun) / done * max(0, total - done)
                show(f"{name}: {done:,} of {total:,} texts, about {format_duration(left)} left")


@torch.no_grad()
def measure(
    name: str, encoder: Encoder, batches: Iterable[Inputs], *, other: Encoder | None = None, other_name: str = ""
) -> ModelFigures:
    """The figures of an encoder over a text, and compared with ``other`` where given."""
    distance, rotation, cls, entropy, highest = Mean(), Mean(), Mean(), Mean(), Mean()
    similarity = Similarity()
    comparison = None if other is None else _Comparison(encoder, other, other_name)
    texts = tokens = 0
    for inputs in batches:
        states = encoder.states(inputs.ids, inputs.layout, inputs.segments)
        distance.add(distances(states))
        rotation.add(angles(states))
        cls.add(cosines(cls_states(states, inputs.layout, encoder.config.pooled_token)))
        entropy.add(entropies(encoder, states, inputs))
        highest.add(max_entropy(inputs))
        similarity.add(states)
        if comparison is not None:
            comparison.add(states, inputs)
        texts += inputs.texts
        tokens += inputs.layout.num_tokens
    if not texts:
        raise InputError("there is no text to measure on; give a file with a text on each line")
    by_head, widest = entropy.value(), float(highest.value())
    means = (mean.value().tolist() for mean in (distance, rotation, cls))
    layers = [
        LayerFigures(
            layer=layer,
            attention_block=attention,
            feed_forward_block=feed_forward,
            distance=moved,
            angle=turned,
            cls_cosine=cosine,
            entropy=float(heads.mean()),
            entropy_share=float(heads.mean() / widest),
            entropy_heads=heads.tolist(),
        )
        for layer, ((attention, feed_forward), heads, moved, turned, cosine) in enumerate(
            zip(encoder.plan, by_head, *means, strict=True), start=1
        )
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


def check_comparable(encoder: Encoder, other: Encoder, name: str) -> None:
    """An error unless the layers of two encoders correspond."""
    for field, word in (("num_layers", "layers"), ("width", "units of width"), ("feed_forward_width", "inner units")):
        ours, theirs = getattr(encoder.config, field), getattr(other.config, field)
        if ours != theirs:
            raise InputError(
                f"against {name} has {theirs} {word} where the model has {ours}; compare a model with the one it was "
                "fine-tuned from"
            )


class _Comparison:
    """Compares the states of two encoders, over batches."""

    def __init__(self, encoder: Encoder, other: Encoder, name: str) -> None:
        check_comparable(encoder, other, name)
        self._encoder, self._other, self._name = encoder, other, name
        self._tokens, self._cls = Mean(), Mean()

    def add(self, states: Sequence[Tensor], inputs: Inputs) -> None:
        """Add a batch and the first encoder's states for it."""
        both = states, self._other.states(inputs.ids, inputs.layout, inputs.segments)
        token = self._encoder.config.pooled_token
        self._tokens.add(_cosines(*both))
        self._cls.add(_cosines(*(cls_states(one, inputs.layout, token) for one in both)))

    def value(self) -> Against:
        new, old = self._encoder, self._other
        layers = [
            [nn.ModuleList([encoder.attention[a], encoder.feed_forward[f]]) for a, f in encoder.plan]
            for encoder in (new, old)
        ]
        comparable = new.embeddings.token.weight.shape == old.embeddings.token.weight.shape
        return Against(
            model=self._name,
            token_cosine=self._tokens.value().tolist(),
            cls_cosine=self._cls.value().tolist(),
            weight_change=[_relative_change(*pair) for pair in zip(*layers, strict=True)],
            embedding_change=_relative_change(new.embeddings, old.embeddings) if comparable else None,
        )


def _cosines(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> Tensor:
    """(rows, depths)"""
    return torch.stack([torch.cosine_similarity(a, b, dim=-1) for a, b in zip(ours, theirs, strict=True)], dim=-1)


def _relative_change(new: nn.Module, old: nn.Module) -> float:
    """L2 norm of the difference of all weights over that of the old ones."""
    change = size = 0.0
    for ours, theirs in zip(new.parameters(), old.parameters(), strict=True):
        change += float((ours.double() - theirs.double()).square().sum())
        size += float(theirs.double().square().sum())
    return (change / size) ** 0.5 if size else 0.0


def short_names(models: Sequence[str]) -> list[str]:
    """Names for a plot: the last part of each path, or as many parts as needed to make them distinct."""
    parts = [tuple(Path(model).parts) for model in models]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(one[-length:]) for one in parts]
        if len(set(names)) == len(set(models)) and not any(name == "model" for name in names):
            return names
    return list(models)
