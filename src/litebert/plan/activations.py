"""What one pass through our modules keeps for the backward pass, in bytes, tensor by tensor.

Written from what ``nn/blocks.py``, ``nn/attention.py``, ``nn/embeddings.py`` and ``nn/heads.py`` save in eager mode;
the tests hold every figure against what autograd really saves. Sharing blocks changes nothing here.

T tokens, S sequences, N longest, R = S x N rows of a padded batch, P predicted positions, H width, F feed-forward
width, E embedding width, A heads, V vocabulary.
"""

from dataclasses import dataclass

from litebert.nn.config import EncoderConfig
from litebert.plan.work import Work

INDEX = 8  # bytes of an index, and of the mean and the reciprocal deviation that a norm keeps for a token

# Two depths' scores (the second at every second position) and what one learns of the other, against one depth's alone;
# measured on a CPU: 1.85 in fp32, 1.95 in bf16.
ELASTIC_SCORES = 2.0
HEAP_BLOCK_BYTES = 32 * 2**20  # glibc never puts larger ones into its heap


@dataclass(frozen=True)
class LayerActivations:
    """Bytes that one layer keeps, and what its backward pass needs on top at its worst moment."""

    attention: float
    feed_forward: float
    extra: float
    in_small_blocks: float  # of what it keeps, that in tensors small enough for the C library's heap

    @property
    def kept(self) -> float:
        return self.attention + self.feed_forward


def stream_bytes(config: EncoderConfig, work: Work) -> int:
    """Bytes of a number in the residual stream, which autocast leaves in fp32 wherever a norm gave it, unless narrow.

    On a CPU a norm keeps the precision it is given, and with an embedding projection that is half.
    """
    if not work.is_half or work.narrow:
        return work.number_bytes
    return 2 if work.kind == "cpu" and config.projects_embeddings else 4


def layer_activations(config: EncoderConfig, work: Work) -> LayerActivations:
    """What one layer keeps of a batch."""
    number, stream, tokens = work.number_bytes, stream_bytes(config, work), work.tokens
    width, inner_width = config.width, config.feed_forward_width
    dropped = _dropout(work, config.dropout, number) * width * tokens
    # A norm's input, which eager autocast on a GPU makes fp32, and its statistics.
    norm = ((4 if work.kind == "cuda" and not work.compiled else stream) * width + INDEX) * tokens
    entry = number * width * tokens  # the block's input as the linear layers see it

    attention = entry + 3 * number * width * tokens + _attended(config, work) + dropped + norm
    inner = number * inner_width * tokens
    keeps_input = config.activation != "relu" or config.activation_dropout > 0  # relu needs its output alone
    feed_forward = (
        entry
        + inner * (2 if keeps_input else 1)
        + _dropout(work, config.activation_dropout, number) * inner_width * tokens
        + dropped
        + norm
    )
    # Going back through the second linear layer of a feed-forward block: the gradients of its input and its output
    # while all the block kept is still there but the norm's input, whose place the residual's gradient has taken.
    extra = float(inner + entry)
    quadratic = _scores(config, work)
    if quadratic:  # by then the feed-forward block's are gone, so this matters for long sequences only
        extra = max(extra, 2 * quadratic + 4 * entry - feed_forward)
    large = _in_large_blocks(inner, 2 if keeps_input else 1) + _in_large_blocks(quadratic, 3)
    small = 0.0 if entry >= HEAP_BLOCK_BYTES else max(0.0, attention + feed_forward - large)
    return LayerActivations(attention, feed_forward, extra, small)


def _in_large_blocks(size: float, count: int) -> float:
    return count * size if size >= HEAP_BLOCK_BYTES else 0.0


def _attended(config: EncoderConfig, work: Work) -> float:
    """What attention keeps beside the projections: its output, and all that a padded call copies."""
    number, tokens, width = work.number_bytes, work.tokens, config.width
    out = float(number * width * tokens)
    if not attends_padded(config, work):
        return out + 4 * config.num_heads * tokens  # and the sums of the softmax
    rows = work.sequences * work.longest  # with dropout on a CPU a bound: there groups of about one length are padded
    kept = out + 4 * INDEX * tokens  # the places of tokens in padded rows, once for q, k, v and the way back
    if work.kind == "cpu":
        # The unfused path works in fp32: q, k and v, then weights before and after dropout, and the dropout's noise.
        kept += 3 * 4 * width * rows + _scores(config, work) * (3 if config.attention_dropout else 1)
    else:
        sums = 4 * config.num_heads * work.sequences * -(-work.longest // 32) * 32
        kept += 4 * number * width * rows + sums
    if config.positions == "relative":
        kept += _relative(config, work)
    return kept


def _relative(config: EncoderConfig, work: Work) -> float:
    """What the position terms of XLNet keep: the queries with two biases, and their scores with every distance."""
    number, width, longest = work.number_bytes, config.width, work.longest
    rows = work.sequences * longest
    kept = (2 * 4 * width + INDEX) * work.tokens  # the biases are in fp32, and so is their sum with the queries
    kept += number * width * (rows + 2 * longest) + INDEX * longest**2
    pairs = number * config.num_heads * rows * longest
    return kept + pairs * (3 if work.kind == "cuda" else 2)  # 2 x longest distances; fused attention keeps the bias


def _scores(config: EncoderConfig, work: Work) -> float:
    """Bytes of one score for every pair of places, where attention is not fused."""
    if not attends_padded(config, work) or (work.kind == "cuda" and config.positions == "absolute"):
        return 0.0
    return 4.0 * config.num_heads * work.sequences * work.longest**2


def attends_padded(config: EncoderConfig, work: Work) -> bool:
    """Whether attention has to pad: a bias, fp32 or an old GPU, weights dropped on a CPU (see ``nn/attention.py``)."""
    if config.positions == "relative":
        return True
    if work.kind == "cuda":
        return not (work.is_half and work.flash)
    return config.attention_dropout > 0 and work.purpose != "infer"


def embedding_activations(config: EncoderConfig, work: Work) -> float:
    """What the embeddings keep: the norm's input, the dropout's mask, the projection's input, position ids."""
    tokens, size = work.tokens, config.embedding_width
    kept = float(
        INDEX * tokens if config.positions == "absolute" else work.number_bytes * 2 * work.longest * config.width
    )
    if config.embedding_norm:
        kept += (4 * size + INDEX) * tokens
    kept += _dropout(work, config.dropout, 4) * size * tokens
    if config.projects_embeddings:
        kept += work.number_bytes * size * tokens
    return kept


def predicted_positions(work: Work) -> int:
    """How many tokens the masked-LM head predicts."""
    return max(1, round(work.scores.share * work.tokens)) if work.purpose == "pretrain" else 0


def head_activations(config: EncoderConfig, work: Work) -> float:
    """What pooler and heads keep, without the scores of the vocabulary."""
    number, places = work.number_bytes, predicted_positions(work)
    pooled = 2 * number * config.width * work.sequences + INDEX * work.sequences
    norm_input = 4 if work.kind == "cuda" else number
    kept = number * config.width + 2 * INDEX
    if config.head_transform:
        kept += (2 * number + norm_input) * config.embedding_width + INDEX
    return pooled + kept * places


def vocabulary_scores(config: EncoderConfig, work: Work) -> float:
    """Bytes of one fp32 number for every predicted position held at once and every piece of the vocabulary."""
    places = predicted_positions(work)
    places = min(places, work.scores.chunk) if work.scores.chunk else places
    return 4.0 * places * config.vocab_size * (ELASTIC_SCORES if work.scores.elastic else 1.0)


def _dropout(work: Work, rate: float, number: int) -> int:
    """Bytes a number that dropout keeps: a mask of one byte on CUDA, its noise in full precision on a CPU."""
    if rate == 0:
        return 0
    return 1 if work.kind == "cuda" else number
