"""Writing the shards of a store.

The arrays of a shard grow on disk under a temporary name, so a shard of any size needs little memory; it gets its final
name, complete, when it is closed. Where a shard ends depends on the documents alone, never on how they were batched, so
that a resumed build writes the same shards.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from litebert.corpus.documents import DocumentBatch
from litebert.corpus.store import ARRAYS, ShardEntry, array_path, token_type
from litebert.corpus.tokenise import Tokenised
from litebert.runs import sync_folder

PART = ".part"  # a shard folder with this ending is being written and never read
COUNTS = ("tokens", "words", "unknown", "sentences", "documents", "one_sentence", "characters")


class ShardWriter:
    """A shard under construction. ``add`` documents, then ``close``; ``discard`` leaves nothing behind."""

    def __init__(self, store: Path, split: str, number: int, *, vocab_size: int, unknown_id: int) -> None:
        self.split, self.name = split, f"{split}-{number:05d}"
        self.counts = dict.fromkeys(COUNTS, 0)
        self._unknown_id, self._token_type = unknown_id, token_type(vocab_size)
        self._store, self._folder = store, store / (self.name + PART)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        self._files = {name: array_path(self._folder, name).open("wb") for name in ARRAYS}
        self._digests = {name: hashlib.sha256() for name in ARRAYS}

    def add(
        self,
        tokens: npt.NDArray[Any],
        word_starts: npt.NDArray[np.uint8],
        sentences: npt.NDArray[Any],
        documents: npt.NDArray[Any],
        characters: int,
    ) -> None:
        """Append whole documents: where sentences start in ``tokens``, where documents start in ``sentences``."""
        assert len(word_starts) == len(tokens)
        self._append("tokens", tokens.astype(self._token_type))
        self._append("word_starts", word_starts.astype("u1"))
        self._append("sentences", (sentences + self.counts["tokens"]).astype("<u4"))
        self._append("documents", (documents + self.counts["sentences"]).astype("<u4"))
        added = (
            len(tokens),
            int(word_starts.sum()),
            int((tokens == self._unknown_id).sum()),
            len(sentences),
            len(documents),
            int((np.diff(documents, append=len(sentences)) == 1).sum()),
            characters,
        )
        for name, count in zip(COUNTS, added, strict=True):
            self.counts[name] += count

    def close(self, handled: int, handled_digest: str) -> ShardEntry:
        """Finish the arrays, flush them to disk and give the shard its final name."""
        self._append("sentences", np.array([self.counts["tokens"]], "<u4"))
        self._append("documents", np.array([self.counts["sentences"]], "<u4"))
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
            file.close()
        final = self._store / self.name
        shutil.rmtree(final, ignore_errors=True)  # left by a build that was killed before listing it
        sync_folder(self._folder)
        self._folder.replace(final)
        sync_folder(self._store)
        checksums = {name: digest.hexdigest() for name, digest in self._digests.items()}
        facts: dict[str, Any] = {**self.counts, "handled": handled, "handled_digest": handled_digest}
        return ShardEntry(name=self.name, split=self.split, checksums=checksums, **facts)

    def discard(self) -> None:
        """Delete what was written."""
        for file in self._files.values():
            try:
                file.close()
            except OSError:
                continue  # a full disk rejects what was still buffered; it is deleted anyway
        shutil.rmtree(self._folder, ignore_errors=True)

    def _append(self, name: str, values: npt.NDArray[Any]) -> None:
        data = values.tobytes()
        self._files[name].write(data)
        self._digests[name].update(data)


class SplitWriter:
    """Writes the shards of one split, one after the other."""

    def __init__(
        self, folder: Path, split: str, number: int, *, shard_tokens: int, vocab_size: int, unknown_id: int
    ) -> None:
        self._number = number  # of the next shard
        self._shard_tokens = shard_tokens
        self._new = partial(ShardWriter, folder, split, vocab_size=vocab_size, unknown_id=unknown_id)
        self._shard: ShardWriter | None = None
        self._handled, self._digest = 0, ""

    def add(self, batch: DocumentBatch, result: Tokenised) -> Iterator[ShardEntry]:
        """Append the documents of a batch; yields each shard that became full."""
        ends = np.cumsum(result.document_tokens)
        start = 0
        while start < len(ends):
            shard = self._shard = self._shard or self._new(self._number)
            before = int(ends[start - 1]) if start else 0
            room = self._shard_tokens - shard.counts["tokens"]
            stop = int(np.searchsorted(ends, before + room, side="right"))
            if stop <= start:
                if shard.counts["documents"]:
                    yield self._close(shard)
                    continue
                stop = start + 1  # a document larger than a shard gets one to itself
            self._append(shard, batch, result, start, stop)
            start = stop

    def _append(self, shard: ShardWriter, batch: DocumentBatch, result: Tokenised, start: int, stop: int) -> None:
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

    def finish(self) -> Iterator[ShardEntry]:
        """Close the last shard; yields it if it holds anything."""
        if self._shard is not None and self._shard.counts["documents"]:
            yield self._close(self._shard)

    def discard(self) -> None:
        """Delete a shard that is not closed."""
        if self._shard is not None:
            self._shard.discard()
            self._shard = None

    def _close(self, shard: ShardWriter) -> ShardEntry:
        entry = shard.close(self._handled, self._digest)
        self._number += 1
        self._shard = None
        return entry
