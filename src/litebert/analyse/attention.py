"""Where a layer looks: the entropy of its attention. The weights are computed here, from queries and keys.

The fast path never has them: its kernels do not write them out.

T tokens, S sequences, N longest, A heads, D head width.
"""

from typing import cast

import torch
from torch import Tensor

from litebert.analyse.inputs import Inputs
from litebert.nn.attention import keys_allowed, pad, unpad
from litebert.nn.blocks import AttentionBlock
from litebert.nn.encoder import Encoder
from litebert.nn.positions import Relations


def attention_weights(block: AttentionBlock, x: Tensor, inputs: Inputs) -> Tensor:
    """(S, A, N, N) how much each token (rows) looks at each other one of its sequence when ``x`` (T, H) comes in."""
    layout = inputs.layout
    q, k, _ = block.qkv(x).unflatten(-1, (3, *block.heads_shape)).unbind(1)
    bias = None
    if block.relative is not None:
        relations = Relations.of(layout, x.shape[-1], x.dtype, inputs.segments)
        bias = block.relative(q, layout, relations)
        q = q + block.relative.content_bias
    q, k = (pad(part, layout).transpose(1, 2) for part in (q, k))
    scores = q @ k.mT * q.shape[-1] ** -0.5
    scores = scores if bias is None else scores + bias
    allowed = keys_allowed(layout)[:, None, None, :]
    return scores.masked_fill(~allowed, float("-inf")).softmax(-1)


def entropies(encoder: Encoder, states: list[Tensor], inputs: Inputs) -> Tensor:
    """(T, L, A) the entropy, in nats, of every token's attention in every layer and head."""
    found = []
    for depth, (block, _) in enumerate(encoder.plan):
        weights = attention_weights(cast(AttentionBlock, encoder.attention[block]), states[depth], inputs)
        entropy = torch.special.entr(weights).sum(-1)  # (S, A, N)
        found.append(unpad(entropy.transpose(1, 2), inputs.layout))
    return torch.stack(found, dim=1)


def widest(inputs: Inputs) -> Tensor:
    """(T) the entropy of looking everywhere equally, the most there can be for each token."""
    lengths = inputs.layout.lengths
    return torch.repeat_interleave(lengths.double().log(), lengths)
