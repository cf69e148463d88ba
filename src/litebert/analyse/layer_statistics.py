"""What layers do to the states that pass through them, batch by batch: change, attention entropy, similarity.

- Change: distance and angle between a token's states before and after a layer (ALBERT, figure 1), and contribution
  (Poor Man's BERT): the mean cosine between the ``[CLS]`` states before and after it. A cosine near 1 means that the
  layer changes little, so it is dropped first.
- Attention entropy: how widely a layer looks. Attention weights are computed here, from queries and keys, since the
  fast kernels never write them out.
- Similarity of two depths: linear CKA, which asks whether both place the same tokens near each other. It ignores
  rotation, scale and the direction that all states of a model share (which makes plain cosines of different depths look
  alike). It is estimated without bias from small groups of tokens (HSIC_1 of Song et al., summed over groups before
  dividing, as Nguyen, Raghu and Kornblith do), so memory does not grow with the text.

T tokens, S sequences, N longest, H width, L layers, A heads, D depths (L + 1, embeddings first), n tokens of a group.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor

from litebert.analyse.inputs import Inputs
from litebert.nn.attention import keys_allowed, pad, unpad
from litebert.nn.blocks import AttentionBlock
from litebert.nn.encoder import Encoder
from litebert.nn.layout import Layout
from litebert.nn.positions import Relations
from litebert.nn.sparse_attention import pattern_mask

GROUP = 256
FEWEST = 4  # the unbiased estimate does not exist for fewer


class Mean:
    """The mean of rows that arrive in batches, summed in double precision."""

    def __init__(self) -> None:
        self._sum: Tensor | None = None
        self._count = 0

    def add(self, rows: Tensor) -> None:
        """Add rows (n, ...)."""
        total = rows.double().sum(0).cpu()
        self._sum = total if self._sum is None else self._sum + total
        self._count += rows.shape[0]

    def value(self) -> Tensor:
        assert self._sum is not None, "nothing was added"
        return self._sum / self._count


def distances(states: Sequence[Tensor]) -> Tensor:
    """(T, L) the L2 distance between each token's state before a layer and after it."""
    return torch.stack([(after - before).norm(dim=-1) for before, after in pairwise(states)], dim=-1)


def angles(states: Sequence[Tensor]) -> Tensor:
    """(T, L) the angle in degrees between each token's state before a layer and after it."""
    return torch.stack([angle(before, after) for before, after in pairwise(states)], dim=-1)


def angle(a: Tensor, b: Tensor) -> Tensor:
    """Degrees between vectors, by half angles: an arc cosine loses half its digits where vectors are alike."""
    a, b = (x / x.norm(dim=-1, keepdim=True).clamp(min=1e-30) for x in (a, b))
    return torch.rad2deg(2 * torch.atan2((a - b).norm(dim=-1), (a + b).norm(dim=-1)))


def cls_states(states: Sequence[Tensor], layout: Layout, pooled_token: str) -> list[Tensor]:
    """For each depth the states (S, H) of the token that stands for a text: the first, in XLNet the last."""
    places = layout.first if pooled_token == "first" else layout.last
    return [depth[places].double() for depth in states]


def cosines(states: Sequence[Tensor]) -> Tensor:
    """(S, L) the cosine between the states before and after each layer."""
    return torch.stack([torch.cosine_similarity(before, after, dim=-1) for before, after in pairwise(states)], dim=-1)


@torch.no_grad()
def contribution(encoder: Encoder, batches: Iterable[Inputs]) -> list[float]:
    """The mean ``[CLS]`` cosine of every layer over a text, the bottom layer first."""
    mean = Mean()
    for inputs in batches:
        states = encoder.states(inputs.ids, inputs.layout, inputs.segments)
        mean.add(cosines(cls_states(states, inputs.layout, encoder.config.pooled_token)))
    return [float(cosine) for cosine in mean.value()]


def attention_weights(block: AttentionBlock, x: Tensor, inputs: Inputs) -> Tensor:
    """(S, A, N, N) attention of each token (rows) to each token of its sequence, for the input ``x`` (T, H)."""
    layout = inputs.layout
    q, k, _ = block.qkv(x).unflatten(-1, (3, *block.heads_shape)).unbind(1)
    bias = None
    if block.relative is not None:
        relations = Relations.of(layout, x.shape[-1], x.dtype, inputs.segments)
        bias = block.relative(pad(q, layout), relations)
        q = q + block.relative.content_bias
    q, k = (pad(part, layout).transpose(1, 2) for part in (q, k))
    scores = q @ k.mT * q.shape[-1] ** -0.5
    scores = scores if bias is None else scores + bias
    allowed = keys_allowed(layout)[:, None, None, :]
    if not layout.is_full:
        allowed = allowed & pattern_mask(layout)[:, None]
    return scores.masked_fill(~allowed, float("-inf")).softmax(-1)


def entropies(encoder: Encoder, states: list[Tensor], inputs: Inputs) -> Tensor:
    """(T, L, A) the entropy, in nats, of every token's attention in every layer and head."""
    layers = []
    for depth, (block, _) in enumerate(encoder.plan):
        seen = replace(inputs, layout=inputs.layout.with_pattern(encoder.patterns[depth]))
        weights = attention_weights(cast(AttentionBlock, encoder.attention[block]), states[depth], seen)
        entropy = torch.special.entr(weights).sum(-1)  # (S, A, N)
        layers.append(unpad(entropy.transpose(1, 2), inputs.layout))
    return torch.stack(layers, dim=1)


def max_entropy(inputs: Inputs) -> Tensor:
    """(T) the maximum entropy of each token: attention spread evenly over its sequence."""
    lengths = inputs.layout.lengths
    return torch.repeat_interleave(lengths.double().log(), lengths)


def group_hsic(states: Tensor) -> Tensor:
    """(D, n, H) states of one group of tokens to the unbiased HSIC (D, D) of every pair of depths."""
    centred = states - states.mean(1, keepdim=True)  # only affects rounding
    products = centred @ centred.mT
    products.diagonal(dim1=1, dim2=2).zero_()
    n = products.shape[-1]
    rows = products.sum(-1)
    totals = rows.sum(-1)
    flat = products.flatten(1)
    same = flat @ flat.mT
    return (same + torch.outer(totals, totals) / ((n - 1) * (n - 2)) - 2 / (n - 2) * rows @ rows.mT) / (n * (n - 3))


class Similarity:
    """Linear CKA between all depths, over batches."""

    def __init__(self) -> None:
        self._hsic: Tensor | None = None

    def add(self, states: Sequence[Tensor]) -> None:
        """Add the states (T, H) of a batch at every depth. Groups take their tokens from all over the batch."""
        groups = -(-states[0].shape[0] // GROUP)
        for group in range(groups):
            some = torch.stack([depth[group::groups] for depth in states]).double()
            if some.shape[1] >= FEWEST:
                hsic = group_hsic(some).cpu() * some.shape[1]
                self._hsic = hsic if self._hsic is None else self._hsic + hsic

    def value(self) -> list[list[float]]:
        """The matrix (D, D), embeddings first; empty where there were too few tokens."""
        if self._hsic is None:
            return []
        own = self._hsic.diagonal().clamp(min=1e-30).sqrt()
        return [[float(x) for x in row] for row in (self._hsic / torch.outer(own, own)).clamp(0, 1)]
