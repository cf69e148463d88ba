"""How much of a text is found elsewhere in its store: boilerplate and near duplicates, by counts of n-grams.

A sketch keeps the n-grams whose hash falls into one part of ``every``, so that it fits into memory for any store, and
of these the ones that occur more than once, with their exact counts. An n-gram that a store holds ``count`` times
counts 1 / count: however often something is repeated, all copies together count as one. Numpy and numba, no torch.

T tokens, S sequences.
"""

import logging
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from litebert.corpus.counter_rng import mix
from litebert.corpus.store import Split
from litebert.corpus.windows import opened

NGRAM = 8  # tokens: shorter ones are repeated in any text
BASE = np.uint64(0x9E3779B97F4A7C15)
MOST = 1 << 24  # n-grams in memory while they are counted: 128 MiB

log = logging.getLogger(__name__)


@numba.njit(cache=True, nogil=True)
def _hash_ngrams(tokens: Any, bound: Any, found: Any) -> Any:
    """Write the hashes up to ``bound`` of all n-grams of ``tokens``; returns how many."""
    first = np.uint64(1)
    for _ in range(NGRAM - 1):
        first *= BASE
    sum_, count = np.uint64(0), 0
    for place in range(len(tokens)):
        if place >= NGRAM:
            sum_ -= first * (np.uint64(tokens[place - NGRAM]) + np.uint64(1))
        sum_ = sum_ * BASE + np.uint64(tokens[place]) + np.uint64(1)
        if place >= NGRAM - 1:
            hashed = mix(sum_)
            if hashed <= bound:
                found[count] = hashed
                count += 1
    return count


@numba.njit(cache=True, nogil=True)
def _novelty(ids: Any, starts: Any, breaks: Any, bound: Any, hashes: Any, counts: Any, rows: Any) -> None:
    """Write for each sequence the mean of 1 / count over its sampled n-grams, which no token of ``breaks`` is in."""
    found = np.empty(len(ids), np.uint64)
    for row in range(len(rows)):
        total, number, begin = 0.0, 0, starts[row]
        for place in range(starts[row], starts[row + 1] + 1):
            if place < starts[row + 1] and not breaks[ids[place]]:
                continue
            for index in range(_hash_ngrams(ids[begin:place], bound, found)):
                at = np.searchsorted(hashes, found[index])
                known = at < len(hashes) and hashes[at] == found[index]
                total += 1.0 / counts[at] if known else 1.0
                number += 1
            begin = place + 1
        rows[row] = total / number if number else 1.0


@dataclass(frozen=True)
class Repeats:
    """The n-grams that a split has more than once."""

    hashes: npt.NDArray[np.uint64]  # ascending
    counts: npt.NDArray[np.int64]
    bound: np.uint64  # hashes above it are left out
    breaks: npt.NDArray[np.bool_]  # (V) ids that stand between texts

    @classmethod
    def of(cls, split: Split, vocab_size: int, breaks: list[int], most: int = MOST) -> "Repeats":
        """Count the n-grams of a split; a pass over its tokens."""
        every = max(1, -(-split.num_tokens // most))
        bound = np.uint64((1 << 64) // every - 1)
        log.info("looking for repeated text among %s tokens", f"{split.num_tokens:,}")
        sampled = [np.empty(0, np.uint64)]
        for shard in map(opened, split.shards):
            found = np.empty(shard.num_tokens, np.uint64)
            sampled.append(found[: _hash_ngrams(shard.tokens, bound, found)].copy())
        hashes, counts = np.unique(np.concatenate(sampled), return_counts=True)
        between = np.zeros(vocab_size, np.bool_)
        between[breaks] = True
        return cls(hashes[counts > 1], counts[counts > 1], bound, between)

    def novelty(self, ids: npt.NDArray[np.int32], starts: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
        """(S) what sequences of ids (T) count for: 1 where all is new, near 0 where all is repeated often."""
        rows = np.empty(len(starts) - 1, np.float64)
        _novelty(ids, starts, self.breaks, self.bound, self.hashes, self.counts, rows)
        return rows
