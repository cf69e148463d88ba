"""Filling shards: documents of a split go into one until the next does not fit.

Where a shard ends depends on the documents alone, never on how they were batched, so that any way of getting to them
gives the same shards.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from litebert.corpus.documents import Batch
from litebert.corpus.store import ShardEntry
from litebert.corpus.store_writer import ShardWriter
from litebert.corpus.tokenise import Tokenised


class SplitWriter:
    """Writes the shards of one split, one after the other."""

    def __init__(
        self, folder: Path, split: str, number: int, *, shard_tokens: int, vocab_size: int, unknown_id: int
    ) -> None:
        self._folder = folder
        self._split = split
        self._number = number  # of the next shard
        self._shard_tokens = shard_tokens
        self._vocab_size = vocab_size
        self._unknown_id = unknown_id
        self._shard: ShardWriter | None = None
        self._handled = 0
        self._digest = ""

    def add(self, batch: Batch, result: Tokenised) -> Iterator[ShardEntry]:
        """Take the documents of a batch; yields each shard that became full."""
        ends = np.cumsum(result.document_tokens)
        start = 0
        while start < len(ends):
            shard = self._open()
            before = int(ends[start - 1]) if start else 0
            room = self._shard_tokens - shard.num_tokens
            stop = int(np.searchsorted(ends, before + room, side="right"))
            if stop <= start:
                if shard.num_documents:
                    yield self._close(shard)
                    continue
                stop = start + 1  # a document larger than a shard has one to itself
            self._append(shard, batch, result, start, stop)
            start = stop

    def _append(self, shard: ShardWriter, batch: Batch, result: Tokenised, start: int, stop: int) -> None:
        sentence_ends = np.cumsum(result.document_sentences)
        first, last = (int(sentence_ends[place - 1]) if place else 0 for place in (start, stop))
        bounds = np.append(result.sentences, len(result.tokens))
        begin, end = int(bounds[first]), int(bounds[last])
        counts = result.document_sentences[start:stop]
        filled = counts > 0
        shard.add(
            result.tokens[begin:end],
            result.word_starts[begin:end],
            result.sentences[first:last] - begin,
            (np.cumsum(counts) - counts)[filled],
            int(result.characters[start:stop][filled].sum()),
        )
        self._handled = batch.first + stop
        self._digest = batch.chain[stop - 1]

    def finish(self) -> ShardEntry | None:
        """Close the last shard, if there is anything in it."""
        if self._shard is None or not self._shard.num_documents:
            return None
        return self._close(self._shard)

    def discard(self) -> None:
        """Drop a shard that is not closed."""
        if self._shard is not None:
            self._shard.discard()
            self._shard = None

    def _open(self) -> ShardWriter:
        if self._shard is None:
            self._shard = ShardWriter(
                self._folder, self._split, self._number, vocab_size=self._vocab_size, unknown_id=self._unknown_id
            )
        return self._shard

    def _close(self, shard: ShardWriter) -> ShardEntry:
        entry = shard.close(self._handled, self._digest)
        self._number += 1
        self._shard = None
        return entry
