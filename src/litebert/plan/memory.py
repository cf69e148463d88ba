"""How much memory a step takes: the moments of a step in order, what lives at each, and which is the worst.

T tokens, S sequences, H width, F feed-forward width, V vocabulary.
"""

from dataclasses import dataclass, fields

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

# Measured with `litebert plan albert-tiny --measure --device cpu --tokens 512` (torch 2.13 on Linux): what Python and
# torch take before there is a model. On CUDA the allocator does not count it.
RUNTIME_BYTES = {"cpu": 340e6, "cuda": 0.0}


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
    runtime: float = 0.0

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
    common = Memory(at="", weights=float(number * parameters.bare), runtime=RUNTIME_BYTES[work.kind])
    inputs = 3.0 * INDEX * tokens
    worst = {"attention": projected, "a feed-forward block": 2 * states + 2 * wide, "the embeddings": embedded}
    return [_with(common, at=name, activations=inputs + size) for name, size in worst.items()]


def _training(config: EncoderConfig, parameters: Parameters, work: Work) -> list[Memory]:
    count = parameters.with_heads if work.purpose == "pretrain" else parameters.bare
    layer = layer_activations(config, work)
    embedded = embedding_activations(config, work) + 4 * INDEX * work.tokens  # and the batch itself
    common = Memory(
        at="",
        weights=4.0 * count,
        optimiser=optimiser_bytes(parameters, count, work),
        half_weights=_half_weights(config, parameters, work),
        head=head_activations(config, work),
        runtime=RUNTIME_BYTES[work.kind],
    )
    boundary = float(stream_bytes(config, work) * config.width * work.tokens)
    kept = boundary if work.checkpointing else layer.kept
    whole = _with(common, activations=embedded + config.num_layers * kept, passing=boundary)
    scores = vocabulary_scores(config, work)
    loss = (2 if not work.is_half else 2.5) * scores  # logits (half, then fp32) and their logarithms
    moments = [
        _with(whole, at="the loss, going forward", head=common.head + loss),
        _with(whole, at="the loss, going back", head=common.head + 3 * scores),  # logarithms and two gradients
    ]
    moments += _layers_going_back(config, parameters, work, common, layer, embedded, boundary)
    largest = 4.0 * parameters.largest
    step = 4.0 * count if work.optimiser == "lamb" else 2 * largest if work.optimiser == "muon" else 0.0
    moments.append(
        _with(common, at="the optimiser's step", gradients=4.0 * count, head=0.0, half_weights=0.0, passing=step)
    )
    return moments


def _layers_going_back(
    config: EncoderConfig,
    parameters: Parameters,
    work: Work,
    common: Memory,
    layer: LayerActivations,
    embedded: float,
    boundary: float,
) -> list[Memory]:
    """Each layer in turn: the activations below it are still there, the gradients above it already."""
    table = 4.0 * config.vocab_size * config.embedding_width if work.purpose == "pretrain" else 0.0
    blocks = 4.0 * (parameters.attention + parameters.feed_forward)
    moments = []
    for depth in range(config.num_layers, 0, -1):
        met = {plan[1] for plan in config.plan[depth - 1 :]}
        gradients = table + blocks * len(met) / config.num_feed_forward_blocks
        below = (depth * boundary + layer.kept) if work.checkpointing else depth * layer.kept
        half = common.half_weights
        if work.checkpointing and work.is_half:  # made anew for the layer that is computed again
            half = 2.0 * (config.vocab_size * config.embedding_width + parameters.linear_layer)
        moments.append(
            _with(
                common,
                at=f"layer {depth}, going back",
                gradients=gradients,
                half_weights=half,
                activations=embedded + below,
                head=0.0,
                passing=layer.extra + boundary,
            )
        )
    return moments


def _half_weights(config: EncoderConfig, parameters: Parameters, work: Work) -> float:
    """Autocast copies the weights of linear layers, and the token table where it serves as the head."""
    if not work.is_half:
        return 0.0
    table = config.vocab_size * config.embedding_width if work.purpose == "pretrain" else 0
    return 2.0 * (parameters.linear + table)


def _with(moment: Memory, **changes: float | str) -> Memory:
    values = {field.name: getattr(moment, field.name) for field in fields(moment)}
    return Memory(**{**values, **changes})
