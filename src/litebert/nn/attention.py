"""The one place that knows about attention kernels: ``attend`` over packed sequences.

On CUDA in half precision: flash attention for sequences of any lengths, no padding, or on newer GPUs, for training,
kernels of our own (``packed_kernels.py``). On a CPU: the fused kernel on each run of equally long sequences, so no
padding either. Padded, inside this call and nowhere else, is what adds a bias to the scores (XLNet), what runs in fp32
or on a GPU older than compute capability 8.0 on CUDA, and what drops attention weights on a CPU (there in groups of
about one length). Where a layer's tokens see only some others (``sparse_attention.py``), the cost is linear in length,
but for what is padded here, which computes all scores and hides some.

T tokens, S sequences, N longest, A heads, D head width.
"""

from itertools import pairwise
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn
from torch.overrides import handle_torch_function, has_torch_function

from litebert.nn.layout import Layout
from litebert.nn.sparse_attention import attend_sparse, pattern_mask

FLASH_CAPABILITY = (8, 0)  # a T4 has 7.5
OWN_CAPABILITY = (9, 0)  # an H100 has it; older ones were not tried
OWN_WIDTHS = (32, 64, 128)  # of a head
HALF = (torch.bfloat16, torch.float16)
MOST_PADDING = 1.3  # times the scores that are needed, where sequences are padded in groups


def attend_together(qkv: Tensor, layout: Layout, *, dropout: float = 0.0) -> Tensor:
    """As ``attend``, of queries, keys and values (T, 3, A, D) that lie side by side in one tensor."""
    trains = torch.is_grad_enabled() and dropout == 0.0 and layout.is_full
    if trains and qkv.is_cuda and qkv.dtype in HALF and qkv.shape[-1] in OWN_WIDTHS and has_own_kernels():
        return cast(Tensor, torch.ops.litebert.attend_packed(qkv, layout.starts, layout.longest)[0])
    q, k, v = qkv.unbind(1)
    return attend(q, k, v, layout, dropout=dropout)


def attend(
    q: Tensor, k: Tensor, v: Tensor, layout: Layout, *, bias: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """Softmax attention of (T, A, D) within each sequence; ``bias`` (S, A, N, N) is added to the scaled scores."""
    if has_torch_function((q, k, v)):  # as torch's own functions do: ``plan`` counts attention on tensors without data
        return handle_torch_function(attend, (q, k, v), q, k, v, layout, bias=bias, dropout=dropout)
    if not layout.is_full:
        assert bias is None
        if dropout == 0.0 and (q.device.type == "cpu" or (q.dtype in HALF and has_flash())):
            return attend_sparse(q, k, v, layout)
        hidden = torch.zeros((), dtype=q.dtype, device=q.device).masked_fill(~pattern_mask(layout), float("-inf"))
        return _attend_padded(q, k, v, layout, hidden[:, None], dropout)
    if bias is None and q.is_cuda and q.dtype in HALF and has_flash():
        return _attend_flash(q, k, v, layout, dropout)
    if bias is None and dropout == 0.0 and q.device.type == "cpu":
        return _attend_runs(q, k, v, layout.starts)[0]
    if bias is None and q.device.type == "cpu" and not torch.compiler.is_compiling():
        parts = [_attend_padded(q[at], k[at], v[at], part, None, dropout) for at, part in _alike(layout)]
        return torch.cat(parts)
    return _attend_padded(q, k, v, layout, bias, dropout)


# Compiled code takes the answer for a constant. Asked at import it would start CUDA for verbs that never use it.
@torch.compiler.assume_constant_result
def has_flash() -> bool:
    """Whether the present GPU is new enough for flash attention."""
    return torch.cuda.get_device_capability() >= FLASH_CAPABILITY


@torch.compiler.assume_constant_result
def has_own_kernels() -> bool:
    """Whether the present GPU is one that our own kernels are for, and what compiles them is installed."""
    if torch.cuda.get_device_capability() < OWN_CAPABILITY:
        return False
    try:
        import litebert.nn.packed_kernels  # noqa: F401  (makes the operator known to torch)
    except ImportError:
        return False
    return True


def _attend_flash(q: Tensor, k: Tensor, v: Tensor, layout: Layout, dropout: float) -> Tensor:
    starts, longest = layout.starts, layout.longest
    if dropout == 0.0:
        return cast(Tensor, varlen_attn(q, k, v, starts, starts, longest, longest))
    # The operator under varlen_attn, which has no argument for dropout.
    flash = torch.ops.aten._flash_attention_forward
    return cast(Tensor, flash(q, k, v, starts, starts, longest, longest, dropout, False, False)[0])


def pad(x: Tensor, layout: Layout) -> Tensor:
    """(T, ...) packed to (S, N, ...) padded with zeros."""
    index = layout.sequence_of_token() * layout.longest + layout.positions
    rows = x.new_zeros(layout.num_sequences * layout.longest, *x.shape[1:]).index_copy(0, index, x)
    return rows.view(layout.num_sequences, layout.longest, *x.shape[1:])


def unpad(x: Tensor, layout: Layout) -> Tensor:
    """(S, N, ...) padded to (T, ...) packed."""
    index = layout.sequence_of_token() * layout.longest + layout.positions
    return x.flatten(0, 1).index_select(0, index)


def keys_allowed(layout: Layout) -> Tensor:
    """(S, N) True where a padded row holds a token; an empty sequence keeps one key so that no softmax is empty."""
    places = torch.arange(layout.longest, device=layout.starts.device)
    return places < layout.lengths.clamp(min=1)[:, None]


def _alike(layout: Layout) -> list[tuple[slice, Layout]]:
    """Neighbouring sequences of about one length, so that little is padded: where they are, and their own layout."""
    groups: list[tuple[slice, Layout]] = []
    lengths: list[int] = []
    begin = 0
    for length in [*layout.lengths.tolist(), 0]:
        longest = max([*lengths, length])
        exact = sum(size * size for size in lengths) + length * length
        if lengths and (length == 0 or (len(lengths) + 1) * longest * longest > MOST_PADDING * exact):
            end = begin + sum(lengths)
            groups.append((slice(begin, end), Layout.of(lengths)))
            begin, lengths = end, []
        if length:
            lengths.append(length)
    return groups


def attend_from(q: Tensor, k: Tensor, v: Tensor, layout: Layout, *, bias: Tensor | None, dropout: float) -> Tensor:
    """As ``attend`` for queries that are no tokens themselves, Q of each sequence: (S, Q, A, D), bias (S, A, Q, N)."""
    allowed = keys_allowed(layout)[:, None, None, :]
    mask = allowed if bias is None else bias.masked_fill(~allowed, float("-inf"))
    k, v = (pad(x, layout).transpose(1, 2) for x in (k, v))
    out = F.scaled_dot_product_attention(q.transpose(1, 2), k, v, attn_mask=mask, dropout_p=dropout)
    return out.transpose(1, 2)


def _attend_padded(q: Tensor, k: Tensor, v: Tensor, layout: Layout, bias: Tensor | None, dropout: float) -> Tensor:
    return unpad(attend_from(pad(q, layout), k, v, layout, bias=bias, dropout=dropout), layout)


def _sum_type(q: Tensor) -> torch.dtype:
    """Of the softmax sums, and of all inside the kernel, whose backward pass takes four times as long in bf16."""
    return torch.float64 if q.dtype == torch.float64 else torch.float32


# An operator of our own, so that torch.compile sees one node whatever the lengths are and never recompiles for them.
@torch.library.custom_op("litebert::attend_runs", mutates_args=(), device_types="cpu")
def _attend_runs(q: Tensor, k: Tensor, v: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """The attended values (T, A, D) and the logarithm of the softmax sums (T, A) that the backward pass needs."""
    out = torch.empty(q.shape, dtype=q.dtype)
    sums = torch.empty(q.shape[:2], dtype=_sum_type(q))
    inputs = [x.to(sums.dtype) for x in (q, k, v)]
    for run in _runs(starts):
        part, part_sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*(run.view(x) for x in inputs))
        run.view(out).copy_(part)
        run.view(sums).copy_(part_sums)
    return out, sums


@_attend_runs.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty(q.shape[:2], dtype=_sum_type(q))


@torch.library.custom_op("litebert::attend_runs_backward", mutates_args=(), device_types="cpu")
def _attend_runs_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, starts: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    grads = tuple(torch.empty(q.shape, dtype=q.dtype) for _ in range(3))
    inputs = [x.to(sums.dtype) for x in (grad, q, k, v, out, sums)]
    for run in _runs(starts):
        parts = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            *(run.view(x) for x in inputs), 0.0, False
        )
        for whole, part in zip(grads, parts, strict=True):
            run.view(whole).copy_(part)
    return grads[0], grads[1], grads[2]


@_attend_runs_backward.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, sums: Tensor, starts: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty(q.shape), q.new_empty(q.shape)


def _keep(ctx, inputs, output):  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs[:3], *output, inputs[3])


def _backward(ctx, grad, _grad_of_sums):  # type: ignore[no-untyped-def]
    return *_attend_runs_backward(grad.contiguous(), *ctx.saved_tensors), None


_attend_runs.register_autograd(_backward, setup_context=_keep)


class _Run:
    """Neighbouring sequences of equal length, which a view turns into one dense batch."""

    def __init__(self, start: int, count: int, length: int) -> None:
        self.start, self.count, self.length = start, count, length

    def view(self, x: Tensor) -> Tensor:
        """(T, A, ...) as this run's (count, A, length, ...), sharing memory."""
        part = x[self.start : self.start + self.count * self.length]
        return part.unflatten(0, (self.count, self.length)).transpose(1, 2)


def _runs(starts: Tensor) -> list[_Run]:
    bounds = starts.tolist()
    runs: list[_Run] = []
    for start, end in pairwise(bounds):
        if end == start:
            continue
        if runs and runs[-1].length == end - start:
            runs[-1].count += 1
        else:
            runs.append(_Run(start, 1, end - start))
    return runs
