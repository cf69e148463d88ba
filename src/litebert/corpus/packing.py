"""Inputs packed into batches with a budget of tokens.

Inputs are taken in a random order while two more of the maximum length would still fit; the rest is then filled with
the one or two unused inputs of the window that leave the smallest gap. The last batch of a window is topped up with
inputs of the first batches (their masks are drawn anew), since a batch costs the same full or not. Only sizes matter
here, not tokens.

Arguments are annotated ``Any`` where numba compiles the function: its types are those of the arrays passed in.
"""

from typing import Any, NamedTuple

import numba
import numpy as np

from litebert.corpus.counter_rng import shuffled

# What ``_Pool.progress`` counts: inputs passed in the random order, tokens free and inputs in this batch, all packed.
CURSOR, GAP, IN_BATCH, PACKED = range(4)


class _Pool(NamedTuple):
    """The inputs of a window, by number, and which of them are packed."""

    sizes: Any  # of each input, in tokens
    shuffled: Any  # inputs in random order
    by_size: Any  # inputs sorted by size
    heads: Any  # for each size, where to look for its next unused input in ``by_size``
    available: Any  # for each size, the number of unused inputs
    used: Any  # whether an input is packed
    packed: Any  # the result: inputs in the order of batches
    progress: Any


@numba.njit(cache=True, nogil=True)
def _has_room(count: Any, gap: Any, longest: Any, most: Any) -> Any:
    """Whether ``count`` inputs and padding sequences over the gap are together no more than ``most`` sequences."""
    return count + (gap + longest - 1) // longest <= most


@numba.njit(cache=True, nogil=True)
def _best_sizes(available: Any, gap: Any, longest: Any) -> Any:
    """The one or two sizes (the second may be 0) of unused inputs that fill the gap best."""
    floor = np.zeros(longest + 1, np.int64)  # the largest available size up to each
    for size in range(1, longest + 1):
        floor[size] = size if available[size] > 0 else floor[size - 1]
    best, first, second = gap, 0, 0
    size = floor[min(gap, longest)]
    while size > 0:
        other = floor[min(gap - size, size)]
        if other == size and available[size] < 2:
            other = floor[size - 1]
        if gap - size - other < best:
            best, first, second = gap - size - other, size, other
            if best == 0:
                break
        if 2 * size <= gap - best:
            break  # smaller ones cannot do better
        size = floor[size - 1]
    return first, second


@numba.njit(cache=True, nogil=True)
def _put(pool: Any, item: Any) -> None:
    """Put an input into the current batch."""
    size = pool.sizes[item]
    pool.used[item] = True
    pool.available[size] -= 1
    pool.packed[pool.progress[PACKED]] = item
    pool.progress[GAP] -= size
    pool.progress[IN_BATCH] += 1
    pool.progress[PACKED] += 1


@numba.njit(cache=True, nogil=True)
def _fill(pool: Any, longest: Any, most: Any) -> None:
    """Fill one batch."""
    progress = pool.progress
    while progress[CURSOR] < len(pool.sizes):
        item = pool.shuffled[progress[CURSOR]]
        if pool.used[item]:
            progress[CURSOR] += 1
            continue
        gap = progress[GAP] - pool.sizes[item]
        if gap < longest or not _has_room(progress[IN_BATCH] + 1, gap, longest, most):
            break
        _put(pool, item)
    while progress[GAP] > 0:
        first, second = _best_sizes(pool.available, progress[GAP], longest)
        placed = False
        for size in (first, second):
            if size > 0 and _has_room(progress[IN_BATCH] + 1, progress[GAP] - size, longest, most):
                while pool.used[pool.by_size[pool.heads[size]]]:
                    pool.heads[size] += 1
                _put(pool, pool.by_size[pool.heads[size]])
                placed = True
        if not placed:
            break


@numba.njit(cache=True, nogil=True)
def pack(sizes: Any, stream: Any, budget: Any, longest: Any, most: Any, top_up: Any) -> Any:
    """(packed order of the inputs, where each batch starts in it): no batch over ``budget`` tokens or ``most`` inputs.

    With ``top_up`` the last batch continues with inputs of the first ones; every input is in some batch either way.
    """
    total = len(sizes)
    order = shuffled(stream, total)
    starts = np.zeros(longest + 2, np.int64)
    for size in sizes:
        starts[size + 1] += 1
    starts = np.cumsum(starts)
    heads = starts[:-1].copy()
    by_size = np.empty(total, np.int64)
    for item in order:
        by_size[heads[sizes[item]]] = item
        heads[sizes[item]] += 1
    heads[:] = starts[:-1]
    available = starts[1:] - starts[:-1]
    packed = np.empty(2 * total, np.int64)
    progress = np.zeros(4, np.int64)
    pool = _Pool(sizes, order, by_size, heads, available, np.zeros(total, np.bool_), packed, progress)
    bounds = np.empty(total + 1, np.int64)
    bounds[0], count = 0, 0
    while progress[PACKED] < total:
        progress[GAP], progress[IN_BATCH] = budget, 0
        _fill(pool, longest, most)
        assert progress[IN_BATCH] > 0
        count += 1
        bounds[count] = progress[PACKED]
    if top_up and count > 1:
        pool.used[:] = False
        heads[:] = starts[:-1]
        available[:] = starts[1:] - starts[:-1]
        progress[CURSOR] = 0
        _fill(pool, longest, most)
        bounds[count] = progress[PACKED]
    return packed[: progress[PACKED]].copy(), bounds[: count + 1].copy()
