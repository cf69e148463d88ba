"""Random numbers that depend on nothing but what they are for: a key made of (seed, epoch, ...) and a counter.

A draw is a hash (the finisher of SplitMix64) of a 64-bit state that steps by a constant, so any draw of any stream can
be had without the ones before it: this is what makes batches the same whatever the number of workers or ranks. A
stream is an array of one uint64 that the functions here step.
"""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

STEP = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)
UNIT = 1.0 / 9007199254740992.0  # 2**-53

Stream = npt.NDArray[np.uint64]


@numba.njit(cache=True, nogil=True)
def mix(state: Any) -> Any:
    """A 64-bit hash in which every bit of the input moves every bit of the output."""
    state = (state ^ (state >> np.uint64(30))) * FIRST
    state = (state ^ (state >> np.uint64(27))) * SECOND
    return state ^ (state >> np.uint64(31))


@numba.njit(cache=True, nogil=True)
def open_stream(key: Any, number: Any) -> Any:
    """The stream of draws for item ``number`` under ``key``."""
    stream = np.empty(1, np.uint64)
    stream[0] = mix(np.uint64(key) ^ mix(np.uint64(number) + STEP))
    return stream


@numba.njit(cache=True, nogil=True)
def below(stream: Any, bound: Any) -> Any:
    """An integer from 0 to bound - 1; the bias is under bound / 2**32."""
    stream[0] += STEP
    return np.int64(((mix(stream[0]) >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@numba.njit(cache=True, nogil=True)
def uniform(stream: Any) -> Any:
    """A number in [0, 1)."""
    stream[0] += STEP
    return np.float64(mix(stream[0]) >> np.uint64(11)) * UNIT


@numba.njit(cache=True, nogil=True)
def shuffled(stream: Any, count: Any) -> Any:
    """The numbers 0 to count - 1 in random order."""
    order = np.arange(count)
    for last in range(count - 1, 0, -1):
        other = below(stream, last + 1)
        order[last], order[other] = order[other], order[last]
    return order


def make_key(*parts: int) -> np.uint64:
    """One 64-bit key from the numbers that name a thing, such as (seed, epoch, window)."""
    mask, key = (1 << 64) - 1, 0
    for part in parts:
        state = ((key ^ (part & mask)) + int(STEP)) & mask
        state = ((state ^ (state >> 30)) * int(FIRST)) & mask
        state = ((state ^ (state >> 27)) * int(SECOND)) & mask
        key = state ^ (state >> 31)
    return np.uint64(key)
