"""The one encoder. It owns blocks and a plan, and runs for each depth the blocks that the plan names.

T tokens, S sequences, N longest, Q predicted tokens of a sequence, H width.
"""

from collections.abc import Callable
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from litebert.errors import InputError
from litebert.nn.attention import pad, unpad
from litebert.nn.blocks import AttentionBlock, FeedForwardBlock, initialise
from litebert.nn.config import EncoderConfig
from litebert.nn.embeddings import Embeddings
from litebert.nn.layout import Layout
from litebert.nn.positions import Relations, rows_at


class Encoder(nn.Module):
    """Packed tokens in, packed states out. ``checkpointing`` trades a second forward pass for activation memory."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.plan, self.patterns = config.plan, config.patterns
        self.checkpointing = False
        self.graph_per_layer = False  # when compiled
        self.embeddings = Embeddings(config)
        self.attention = nn.ModuleList(AttentionBlock(config) for _ in range(config.num_attention_blocks))
        self.feed_forward = nn.ModuleList(FeedForwardBlock(config) for _ in range(config.num_feed_forward_blocks))
        initialise(self, config.initial_std)
        if self.embeddings.mask is not None:
            nn.init.normal_(self.embeddings.mask, std=config.initial_std)

    def half_residual(self, on: bool = True) -> None:
        """Whether the residual stream between blocks is as wide as the products' numbers, instead of fp32."""
        for block in (*self.attention, *self.feed_forward):
            assert isinstance(block, AttentionBlock | FeedForwardBlock)
            block.half_residual = on

    def forward(
        self,
        ids: Tensor,
        layout: Layout,
        segments: Tensor | None = None,
        *,
        depth: int | None = None,
        fixed_embeddings: bool = False,
    ) -> Tensor:
        """(T) ids to the states (T, H) after ``depth`` layers, all of them unless said otherwise.

        With ``fixed_embeddings`` no gradient reaches the embeddings.
        """
        x = self.embeddings(ids, layout, segments)
        x = x.detach() if fixed_embeddings else x
        return self._states(x, layout, self.relations(layout, segments, x.dtype), self._check_depth(depth), False)[-1]

    def states(
        self, ids: Tensor, layout: Layout, segments: Tensor | None = None, *, depth: int | None = None
    ) -> list[Tensor]:
        """The states (T, H) at every depth, the embeddings first."""
        x = self.embeddings(ids, layout, segments)
        return self._states(x, layout, self.relations(layout, segments, x.dtype), self._check_depth(depth), True)

    def two_streams(
        self,
        ids: Tensor,
        layout: Layout,
        ranks: Tensor,
        segments: Tensor | None = None,
        *,
        places: Tensor | None = None,
        depth: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The content and query streams of a permutation language model (XLNet section 2.3) after ``depth`` layers.

        ``ranks`` (T) is each token's place in the factorisation order, -1 for context that is never predicted. The
        content stream sees ranks up to its own, the query stream only lower ones: it never sees what it must predict.
        The content is (T, H); so is the query stream, or (S, Q, H) at these ``places`` (S, Q) of every sequence alone.
        """
        everywhere = torch.arange(layout.longest, device=ids.device).expand(layout.num_sequences, -1)
        asked = everywhere if places is None else places
        content, query = self.two_stream_states(ids, layout, ranks, asked, segments, depth=depth)[-1]
        return content, unpad(query, layout) if places is None else query

    def two_stream_states(
        self,
        ids: Tensor,
        layout: Layout,
        ranks: Tensor,
        places: Tensor,
        segments: Tensor | None = None,
        *,
        depth: int | None = None,
    ) -> list[tuple[Tensor, Tensor]]:
        """Both streams, (T, H) and (S, Q, H), at every depth."""
        content = self.embeddings(ids, layout, segments)
        if self.embeddings.mask is None:
            raise InputError(f"two-stream attention needs relative positions; this is a {self.config.family} model")
        query = self.embeddings.mask.to(content.dtype).expand(*places.shape, -1)
        relations = self.relations(layout, segments, content.dtype)
        assert relations is not None
        rows = pad(ranks, layout)
        up_to_own = relations.seeing(rows[:, None, :] <= rows[:, :, None])
        lower = relations.at(places).seeing(rows[:, None, :] < rows_at(rows, places)[:, :, None])
        again, states = self.checkpointing and torch.is_grad_enabled(), [(content, query)]
        for attention, feed_forward in self.plan[: self._check_depth(depth)]:
            parts = self.attention[attention], self.feed_forward[feed_forward]
            both = partial(_both_streams, *parts, layout=layout, of_content=up_to_own, of_query=lower)
            streams = checkpoint(both, *states[-1], use_reentrant=False) if again else both(*states[-1])
            states.append(cast(tuple[Tensor, Tensor], streams))
        return states

    def _states(self, x: Tensor, layout: Layout, relations: Relations | None, depth: int, every: bool) -> list[Tensor]:
        """The states after so many layers: those of every depth, or the last alone."""
        again = self.checkpointing and torch.is_grad_enabled()
        if again or self.graph_per_layer:
            return self._states_apart(x, layout, relations, depth, every, _layer_again if again else _layer)
        states = [x]
        for (attention, feed_forward), pattern in zip(self.plan[:depth], self.patterns, strict=False):
            x = _layer(
                self.attention[attention], self.feed_forward[feed_forward], x, layout.with_pattern(pattern), relations
            )
            states = [*states, x] if every else [x]
        return states

    # Not one graph when compiled, but one a layer, the same one for all: quicker to compile, and needed where
    # activations are made again. In a graph of all layers inductor fuses what the depths do with a shared weight, so
    # that all of them are computed again at once.
    @torch.compiler.disable(recursive=False)
    def _states_apart(
        self, x: Tensor, layout: Layout, relations: Relations | None, depth: int, every: bool, layer: "_Layer"
    ) -> list[Tensor]:
        """As ``_states``, with ``layer`` for each layer."""
        states = [x]
        for (attention, feed_forward), pattern in zip(self.plan[:depth], self.patterns, strict=False):
            x = layer(
                self.attention[attention], self.feed_forward[feed_forward], x, layout.with_pattern(pattern), relations
            )
            states = [*states, x] if every else [x]
        return states

    def relations(self, layout: Layout, segments: Tensor | None, dtype: torch.dtype) -> Relations | None:
        """How the tokens of a batch stand to each other, where positions are relative; else None."""
        if self.config.positions == "absolute":
            return None
        return Relations.of(layout, self.config.width, dtype, segments)

    def layer(self, depth: int, x: Tensor, layout: Layout, relations: Relations | None = None) -> Tensor:
        """The states (T, H) after one more layer, the one of this depth, counted from 1."""
        attention, feed_forward = self.plan[depth - 1]
        layout = layout.with_pattern(self.patterns[depth - 1])
        return _layer(self.attention[attention], self.feed_forward[feed_forward], x, layout, relations)

    def _check_depth(self, depth: int | None) -> int:
        if depth is None:
            return len(self.plan)
        if not 0 <= depth <= len(self.plan):
            raise InputError(f"depth {depth} asked for, but this model has depths 0 to {len(self.plan)}")
        return depth


def _both_streams(
    attention: nn.Module,
    feed_forward: nn.Module,
    content: Tensor,
    query: Tensor,
    *,
    layout: Layout,
    of_content: Relations,
    of_query: Relations,
) -> tuple[Tensor, Tensor]:
    """Both streams after one more layer."""
    assert isinstance(attention, AttentionBlock)
    content, query = attention.two_streams(content, query, layout, of_content, of_query)
    return feed_forward(content), feed_forward(query)


_Layer = Callable[[nn.Module, nn.Module, Tensor, Layout, Relations | None], Tensor]


def _layer(
    attention: nn.Module, feed_forward: nn.Module, x: Tensor, layout: Layout, relations: Relations | None
) -> Tensor:
    return cast(Tensor, feed_forward(attention(x, layout, relations)))


def _layer_again(
    attention: nn.Module, feed_forward: nn.Module, x: Tensor, layout: Layout, relations: Relations | None
) -> Tensor:
    return cast(Tensor, checkpoint(_layer, attention, feed_forward, x, layout, relations, use_reentrant=False))
