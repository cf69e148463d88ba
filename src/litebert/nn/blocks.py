"""The two kinds of block an encoder is made of. Each ends in its own residual connection and norm (post-norm).

Under autocast a norm gives fp32, so that the residual stream between blocks is twice as wide as what products read and
write. A block with ``half_residual`` hands on what its norm gives in the products' own type: a few percent less time to
train on a GPU, at one more rounding of the stream in every block (docs/LOG.md has what both come to).

T tokens, S sequences, Q queries of a sequence, H width, A heads, D head width.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from litebert.nn.attention import attend, attend_from, attend_together, pad
from litebert.nn.config import Activation, EncoderConfig
from litebert.nn.layout import Layout
from litebert.nn.positions import Relations, RelativePositions

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu": F.gelu,
    "relu": F.relu,
    "silu": F.silu,
}


class AttentionBlock(nn.Module):
    """Self-attention, projection, dropout, residual, norm (ALBERT section 3.1)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads_shape = (config.num_heads, config.head_width)
        self.dropout, self.attention_dropout = config.dropout, config.attention_dropout
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=config.attention_bias)
        self.out = nn.Linear(config.width, config.width, bias=config.attention_bias)
        self.norm = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.relative = RelativePositions(config) if config.positions == "relative" else None
        self.half_residual = False

    def forward(self, x: Tensor, layout: Layout, relations: Relations | None = None) -> Tensor:
        """Every token of ``x`` (T, H) looks at its own sequence."""
        qkv = self.qkv(x).unflatten(-1, (3, *self.heads_shape))
        if self.relative is None:
            return self._finish(x, attend_together(qkv, layout, dropout=self._dropped()))
        q, k, v = qkv.unbind(1)
        return self._finish(x, self._attend_relative(q, k, v, layout, relations))

    def two_streams(
        self, content: Tensor, query: Tensor, layout: Layout, of_content: Relations, of_query: Relations
    ) -> tuple[Tensor, Tensor]:
        """As ``forward`` for the content stream (T, H), which the query stream (S, Q, H) looks at, too."""
        assert self.relative is not None
        q, k, v = self.qkv(content).unflatten(-1, (3, *self.heads_shape)).unbind(1)
        attended = self._attend_relative(q, k, v, layout, of_content)
        width, bias = query.shape[-1], self.qkv.bias
        asking = F.linear(query, self.qkv.weight[:width], None if bias is None else bias[:width])
        asking = asking.unflatten(-1, self.heads_shape)
        terms = self.relative(asking, of_query)
        asking = asking + self.relative.content_bias
        told = attend_from(asking, k, v, layout, bias=terms, dropout=self._dropped())
        return self._finish(content, attended), self._finish(query, told)

    def _attend_relative(self, q: Tensor, k: Tensor, v: Tensor, layout: Layout, relations: Relations | None) -> Tensor:
        assert self.relative is not None and relations is not None
        bias = self.relative(pad(q, layout), relations)
        return attend(q + self.relative.content_bias, k, v, layout, bias=bias, dropout=self._dropped())

    def _dropped(self) -> float:
        """The share of attention weights that is dropped."""
        return self.attention_dropout if self.training else 0.0

    def _finish(self, x: Tensor, attended: Tensor) -> Tensor:
        attended = attended.flatten(-2)
        return _norm_of_sum(
            self.norm, x, F.dropout(self.out(attended), self.dropout, self.training), self.half_residual
        )


class FeedForwardBlock(nn.Module):
    """Up, activation, down, dropout, residual, norm.

    Hugging Face's ALBERT leaves the dropout out; the paper's code has it, and so do we.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.dropout, self.activation_dropout = config.dropout, config.activation_dropout
        self.up = nn.Linear(config.width, config.feed_forward_width)
        self.down = nn.Linear(config.feed_forward_width, config.width)
        self.norm = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.half_residual = False

    def forward(self, x: Tensor) -> Tensor:
        inner = F.dropout(self.activation(self.up(x)), self.activation_dropout, self.training)
        return _norm_of_sum(self.norm, x, F.dropout(self.down(inner), self.dropout, self.training), self.half_residual)


def _norm_of_sum(norm: nn.LayerNorm, x: Tensor, change: Tensor, half: bool) -> Tensor:
    """The norm of the stream and what a block adds to it, in the type of what is added if ``half``."""
    out: Tensor = norm(x + change)
    return out.to(change.dtype) if half else out


def initialise(module: nn.Module, std: float) -> None:
    """Truncated normal weights, zero biases, unit norms (ALBERT's released code)."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            nn.init.trunc_normal_(part.weight, std=std, a=-2 * std, b=2 * std)
        if isinstance(part, nn.Linear) and part.bias is not None:
            nn.init.zeros_(part.bias)
        if isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)
        if isinstance(part, RelativePositions):
            for parameter in (part.content_bias, part.distance_bias, part.segment_bias, part.segment):
                with torch.no_grad():
                    parameter.normal_(std=std)
