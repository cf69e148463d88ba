"""Relative positions and segments (XLNet): what they add to the attention scores.

The extra terms are additive, so attention stays one fused call and receives them as a bias.

T tokens, S sequences, N longest, Q queries of a sequence, A heads, D head width, H width.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from litebert.nn.attention import pad
from litebert.nn.config import EncoderConfig
from litebert.nn.layout import Layout


@dataclass(frozen=True)
class Relations:
    """How queries stand to the tokens of their sequence; made once per forward pass, used by every block.

    Q is N, every token, or fewer where ``at`` has chosen some.
    """

    distances: Tensor  # (2N, H) the encodings of the distances N, N - 1, ... 1 - N
    places: Tensor  # (S or 1, Q) where in its sequence a query is
    same_segment: Tensor | None  # (S, Q, N) True where two tokens are of one segment
    visible: Tensor | None  # (S, Q, N) True where a query may look, for permutation language models

    @classmethod
    def of(cls, layout: Layout, width: int, dtype: torch.dtype, segments: Tensor | None) -> "Relations":
        """The relations of a batch in which every token sees every other of its sequence."""
        same = None
        if segments is not None:
            rows = pad(segments, layout)
            same = rows[:, :, None] == rows[:, None, :]
        device = layout.starts.device
        places = torch.arange(layout.longest, device=device)[None]
        return cls(_sinusoids(layout.longest, width, device).to(dtype), places, same, None)

    def seeing(self, visible: Tensor) -> "Relations":
        """The same relations with sight limited."""
        return replace(self, visible=visible)

    def at(self, places: Tensor) -> "Relations":
        """Those of the queries at these places (S, Q) of every sequence alone, which see everything."""
        same = self.same_segment
        return Relations(self.distances, places, None if same is None else rows_at(same, places), None)


def rows_at(rows: Tensor, places: Tensor) -> Tensor:
    """Of padded rows (S, N, ...) those at ``places`` (S, Q): (S, Q, ...)."""
    sequences = torch.arange(rows.shape[0], device=rows.device)[:, None]
    return rows[sequences, places]


def _sinusoids(longest: int, width: int, device: torch.device) -> Tensor:
    """(2N, H) sines and cosines of the distances from N down to 1 - N (XLNet's order)."""
    distances = torch.arange(longest, -longest, -1, device=device).float()
    frequencies = 1 / 10000 ** (torch.arange(0, width, 2, device=device).float() / width)
    angles = distances[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class RelativePositions(nn.Module):
    """The position and segment terms of Transformer-XL attention, with their own query biases."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        heads, head_width = config.num_heads, config.head_width
        self.distance = nn.Linear(config.width, config.width, bias=False)
        self.content_bias = nn.Parameter(torch.zeros(heads, head_width))
        self.distance_bias = nn.Parameter(torch.zeros(heads, head_width))
        self.segment_bias = nn.Parameter(torch.zeros(heads, head_width))
        self.segment = nn.Parameter(torch.zeros(2, heads, head_width))  # same segment, another segment

    def forward(self, q: Tensor, relations: Relations) -> Tensor:
        """The bias (S, A, Q, N) that these terms add to the scaled scores of queries (S, Q, A, D)."""
        longest = relations.distances.shape[0] // 2
        keys = self.distance(relations.distances).unflatten(-1, q.shape[2:])  # (2N, A, D)
        scores = torch.einsum("sqad,mad->saqm", q + self.distance_bias, keys)
        others = torch.arange(longest, device=q.device)
        shift = longest - relations.places[:, None, :, None] + others  # the column that holds the distance i - j
        scores = scores.gather(-1, shift.expand(*scores.shape[:3], longest))
        if relations.same_segment is not None:
            by_kind = torch.einsum("sqad,kad->saqk", q + self.segment_bias, self.segment)
            same = relations.same_segment[:, None]
            scores = scores + torch.where(same, by_kind[..., :1], by_kind[..., 1:])
        scores = scores * q.shape[-1] ** -0.5
        if relations.visible is not None:
            # Finite, as in the reference: a token that may see nothing looks at everything equally.
            hidden = -65500.0 if scores.dtype == torch.float16 else -1e30
            scores = scores + torch.where(relations.visible, 0.0, hidden).to(scores.dtype)[:, None]
        return scores
