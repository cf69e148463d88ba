"""How much arithmetic a token costs: multiplications and additions of the matrix products, nothing else.

Norms, activations and softmax are left out, as is usual: they cost memory traffic, not arithmetic. Sharing blocks
changes nothing here. The pooler and the order head see one token a sequence and are left out, too.
"""

from typing import Literal

from litebert.nn.config import EncoderConfig

Purpose = Literal["infer", "finetune", "pretrain"]
PURPOSES: tuple[Purpose, ...] = ("infer", "finetune", "pretrain")
MASKED_SHARE = 0.15  # of the tokens are predicted in pretraining (ALBERT section 4.1)


def layer_flops(config: EncoderConfig, length: int) -> float:
    """Forward arithmetic of one layer, the mean over all, for one token of a sequence of ``length``."""
    products = 4 * config.width**2 + 2 * config.width * config.feed_forward_width
    seen = sum(pattern.mean_seen(length) for pattern in config.patterns) / config.num_layers
    scores = 2 * seen * config.width  # queries with keys, weights with values
    if config.positions == "relative":
        scores += 2.0 * length * config.width  # queries with the encodings of 2 x length distances
    return 2.0 * (products + scores)


def flops_per_token(config: EncoderConfig, length: int, purpose: Purpose) -> float:
    """Arithmetic for one token: forward only to infer, three times that to train (backward is two products for one)."""
    forward = config.num_layers * layer_flops(config, length)
    if config.projects_embeddings:
        forward += 2.0 * config.embedding_width * config.width
    if purpose == "infer":
        return forward
    if purpose == "pretrain":
        forward += MASKED_SHARE * head_flops(config)
    return 3 * forward


def query_flops(config: EncoderConfig, length: float) -> float:
    """Forward arithmetic of two-stream attention's query stream for one predicted token in a sequence of ``length``.

    Keys and values are the content stream's. Scores are those of ``length`` tokens and twice as many distances.
    """
    products = 2 * config.width**2 + 2 * config.width * config.feed_forward_width
    return config.num_layers * 2.0 * (products + 4 * length * config.width)


def head_flops(config: EncoderConfig) -> float:
    """Forward arithmetic of the masked-LM head at one position."""
    transform = config.width * config.embedding_width if config.head_transform else 0
    return 2.0 * (transform + config.embedding_width * config.vocab_size)
