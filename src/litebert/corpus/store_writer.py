"""Writing the shards of a store.

The arrays of a shard grow on disk under a temporary name, so a shard of any size needs little memory; it gets its final
name, complete, when it is closed. Where a shard ends depends on the documents alone, never on how they were batched, so
that a resumed build writes the same shards.
"""

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from litebert.corpus.documents import DocumentBatch
from litebert.corpus.store import ARRAYS, ShardEntry, array_path, token_type
from litebert.corpus.tokenise import Tokenised
from litebert.runs import sync_folder

PART = ".part"  # a shard folder with this ending is being written and never read


class ShardWriter:
    """A shard under construction. ``add`` documents, then ``close``; ``discard`` leaves nothing behind."""

    def __init__(self, store: Path, split: str, number: int, *, vocab_size: int, unknown_id: int) -> None:
        self.split = split
        self.name = f"{split}-{number:05d}"
        self.num_tokens = 0
        self.num_sentences = 0
        self.num_documents = 0
        self._words = 0
        self._unknown = 0
        self._one_sentence = 0
        self._characters = 0
        self._unknown_id = unknown_id
        self._token_type = token_type(vocab_size)
        self._store = store
        self._folder = store / (self.name + PART)
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
        self._append("sentences", (sentences + self.num_tokens).astype("<u4"))
        self._append("documents", (documents + self.num_sentences).astype("<u4"))
        self.num_tokens += len(tokens)
        self.num_sentences += len(sentences)
        self.num_documents += len(documents)
        self._words += int(word_starts.sum())
        self._unknown += int((tokens == self._unknown_id).sum())
        self._one_sentence += int((np.diff(documents, append=len(sentences)) == 1).sum())
        self._characters += characters

    def close(self, handled: int, handled_digest: str) -> ShardEntry:
        """Finish the arrays, flush them to disk and give the shard its final name."""
        self._append("sentences", np.array([self.num_tokens], "<u4"))
        self._append("documents", np.array([self.num_sentences], "<u4"))
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
            file.close()
        final = self._store / self.name
        shutil.rmtree(final, ignore_errors=True)  # left by a build that was killed before listing it
        sync_folder(self._folder)
        self._folder.replace(final)
        sync_folder(self._store)
        return ShardEntry(
            name=self.name,
            split=self.split,
            tokens=self.num_tokens,
            words=self._words,
            unknown=self._unknown,
            sentences=self.num_sentences,
            documents=self.num_documents,
            one_sentence=self._one_sentence,
            characters=self._characters,
            handled=handled,
            handled_digest=handled_digest,
            checksums={name: digest.hexdigest() for name, digest in self._digests.items()},
        )

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
        self._folder = folder
        self._split = split
        self._number = number  # of the next shard
        self._shard_tokens = shard_tokens
        self._vocab_size = vocab_size
        self._unknown_id = unknown_id
        self._shard: ShardWriter | None = None
        self._handled = 0
        self._digest = ""

    def add(self, batch: DocumentBatch, result: Tokenised) -> Iterator[ShardEntry]:
        """Append the documents of a batch; yields each shard that became full."""
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

    def finish(self) -> ShardEntry | None:
        """Close the last shard, if it holds anything."""
        if self._shard is None or not self._shard.num_documents:
            return None
        return self._close(self._shard)

    def discard(self) -> None:
        """Delete a shard that is not closed."""
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
