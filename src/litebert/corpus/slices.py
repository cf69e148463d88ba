"""A split cut into slices of whole documents, and an epoch's windows: groups of slices in an order drawn for it.

A slice is small enough to shuffle by and large enough to read at disk speed. A window is what inputs are shuffled and
packed within; it is copied from the shards when a batch of it is wanted, so memory does not grow with the corpus.
"""

import copy
import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from litebert.corpus.counter_rng import make_key, open_stream, shuffled
from litebert.corpus.store import Shard, array_path
from litebert.errors import InputError

SLICE_TOKENS = 65_536
Integers = npt.NDArray[np.int64]

# Columns of the table of slices.
SHARD, FIRST_SENTENCE, END_SENTENCE, FIRST_DOCUMENT, FIRST_TOKEN, NUM_TOKENS = range(6)


@numba.njit(cache=True, nogil=True)
def _cut(sentences: Any, documents: Any, shard: Any, size: Any, rows: Any) -> Any:
    """Fill ``rows`` with the slices of a shard; a document over 4 sizes is cut between sentences. Returns how many."""
    count: Any = 0
    first: Any = 0
    first_document: Any = 0
    for document in range(len(documents) - 1):
        begin, end = np.int64(documents[document]), np.int64(documents[document + 1])
        start = np.int64(sentences[first])
        if np.int64(sentences[end]) - start > 4 * size:
            for sentence in range(begin + 1, end):
                if np.int64(sentences[sentence]) - start >= 2 * size:
                    rows[count] = (shard, first, sentence, first_document, start, np.int64(sentences[sentence]) - start)
                    count, first, first_document = count + 1, sentence, document
                    start = np.int64(sentences[first])
        tokens = np.int64(sentences[end]) - start
        if tokens >= size or (document == len(documents) - 2 and tokens > 0):
            rows[count] = (shard, first, end, first_document, start, tokens)
            count, first, first_document = count + 1, end, document + 1
    return count


def cut_slices(shards: Sequence[Shard], size: int = SLICE_TOKENS) -> Integers:
    """The table of slices of a split, one row a slice, in the order of the text."""
    tables = [np.empty((0, 6), np.int64)]
    for number, shard in enumerate(map(opened, shards)):
        rows = np.empty((shard.num_tokens // size + 2, 6), np.int64)
        tables.append(rows[: _cut(shard.sentences, shard.documents, number, size, rows)])
    return np.concatenate(tables)


@dataclass(frozen=True)
class Windows:
    """The slices of a split in the order of one epoch, divided evenly over windows."""

    slices: Integers  # the table above, its rows in the epoch's order
    bounds: Integers  # window w is the rows from bounds[w] to bounds[w + 1]

    @classmethod
    def draw(cls, slices: Integers, seed: int, epoch: int, window_tokens: int) -> "Windows":
        """Shuffle the slices for an epoch and group them into windows of about ``window_tokens``."""
        number = max(1, int(slices[:, NUM_TOKENS].sum()) // window_tokens)
        number = min(number, max(1, len(slices)))
        order = shuffled(open_stream(make_key(seed, epoch), 0), len(slices))
        return cls(slices[order], np.arange(number + 1) * len(slices) // number)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def rows(self, window: int) -> Integers:
        """The slices of one window."""
        return self.slices[self.bounds[window] : self.bounds[window + 1]]


def read_slices(shards: Sequence[Shard], rows: Integers) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
    """The tokens and word starts of some slices, one after the other."""
    size = int(rows[:, NUM_TOKENS].sum())
    tokens = allocate((size,), opened(shards[0]).tokens.dtype)
    word_starts = allocate((size,), np.dtype(np.uint8))
    offset = 0
    for row in rows:
        shard, end = shards[row[SHARD]], offset + int(row[NUM_TOKENS])
        for name, values in (("tokens", tokens), ("word_starts", word_starts)):
            _read(array_path(shard.folder, name), int(row[FIRST_TOKEN]), values[offset:end])
        offset = end
    return tokens, word_starts


def _read(path: Path, first: int, values: npt.NDArray[Any]) -> None:
    """Fill ``values`` from those of a file, from the ``first`` on: a slice is read once, which a mapping makes slow."""
    view = values.view(np.uint8).data
    with path.open("rb", buffering=0) as file:
        file.seek(first * values.itemsize)
        found = 0
        while found < len(view):
            count = file.readinto(view[found:])
            if not count:
                raise InputError(f"{path} is damaged: it ends too early; build the store again")
            found += count


def allocate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """An array whose memory goes back to the system with it.

    The C library's allocator keeps freed blocks of a few megabytes for later, and windows come and go: with it,
    resident memory creeps up by a third over an epoch.
    """
    size = math.prod(shape)
    return np.frombuffer(mmap.mmap(-1, max(1, size * dtype.itemsize)), dtype, size).reshape(shape)


def opened(shard: Shard) -> Shard:
    """A shard with its own mappings, gone when it is: a corpus of any size takes few file handles and little memory."""
    return copy.copy(shard)
