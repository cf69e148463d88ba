"""Attention over packed sequences in kernels of our own (Triton), both passes, for training on newer NVIDIA GPUs.

They read queries, keys and values where one product wrote them side by side and leave their gradients side by side,
so that nothing is copied together for the next product. Each block of the result is finished by one program, so that
no sums of blocks pass through memory. Weights are powers of 2, the cheapest to take: scores come divided by log 2.

T tokens, S sequences, A heads, D head width. Rows are queries, columns are keys.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
# (Triton compiles the source of a kernel and takes no annotations but its own.)

import math
from typing import Any

import torch
import triton  # type: ignore[import-not-found, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor

# Rows and columns of a block, warps and stages of each kernel: of eight or nine tried on an H200 with 12 heads of 64,
# the best for real text of length 512 and 128 together; for wide heads, blocks that fit into the registers.
FORWARD, WIDE_FORWARD = (128, 32, 4, 3), (128, 64, 8, 3)
KEYS, WIDE_KEYS = (32, 128, 4, 3), (32, 128, 8, 2)
QUERIES, WIDE_QUERIES = (64, 32, 4, 3), (128, 32, 8, 2)
WIDE = 128  # heads from here on
PRODUCT_ROWS = 64
VARYING = ("tokens", "blocks")  # or a batch of another size would be compiled for anew
LOG_2 = tl.constexpr(math.log(2.0))


@triton.jit
def _span(starts_at, blocks):
    """The sequence of a program: where it starts, its length, which of its blocks is meant."""
    sequence = tl.program_id(0) // blocks
    start = tl.load(starts_at + sequence)
    return start, tl.load(starts_at + sequence + 1) - start, tl.program_id(0) % blocks


@triton.jit
def _attend_columns(
    total, top, out, q, k_at, v_at, begin, end, step, scale, column_block: tl.constexpr, masked: tl.constexpr
):
    """Attend to the columns from ``begin`` to ``end``, on top of those before."""
    columns = tl.arange(0, column_block)
    for column in range(begin, end, column_block):
        there = column + columns < end
        if masked:
            k = tl.load(k_at + column * step, mask=there[None, :], other=0.0)
            v = tl.load(v_at + column * step, mask=there[:, None], other=0.0)
        else:
            k = tl.load(k_at + column * step)
            v = tl.load(v_at + column * step)
        scores = tl.dot(q, k) * scale
        if masked:
            scores = tl.where(there[None, :], scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(weights, 1)
        out = tl.dot(weights.to(v.dtype), v, out * shrink[:, None])
        top = new_top
    return total, top, out


@triton.jit(do_not_specialize=VARYING)
def _forward(
    qkv_at,
    out_at,
    sums_at,
    starts_at,
    step,
    tokens,
    blocks,
    scale,
    heads: tl.constexpr,
    size: tl.constexpr,
    row_block: tl.constexpr,
    column_block: tl.constexpr,
):
    """A block of rows of one head: what they attend to, and the logarithms of their softmax sums."""
    start, length, block = _span(starts_at, blocks)
    head = tl.program_id(1)
    if block * row_block >= length:
        return
    rows, columns, sizes = block * row_block + tl.arange(0, row_block), tl.arange(0, column_block), tl.arange(0, size)
    there = rows < length
    q_at = qkv_at + start.to(tl.int64) * step + head * size
    q = tl.load(q_at + rows[:, None] * step + sizes[None, :], mask=there[:, None], other=0.0)
    k_at = q_at + heads * size + columns[None, :] * step + sizes[:, None]
    v_at = q_at + 2 * heads * size + columns[:, None] * step + sizes[None, :]
    total, top = tl.zeros([row_block], tl.float32), tl.full([row_block], float("-inf"), tl.float32)
    out = tl.zeros([row_block, size], tl.float32)
    whole = length // column_block * column_block
    total, top, out = _attend_columns(total, top, out, q, k_at, v_at, 0, whole, step, scale, column_block, False)
    total, top, out = _attend_columns(total, top, out, q, k_at, v_at, whole, length, step, scale, column_block, True)
    at = out_at + start.to(tl.int64) * (heads * size) + head * size + rows[:, None] * (heads * size) + sizes[None, :]
    tl.store(at, (out / total[:, None]).to(out_at.dtype.element_ty), mask=there[:, None])
    tl.store(sums_at + head * tokens + start + rows, top + tl.log2(total), mask=there)


@triton.jit(do_not_specialize=VARYING)
def _row_products(
    out_at, grad_at, products_at, tokens, heads: tl.constexpr, size: tl.constexpr, row_block: tl.constexpr
):
    """The product of each row of the result with its gradient, which the softmax takes off all its gradients."""
    rows = tl.program_id(0) * row_block + tl.arange(0, row_block)
    head = tl.program_id(1)
    there = rows < tokens
    at = rows[:, None].to(tl.int64) * (heads * size) + head * size + tl.arange(0, size)[None, :]
    out = tl.load(out_at + at, mask=there[:, None], other=0.0).to(tl.float32)
    grad = tl.load(grad_at + at, mask=there[:, None], other=0.0).to(tl.float32)
    tl.store(products_at + head * tokens + rows, tl.sum(out * grad, 1), mask=there)


@triton.jit(do_not_specialize=VARYING)
def _backward_keys(
    qkv_at,
    grads_at,
    grad_at,
    sums_at,
    products_at,
    starts_at,
    step,
    tokens,
    blocks,
    scale,
    heads: tl.constexpr,
    size: tl.constexpr,
    row_block: tl.constexpr,
    column_block: tl.constexpr,
):
    """Gradients of a block of keys and values of one head: a walk over the rows."""
    start, length, block = _span(starts_at, blocks)
    head = tl.program_id(1)
    if block * column_block >= length:
        return
    columns, rows, sizes = (
        block * column_block + tl.arange(0, column_block),
        tl.arange(0, row_block),
        tl.arange(0, size),
    )
    there = columns < length
    q_at = qkv_at + start.to(tl.int64) * step + head * size
    grad_at += start.to(tl.int64) * (heads * size) + head * size
    sums_at += head * tokens + start
    products_at += head * tokens + start
    k_at = q_at + heads * size + columns[:, None] * step + sizes[None, :]
    k = tl.load(k_at, mask=there[:, None], other=0.0)
    v = tl.load(k_at + heads * size, mask=there[:, None], other=0.0)
    grad_k, grad_v = tl.zeros([column_block, size], tl.float32), tl.zeros([column_block, size], tl.float32)
    for row in range(0, length, row_block):
        here = row + rows < length
        q = tl.load(q_at + (row + rows)[:, None] * step + sizes[None, :], mask=here[:, None], other=0.0)
        grad = tl.load(grad_at + (row + rows)[:, None] * (heads * size) + sizes[None, :], mask=here[:, None], other=0.0)
        # A row that is not there has an infinite sum: all its weights are 0.
        sums = tl.load(sums_at + row + rows, mask=here, other=float("inf"))
        products = tl.load(products_at + row + rows, mask=here, other=0.0)
        weights = tl.exp2(tl.dot(k, tl.trans(q)) * scale - sums[None, :])
        grad_v = tl.dot(weights.to(grad.dtype), grad, grad_v)
        of_scores = weights * (tl.dot(v, tl.trans(grad)) - products[None, :])
        grad_k = tl.dot(of_scores.to(q.dtype), q, grad_k)
    place = start.to(tl.int64) * (3 * heads * size) + head * size + heads * size
    at = grads_at + place + columns[:, None] * (3 * heads * size) + sizes[None, :]
    tl.store(at, (grad_k * (scale * LOG_2)).to(k.dtype), mask=there[:, None])
    tl.store(at + heads * size, grad_v.to(k.dtype), mask=there[:, None])


@triton.jit(do_not_specialize=VARYING)
def _backward_queries(
    qkv_at,
    grads_at,
    grad_at,
    sums_at,
    products_at,
    starts_at,
    step,
    tokens,
    blocks,
    scale,
    heads: tl.constexpr,
    size: tl.constexpr,
    row_block: tl.constexpr,
    column_block: tl.constexpr,
):
    """Gradients of a block of queries of one head: a walk over the columns."""
    start, length, block = _span(starts_at, blocks)
    head = tl.program_id(1)
    if block * row_block >= length:
        return
    rows, columns, sizes = block * row_block + tl.arange(0, row_block), tl.arange(0, column_block), tl.arange(0, size)
    there = rows < length
    q_at = qkv_at + start.to(tl.int64) * step + head * size
    grad_at += start.to(tl.int64) * (heads * size) + head * size
    q = tl.load(q_at + rows[:, None] * step + sizes[None, :], mask=there[:, None], other=0.0)
    grad = tl.load(grad_at + rows[:, None] * (heads * size) + sizes[None, :], mask=there[:, None], other=0.0)
    sums = tl.load(sums_at + head * tokens + start + rows, mask=there, other=float("inf"))
    products = tl.load(products_at + head * tokens + start + rows, mask=there, other=0.0)
    grad_q = tl.zeros([row_block, size], tl.float32)
    for column in range(0, length, column_block):
        here = column + columns < length
        k_at = q_at + heads * size + (column + columns)[:, None] * step + sizes[None, :]
        k = tl.load(k_at, mask=here[:, None], other=0.0)
        v = tl.load(k_at + heads * size, mask=here[:, None], other=0.0)
        weights = tl.exp2(tl.dot(q, tl.trans(k)) * scale - sums[:, None])
        of_scores = weights * (tl.dot(grad, tl.trans(v)) - products[:, None])
        grad_q = tl.dot(of_scores.to(k.dtype), k, grad_q)  # a column that is not there is 0 and adds nothing
    at = grads_at + start.to(tl.int64) * (3 * heads * size) + head * size
    at += rows[:, None] * (3 * heads * size) + sizes[None, :]
    tl.store(at, (grad_q * (scale * LOG_2)).to(q.dtype), mask=there[:, None])


@torch.library.custom_op("litebert::attend_packed", mutates_args=(), device_types="cuda")
def attend_packed(qkv: Tensor, starts: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """What queries, keys and values (T, 3, A, D) give (T, A, D), and the logarithms of the softmax sums (A, T)."""
    tokens, _, heads, size = qkv.shape
    assert qkv.stride()[1:] == (heads * size, size, 1)
    out = qkv.new_empty(tokens, heads, size)
    sums = qkv.new_empty(heads, tokens, dtype=torch.float32)
    rows, columns, warps, stages = FORWARD if size < WIDE else WIDE_FORWARD
    blocks = -(-longest // rows)
    places = (qkv, out, sums, starts, qkv.stride(0), tokens, blocks, _scale(size))
    grid = ((starts.shape[0] - 1) * blocks, heads)
    _forward[grid](*places, heads, size, rows, columns, num_warps=warps, num_stages=stages)
    return out, sums


@attend_packed.register_fake
def _(qkv: Tensor, starts: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    tokens, _, heads, size = qkv.shape
    return qkv.new_empty(tokens, heads, size), qkv.new_empty(heads, tokens, dtype=torch.float32)


@torch.library.custom_op("litebert::attend_packed_backward", mutates_args=(), device_types="cuda")
def attend_packed_backward(
    grad: Tensor, qkv: Tensor, out: Tensor, sums: Tensor, starts: Tensor, longest: int
) -> Tensor:
    """The gradient (T, 3, A, D) of queries, keys and values."""
    tokens, _, heads, size = qkv.shape
    grad = grad.contiguous()
    grads = torch.empty(qkv.shape, dtype=qkv.dtype, device=qkv.device)
    products = torch.empty_like(sums)
    grid = (-(-tokens // PRODUCT_ROWS), heads)
    _row_products[grid](out, grad, products, tokens, heads, size, PRODUCT_ROWS, num_warps=4)
    keys, queries = (KEYS, QUERIES) if size < WIDE else (WIDE_KEYS, WIDE_QUERIES)
    for kernel, chosen, block in ((_backward_keys, keys, keys[1]), (_backward_queries, queries, queries[0])):
        rows, columns, warps, stages = chosen
        blocks = -(-longest // block)
        places = (qkv, grads, grad, sums, products, starts, qkv.stride(0), tokens, blocks, _scale(size))
        grid = ((starts.shape[0] - 1) * blocks, heads)
        kernel[grid](*places, heads, size, rows, columns, num_warps=warps, num_stages=stages)
    return grads


@attend_packed_backward.register_fake
def _(grad: Tensor, qkv: Tensor, out: Tensor, sums: Tensor, starts: Tensor, longest: int) -> Tensor:
    return torch.empty(qkv.shape, dtype=qkv.dtype, device=qkv.device)


def _scale(size: int) -> float:
    return 1.0 / (math.sqrt(size) * math.log(2.0))


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, int], output: tuple[Tensor, Tensor]) -> None:
    qkv, starts, ctx.longest = inputs
    ctx.save_for_backward(qkv, *output, starts)


def _go_back(ctx: Any, grad: Tensor, _grad_of_sums: Tensor) -> tuple[Tensor, None, None]:
    return attend_packed_backward(grad, *ctx.saved_tensors, ctx.longest), None, None


attend_packed.register_autograd(_go_back, setup_context=_keep)
