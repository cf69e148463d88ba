"""Inputs packed into batches of a fixed budget of tokens.

Inputs are taken in a random order until less than two of the longest would still fit; what is left is then filled with
the one or two unused inputs of the window that leave the least. The last batch of a window is topped up by inputs seen
before (their masks are drawn anew), since a batch costs the same full or not. Only sizes are looked at, not tokens.
"""

from typing import Any

import numba
import numpy as np

from litebert.corpus.counter_rng import shuffled


@numba.njit(cache=True, nogil=True)
def _has_room(count: Any, gap: Any, longest: Any, most: Any) -> Any:
    """Whether ``count`` inputs and dummy ones over the gap are together no more than ``most`` sequences."""
    return count + (gap + longest - 1) // longest <= most


@numba.njit(cache=True, nogil=True)
def _best_sizes(available: Any, gap: Any, longest: Any) -> Any:
    """The one or two sizes (the second may be 0) that fill the gap best with inputs that are available."""
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
def _fill(sizes: Any, pool: Any, heads: Any, available: Any, used: Any, state: Any, longest: Any, most: Any) -> Any:
    """Fill one batch from the pool. ``state`` = (cursor in the random order, gap left, inputs in the batch, written).

    ``pool`` has rows (random order, the same sorted by size, the packed order being written).
    """
    total = len(sizes)
    while state[0] < total:
        item = pool[0, state[0]]
        if used[item]:
            state[0] += 1
            continue
        gap = state[1] - sizes[item]
        if gap < longest or not _has_room(state[2] + 1, gap, longest, most):
            break
        _put(item, sizes, pool, available, used, state)
    while state[1] > 0:
        first, second = _best_sizes(available, state[1], longest)
        placed = False
        for size in (first, second):
            if size > 0 and _has_room(state[2] + 1, state[1] - size, longest, most):
                while used[pool[1, heads[size]]]:
                    heads[size] += 1
                _put(pool[1, heads[size]], sizes, pool, available, used, state)
                placed = True
        if not placed:
            break


@numba.njit(cache=True, nogil=True)
def _put(item: Any, sizes: Any, pool: Any, available: Any, used: Any, state: Any) -> None:
    """Put an input into the batch at hand."""
    used[item] = True
    available[sizes[item]] -= 1
    pool[2, state[3]] = item
    state[1] -= sizes[item]
    state[2] += 1
    state[3] += 1


@numba.njit(cache=True, nogil=True)
def pack(sizes: Any, stream: Any, budget: Any, longest: Any, most: Any, top_up: Any) -> Any:
    """(packed order of the inputs, where each batch starts in it): no batch over ``budget`` tokens or ``most`` inputs.

    With ``top_up`` the last batch goes on with inputs of the first ones; every input is in some batch either way.
    """
    total = len(sizes)
    pool = np.empty((3, 2 * total), np.int64)
    pool[0, :total] = shuffled(stream, total)
    starts = np.zeros(longest + 2, np.int64)
    for size in sizes:
        starts[size + 1] += 1
    starts = np.cumsum(starts)
    heads = starts[:-1].copy()
    for item in pool[0, :total]:
        pool[1, heads[sizes[item]]] = item
        heads[sizes[item]] += 1
    heads[:] = starts[:-1]
    available = starts[1:] - starts[:-1]
    used = np.zeros(total, np.bool_)
    state = np.zeros(4, np.int64)
    bounds = np.empty(total + 1, np.int64)
    bounds[0], count = 0, 0
    while state[3] < total:
        state[1], state[2] = budget, 0
        _fill(sizes, pool, heads, available, used, state, longest, most)
        assert state[2] > 0
        count += 1
        bounds[count] = state[3]
    if top_up and count > 1:
        used[:] = False
        heads[:] = starts[:-1]
        available[:] = starts[1:] - starts[:-1]
        state[0] = 0
        _fill(sizes, pool, heads, available, used, state, longest, most)
        bounds[count] = state[3]
    return pool[2, : state[3]].copy(), bounds[: count + 1].copy()
