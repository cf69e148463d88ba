"""Attention of tokens that see a window or a block and a few global tokens, over packed sequences: linear in length.

Global tokens see everything, and everything sees them. Windows and blocks lie on the row of the other tokens, so that
no pair is counted twice. On a CPU the fused kernel is called once for each chunk of queries. On CUDA there are three
calls of variable-length flash attention: the others among themselves, the others at the global tokens, the global
tokens at everything; what the others get of the first two is joined by the softmax sums. One operator does all of it,
and keeps no more for the backward pass than full attention does.

T tokens, S sequences, A heads, D head width, G global tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import torch
from torch import Tensor

from litebert.nn.attention_pattern import Pattern
from litebert.nn.layout import Layout

CHUNK = 128  # queries of a window that go into one call on a CPU
EVERYTHING = -1  # as a window
Grads = tuple[Tensor, Tensor, Tensor]


def pattern_mask(layout: Layout) -> Tensor:
    """(S, N, N) True where a token may look, as a table: for kernels that know nothing else."""
    pattern, longest, count = layout.pattern, layout.longest, layout.num_sequences
    cell = layout.sequence_of_token() * longest + layout.positions
    table = torch.zeros(count * longest, dtype=torch.bool, device=cell.device)
    glob = table.index_put((cell,), _is_global(layout)).view(count, longest)
    place = (~glob).cumsum(1)  # among the others, from 1
    if pattern.kind == "local":
        near = (place[:, :, None] - place[:, None]).abs() <= pattern.size
    else:
        block = (place - 1 + pattern.opening_gap).div(pattern.size, rounding_mode="floor")
        near = block[:, :, None] == block[:, None]
    return near | glob[:, :, None] | glob[:, None]


def attend_sparse(q: Tensor, k: Tensor, v: Tensor, layout: Layout) -> Tensor:
    """As ``attend``, without dropout."""
    pattern = layout.pattern
    near = (pattern.kind == "block", pattern.size, pattern.shifted, pattern.first)
    out: Tensor = torch.ops.litebert.attend_near(
        q, k, v, layout.starts, layout.positions, layout.chosen, layout.longest, *near
    )[0]
    return out


def _is_global(layout: Layout) -> Tensor:
    """(T) True for global tokens."""
    glob = layout.positions < layout.pattern.first
    return glob if layout.chosen is None else glob.index_fill(0, layout.chosen, True)


# --- on a CPU


@dataclass(frozen=True)
class _Run:
    """Neighbouring sequences of equal length that begin with equally many global tokens."""

    start: int
    count: int
    length: int
    glob: int

    def view(self, x: Tensor, places: slice) -> Tensor:
        """(T, A, ...) as (count, A, places, ...), sharing memory."""
        rows = x[self.start : self.start + self.count * self.length].unflatten(0, (self.count, self.length))
        return rows[:, places].transpose(1, 2)

    def keys(self, x: Tensor, places: slice) -> Tensor:
        """The global tokens, then these places: a view where they are neighbours."""
        if places.start == self.glob:
            return self.view(x, slice(0, places.stop))
        parts = [self.view(x, slice(0, self.glob)), self.view(x, places)]
        return torch.cat(parts, 2) if self.glob else parts[1]

    def add_to_keys(self, whole: Tensor, places: slice, piece: Tensor) -> None:
        """Add the gradients of ``keys`` to those of the tokens."""
        self.view(whole, slice(0, self.glob)).add_(piece[:, :, : self.glob])
        self.view(whole, places).add_(piece[:, :, self.glob :])

    def pieces(self, pattern: Pattern) -> Iterator[tuple[slice, slice, Tensor | None]]:
        """Dense pieces: queries, what they see beside the global tokens, and a mask. Global queries see everything."""
        first, length = self.glob, self.length
        if first:
            yield slice(0, first), slice(first, length), None
        if pattern.kind == "block":
            opening = pattern.size // 2 if pattern.shifted else pattern.size
            bounds = [first, *range(first + opening, length, pattern.size), length]
            yield from ((slice(*block), slice(*block), None) for block in pairwise(bounds) if block[0] < block[1])
        elif length - first <= pattern.size + 1:
            if length > first:
                yield slice(first, length), slice(first, length), None
        else:
            for begin in range(first, length, CHUNK):
                end = min(begin + CHUNK, length)
                low, high = max(first, begin - pattern.size), min(length, end + pattern.size)
                yield (
                    slice(begin, end),
                    slice(low, high),
                    _band_mask(end - begin, high - low, begin - low, pattern.size, first),
                )


def _runs(starts: Tensor, globs: Tensor) -> list[_Run]:
    """``globs`` (S): how many global tokens each sequence begins with."""
    runs: list[_Run] = []
    for (start, end), glob in zip(pairwise(starts.tolist()), globs.tolist(), strict=True):
        last = runs[-1] if runs else None
        if last and (last.length, last.glob) == (end - start, glob):
            runs[-1] = _Run(last.start, last.count + 1, last.length, glob)
        elif end > start:
            runs.append(_Run(start, 1, end - start, glob))
    return runs


@lru_cache(maxsize=64)
def _band_mask(rows: int, columns: int, ahead: int, window: int, glob: int) -> Tensor:
    """(rows, glob + columns) minus infinity beyond the window; the first row is at column ``ahead`` of the others."""
    away = (torch.arange(rows)[:, None] + ahead - torch.arange(columns)).abs()
    band = torch.zeros(rows, columns).masked_fill(away > window, float("-inf"))
    return torch.cat([torch.zeros(rows, glob), band], 1)


def _fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    given = None if mask is None else mask.to(q.dtype)
    found: tuple[Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, attn_mask=given)
    return found


def _near_on_cpu(q: Tensor, k: Tensor, v: Tensor, runs: list[_Run], pattern: Pattern) -> tuple[Tensor, Tensor]:
    """The attended values and the logarithms of the softmax sums (T, A), global tokens first in every sequence."""
    out, sums = torch.empty_like(q), q.new_empty(q.shape[:2])
    for run in runs:
        for places, seen, mask in run.pieces(pattern):
            found, found_sums = _fused(run.view(q, places), run.keys(k, seen), run.keys(v, seen), mask)
            run.view(out, places).copy_(found)
            run.view(sums, places).copy_(found_sums)
    return out, sums


def _near_on_cpu_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    sums: Tensor,
    runs: list[_Run],
    pattern: Pattern,
) -> Grads:
    grads = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for run in runs:
        for places, seen, mask in run.pieces(pattern):
            found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                *(run.view(x, places) for x in (grad, q)),
                *(run.keys(x, seen) for x in (k, v)),
                run.view(out, places),
                run.view(sums, places).contiguous(),
                *(0.0, False),
                attn_mask=None if mask is None else mask.to(q.dtype),
            )
            run.view(grads[0], places).add_(found[0])
            for whole, piece in zip(grads[1:], found[1:], strict=True):
                run.add_to_keys(whole, seen, piece)
    return grads


# --- on CUDA


@dataclass(frozen=True)
class _Rows:
    """Some tokens of every sequence, packed; what is behind the last of them is index T, which is no token."""

    index: Tensor  # into the flat row
    starts: Tensor  # (S + 1) int32

    def take(self, x: Tensor) -> Tensor:
        return x.index_select(0, self.index.clamp(max=len(x) - 1))


def _split(layout: Layout) -> tuple[_Rows, _Rows]:
    """The other tokens and the global ones. Their shapes do not depend on values, which CUDA graphs need."""
    total, device = layout.num_tokens, layout.starts.device
    every = torch.arange(total, device=device)
    glob, most = _is_global(layout), layout.pattern.first * layout.num_sequences
    most += 0 if layout.chosen is None else len(layout.chosen)
    before = torch.cat([every.new_zeros(1), glob.cumsum(0)])  # (T + 1) global tokens before each
    starts = before[layout.starts.long()]
    parts = []
    for member, rank, size, begins in (
        (~glob, every - before[:-1], total, layout.starts - starts),
        (glob, before[:-1], most, starts),
    ):
        index = torch.full((size + 1,), total, device=device)
        index = index.scatter(0, torch.where(member, rank, size), torch.where(member, every, total))
        parts.append(_Rows(index[:-1], begins.to(torch.int32)))
    return parts[0], parts[1]


def _block_starts(starts: Tensor, pattern: Pattern, tokens: int) -> Tensor:
    """Where blocks begin in packed rows, then their end a number of times: (blocks at the most + 1)."""
    rows = Layout(starts, torch.arange(tokens, device=starts.device), 0)
    owner = rows.sequence_of_token().clamp(max=rows.num_sequences - 1)
    place = rows.positions - starts.long()[owner]
    begins = ((place == 0) | ((place + pattern.opening_gap) % pattern.size == 0)) & (rows.positions < starts[-1])
    most = 2 * rows.num_sequences + tokens // pattern.size
    found = starts[-1:].long().expand(most + 1).clone()
    place_of = torch.where(begins, begins.cumsum(0) - 1, most)
    return found.scatter(0, place_of, torch.where(begins, rows.positions, starts[-1].long())).to(torch.int32)


@dataclass(frozen=True)
class _Band:
    """One attention over packed rows: of which queries at which keys, and how far they see."""

    starts: Tensor  # of queries
    key_starts: Tensor
    longest: int
    longest_key: int
    window: int = EVERYTHING

    @classmethod
    def near(cls, rows: _Rows, pattern: Pattern, longest: int) -> "_Band":
        """Of the other tokens among themselves."""
        if pattern.kind == "local":
            return cls(rows.starts, rows.starts, longest, longest, pattern.size)
        starts = _block_starts(rows.starts, pattern, len(rows.index))
        return cls(starts, starts, min(pattern.size, longest), min(pattern.size, longest))


def _flash(band: _Band, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """What queries (Q, A, D) get of keys and values, and the logarithms of the softmax sums (Q, A)."""
    out, sums, *_ = torch.ops.aten._flash_attention_forward(
        q, k, v, band.starts, band.key_starts, band.longest, band.longest_key, 0.0, False, False,
        window_size_left=band.window, window_size_right=band.window)  # fmt: skip
    sums = sums.T
    return out, sums.masked_fill(sums == float("inf"), float("-inf"))  # its word for a query without keys


def _flash_backward(band: _Band, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor) -> Grads:
    """Gradients of queries, keys and values; with ``out`` and ``sums`` of a larger attention, the share in it."""
    state, unused = torch.zeros(2, dtype=torch.uint64, device=q.device), torch.empty(0, device=q.device)
    found: Grads = torch.ops.aten._flash_attention_backward(
        grad, q, k, v, out, sums.T.contiguous(), band.starts, band.key_starts, band.longest, band.longest_key, 0.0,
        False, state, unused, window_size_left=band.window, window_size_right=band.window)  # fmt: skip
    return found


def _near_on_cuda(q: Tensor, k: Tensor, v: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    longest, (others, glob) = layout.longest, _split(layout)
    own = [others.take(x) for x in (q, k, v)]
    parts = [_flash(_Band.near(others, layout.pattern, longest), own[0], own[1], own[2])]
    out, sums = q.new_empty(len(q) + 1, *q.shape[1:]), q.new_empty(len(q) + 1, q.shape[1], dtype=_sum_type(q))
    if len(glob.index):
        asked, *seen = (glob.take(x) for x in (q, k, v))
        most = min(longest, len(glob.index))
        parts.append(_flash(_Band(others.starts, glob.starts, longest, most), own[0], *seen))
        out[glob.index], sums[glob.index] = _flash(_Band(glob.starts, layout.starts, most, longest), asked, k, v)
    out[others.index], sums[others.index] = _joined(parts)
    return out[:-1], sums[:-1]


def _near_on_cuda_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, layout: Layout
) -> Grads:
    longest, (others, glob) = layout.longest, _split(layout)
    grads = [x.new_zeros(len(x) + 1, *x.shape[1:]) for x in (q, k, v)]

    def add(band: _Band, asking: _Rows, seen: _Rows | None) -> None:
        """Add one attention's share."""
        asked = [asking.take(x) for x in (grad, q, out, sums)]
        keys, values = (x if seen is None else seen.take(x) for x in (k, v))
        pieces = _flash_backward(band, asked[0], asked[1], keys, values, asked[2], asked[3])
        grads[0].index_add_(0, asking.index, pieces[0])
        for whole, piece in zip(grads[1:], pieces[1:], strict=True):
            if seen is None:
                whole[:-1].add_(piece)
            else:
                whole.index_add_(0, seen.index, piece)

    add(_Band.near(others, layout.pattern, longest), others, others)
    if len(glob.index):
        most = min(longest, len(glob.index))
        add(_Band(others.starts, glob.starts, longest, most), others, glob)
        add(_Band(glob.starts, layout.starts, most, longest), glob, None)
    return grads[0][:-1], grads[1][:-1], grads[2][:-1]


# --- the operator


def _joined(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Attentions of the same queries at different keys as one."""
    if len(parts) == 1:
        return parts[0]
    (first, first_sums), (second, second_sums) = parts
    sums = torch.logaddexp(first_sums, second_sums)
    shares = [(own - sums).exp().nan_to_num()[..., None] for own in (first_sums, second_sums)]
    return (first * shares[0]).addcmul_(second, shares[1]).to(first.dtype), sums


def _globals_first(layout: Layout) -> tuple[list[_Run], Tensor | None]:
    """The sequences as runs, each with its global tokens first; and the order that makes it so, None: as it is."""
    glob = _is_global(layout)
    counts = torch.zeros(layout.num_sequences, dtype=torch.int64).index_add_(0, layout.sequence_of_token(), glob.long())
    order = None
    if layout.chosen is not None:
        order = torch.argsort(2 * layout.sequence_of_token() + (~glob).long(), stable=True)
    return _runs(layout.starts, counts), order


@torch.library.custom_op("litebert::attend_near", mutates_args=())
def _attend_near(
    q: Tensor, k: Tensor, v: Tensor, starts: Tensor, positions: Tensor, chosen: Tensor | None, longest: int,
    blocks: bool, size: int, shifted: bool, first: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The attended values (T, A, D) and the logarithms of the softmax sums (T, A) that the backward pass needs."""
    layout = _layout(starts, positions, chosen, longest, blocks, size, shifted, first)
    if q.is_cuda:
        return _near_on_cuda(q, k, v, layout)
    runs, order = _globals_first(layout)
    # In half precision the kernel's backward pass takes four times as long.
    inputs = [_ordered(x.to(_sum_type(q)), order) for x in (q, k, v)]
    found = _near_on_cpu(inputs[0], inputs[1], inputs[2], runs, layout.pattern)
    out, sums = (x if order is None else torch.empty_like(x).index_copy_(0, order, x) for x in found)
    return out.to(q.dtype), sums


@_attend_near.register_fake
def _(q, k, v, starts, positions, chosen, longest, blocks, size, shifted, first):  # type: ignore[no-untyped-def]
    return q.new_empty(q.shape), q.new_empty(q.shape[:2], dtype=_sum_type(q))


@torch.library.custom_op("litebert::attend_near_backward", mutates_args=())
def _attend_near_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, starts: Tensor, positions: Tensor,
    chosen: Tensor | None, longest: int, blocks: bool, size: int, shifted: bool, first: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    layout = _layout(starts, positions, chosen, longest, blocks, size, shifted, first)
    if q.is_cuda:
        return _near_on_cuda_backward(grad, q, k, v, out, sums, layout)
    runs, order = _globals_first(layout)
    inputs = [_ordered(x.to(_sum_type(q)), order) for x in (grad, q, k, v, out, sums)]
    pieces = _near_on_cpu_backward(
        inputs[0], inputs[1], inputs[2], inputs[3], inputs[4], inputs[5], runs, layout.pattern
    )
    found = [x if order is None else torch.empty_like(x).index_copy_(0, order, x) for x in pieces]
    return found[0].to(q.dtype), found[1].to(q.dtype), found[2].to(q.dtype)


def _ordered(x: Tensor, order: Tensor | None) -> Tensor:
    return x if order is None else x.index_select(0, order)


@_attend_near_backward.register_fake
def _(grad, q, k, v, out, sums, starts, positions, chosen, longest, blocks, size, shifted, first):  # type: ignore[no-untyped-def]
    return q.new_empty(q.shape), q.new_empty(q.shape), q.new_empty(q.shape)


def _layout(
    starts: Tensor, positions: Tensor, chosen: Tensor | None, longest: int, blocks: bool, size: int, shifted: bool,
    first: int,
) -> Layout:  # fmt: skip
    return Layout(starts, positions, longest, Pattern("block" if blocks else "local", size, first, shifted), chosen)


def _sum_type(q: Tensor) -> torch.dtype:
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def _keep(ctx, inputs, output):  # type: ignore[no-untyped-def]
    q, k, v, starts, positions, chosen, *ctx.rest = inputs
    ctx.save_for_backward(q, k, v, *output, starts, positions, chosen)


def _go_back(ctx, grad, _grad_of_sums):  # type: ignore[no-untyped-def]
    grads = torch.ops.litebert.attend_near_backward(grad.contiguous(), *ctx.saved_tensors, *ctx.rest)
    return *grads, *[None] * 8


_attend_near.register_autograd(_go_back, setup_context=_keep)
