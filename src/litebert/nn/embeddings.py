"""From token ids to the first states: token, position and segment tables of any width, norm, dropout, projection.

T tokens, E embedding width, H width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from litebert.nn.config import EncoderConfig
from litebert.nn.layout import Layout


class Embeddings(nn.Module):
    """Factorised embeddings: tables of width E, then a linear map to width H (ALBERT section 3.1)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size = config.embedding_width
        self.dropout, self.position_offset = config.dropout, config.position_offset
        self.token = nn.Embedding(config.vocab_size, size)
        self.position: nn.Embedding | None = None
        self.mask: nn.Parameter | None = None
        if config.positions == "absolute":
            self.position = nn.Embedding(config.max_positions + config.position_offset, size)
        else:
            self.mask = nn.Parameter(torch.zeros(config.width))  # where the query stream of two-stream attention starts
        self.segment = nn.Embedding(config.num_segments, size) if config.num_segments else None
        self.norm = nn.LayerNorm(size, eps=config.norm_eps) if config.embedding_norm else None
        self.projection = nn.Linear(size, config.width) if config.projects_embeddings else None

    def forward(self, ids: Tensor, layout: Layout, segments: Tensor | None) -> Tensor:
        """(T) ids to (T, H) states; without ``segments`` every token is of the first."""
        x = self.token(ids)
        if self.position is not None:
            x = x + self.position(layout.positions + self.position_offset)
        if self.segment is not None:
            x = x + (self.segment.weight[0] if segments is None else self.segment(segments))
        if self.norm is not None:
            x = self.norm(x)
        x = F.dropout(x, self.dropout, self.training)
        return x if self.projection is None else self.projection(x)
