"""How much memory a step takes: the moments of a step in order, what lives at each, and which is the worst.

T tokens, S sequences, H width, F feed-forward width, V vocabulary.
"""

from dataclasses import dataclass, fields

import torch

from litebert.nn.config import EncoderConfig
from litebert.plan.activations import (
    INDEX,
    LayerActivations,
    attends_padded,
    embedding_activations,
    head_activations,
    layer_activations,
    stream_bytes,
    vocabulary_scores,
)
from litebert.plan.parameters import Parameters
from litebert.plan.work import Work

# On a CPU the C library's heap has gaps: so much of what all layers keep in tensors small enough for that heap, with
# fused attention and without. Measured at 1,024 and 2,048 tokens on base and large shapes (docs/plan.md). With
# checkpointing the freed blocks are given back instead (see ``resident.py``).
GAPS_SHARE = {"fused": 0.19, "padded": 0.4}
# Of what eager code keeps, what compiled code does, and how many times that has the vocabulary's fp32 scores. Fitted to
# an H200's figures (tests/unit/plan/test_memory_recorded.py).
COMPILED_SHARE = 0.97
COMPILED_SCORES = (1.0, 1.5)
# Measured with `litebert plan albert-tiny --measure --device cpu --tokens 512` (Linux; torch 2.13, and 2.11 built for
# CUDA, whose libraries are loaded on a CPU, too): what Python and torch take before there is a model. On CUDA the
# allocator does not count it.
RUNTIME_BYTES = {"cpu": 665e6 if torch.backends.cuda.is_built() else 340e6, "cuda": 0.0}
COMPILER_BYTES = {"cpu": 120e6, "cuda": 0.0}


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes by part at one moment of a step."""

    at: str
    weights: float = 0.0
    gradients: float = 0.0
    optimiser: float = 0.0
    half_weights: float = 0.0  # the copies that autocast makes
    activations: float = 0.0
    head: float = 0.0  # the vocabulary's scores and what leads to them
    passing: float = 0.0  # gradients of activations and other things gone a moment later
    gaps: float = 0.0  # freed, but not given back to the system
    runtime: float = 0.0  # Python and torch

    @property
    def total(self) -> float:
        return sum(getattr(self, field.name) for field in fields(self) if field.name != "at")


def peak_memory(config: EncoderConfig, parameters: Parameters, work: Work) -> Memory:
    """The worst moment of a step."""
    moments = _inference(config, parameters, work) if work.purpose == "infer" else _training(config, parameters, work)
    return max(moments, key=lambda moment: moment.total)


def optimiser_bytes(parameters: Parameters, count: int, work: Work) -> float:
    """AdamW and LAMB keep two fp32 moments of each parameter; Muon one of each matrix and two of the rest."""
    match work.optimiser:
        case "sgd":
            return 0.0
        case "muon":
            matrices = min(parameters.matrices, count)
            return 4.0 * matrices + 8.0 * (count - matrices)
        case _:
            return 8.0 * count


def _runtime(work: Work) -> float:
    return RUNTIME_BYTES[work.kind] + (COMPILER_BYTES[work.kind] if work.compiled else 0.0)


def _inference(config: EncoderConfig, parameters: Parameters, work: Work) -> list[Memory]:
    """Inside one layer: its input, the output of its attention, and the feed-forward block's two wide states."""
    number, tokens = work.number_bytes, work.tokens
    states = number * config.width * tokens
    wide = number * config.feed_forward_width * tokens
    rows = work.sequences * work.longest
    projected = 5 * states  # the input, q, k and v, and what attention gives
    if attends_padded(config, work):
        projected += 4 * number * config.width * rows
        if config.positions == "relative":
            projected += 4 * number * config.num_heads * rows * work.longest
    embedded = 3 * number * config.embedding_width * tokens
    common = Memory(at="", weights=float(number * parameters.bare), runtime=_runtime(work))
    inputs = 3.0 * INDEX * tokens
    worst = {"attention": projected, "feed-forward": 2 * states + 2 * wide, "embeddings": embedded}
    return [_with(common, at=name, activations=inputs + size) for name, size in worst.items()]


def _training(config: EncoderConfig, parameters: Parameters, work: Work) -> list[Memory]:
    count = parameters.with_heads if work.purpose == "pretrain" else parameters.bare
    layer = layer_activations(config, work)
    embedded = embedding_activations(config, work) + 4 * INDEX * work.tokens  # and the batch itself
    boundary = float(stream_bytes(config, work) * config.width * work.tokens)
    common = Memory(
        at="",
        weights=4.0 * count,
        optimiser=optimiser_bytes(parameters, count, work),
        half_weights=_half_weights(config, parameters, work),
        activations=embedded + config.num_layers * _kept(layer, boundary, work),
        gaps=_gaps(config, work, layer),
        runtime=_runtime(work),
    )
    head, scores = head_activations(config, work), vocabulary_scores(config, work)
    forward, back = _scores_at_once(work)
    moments = [
        _with(common, at="loss, forward", head=head + forward * scores, passing=boundary),
        _with(common, at="loss, backward", head=head + back * scores, passing=boundary),
    ]
    moments += [
        _layer_going_back(config, parameters, work, common, layer, depth) for depth in range(config.num_layers, 0, -1)
    ]
    # LAMB holds a whole update to take its norm; Muon works on one matrix at a time, with two copies of it.
    step = {"lamb": 4.0 * count, "muon": 8.0 * parameters.largest}.get(work.optimiser, 0.0)
    done = _with(common, at="optimiser step", gradients=4.0 * count, half_weights=0.0, activations=0.0)
    return [*moments, _with(done, passing=step)]


def _gaps(config: EncoderConfig, work: Work, layer: LayerActivations) -> float:
    if work.kind == "cuda" or work.checkpointing:
        return 0.0
    share = GAPS_SHARE["padded" if attends_padded(config, work) else "fused"]
    return share * config.num_layers * layer.in_small_blocks


def _kept(layer: LayerActivations, boundary: float, work: Work) -> float:
    """What stays of a layer between its two passes; with checkpointing its input alone."""
    if work.checkpointing:
        return boundary
    return layer.kept * (COMPILED_SHARE if work.compiled else 1.0)


def _scores_at_once(work: Work) -> tuple[float, float]:
    """How many times the vocabulary's fp32 scores are there, going forward and going back."""
    if work.compiled:
        return COMPILED_SCORES
    forward = 2.5 if work.is_half else 2.0  # logits (half, then fp32) and their logarithms
    return forward, 3.0  # the logarithms and two gradients


def _layer_going_back(
    config: EncoderConfig, parameters: Parameters, work: Work, common: Memory, layer: LayerActivations, depth: int
) -> Memory:
    """One layer: the activations from it down are still there, the gradients from it up already."""
    pretrains = work.purpose == "pretrain"
    attention, feed_forward = (set(blocks) for blocks in zip(*config.plan[depth - 1 :], strict=True))
    gradients = parameters.attention * len(attention) / config.num_attention_blocks
    gradients += parameters.feed_forward * len(feed_forward) / config.num_feed_forward_blocks
    table = config.vocab_size * config.embedding_width if pretrains else 0
    boundary = float(stream_bytes(config, work) * config.width * work.tokens)
    above = (config.num_layers - depth) * _kept(layer, boundary, work)
    half = common.half_weights
    if work.checkpointing:
        above -= layer.kept  # the layer itself is computed again
        if work.is_half:  # and so are the half-precision copies of its weights
            half = 2.0 * (table + parameters.linear_layer)
    return _with(
        common,
        at=f"layer {depth}, backward",
        gradients=4.0 * (table + gradients),
        half_weights=half,
        activations=common.activations - above,
        passing=layer.extra + boundary,
    )


def _half_weights(config: EncoderConfig, parameters: Parameters, work: Work) -> float:
    """Autocast copies the weights of linear layers, and the token table where it serves as the head."""
    if not work.is_half:
        return 0.0
    table = config.vocab_size * config.embedding_width if work.purpose == "pretrain" else 0
    return 2.0 * (parameters.linear + table)


def _with(moment: Memory, **changes: float | str) -> Memory:
    values = {field.name: getattr(moment, field.name) for field in fields(moment)}
    return Memory(**{**values, **changes})
