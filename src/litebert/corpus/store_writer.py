"""Writing a shard: arrays grow on disk under a temporary name, and the shard appears, whole, when it is closed.

Tokens are appended as they come, so a shard of any size takes no memory to speak of.
"""

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from litebert.corpus.store import ARRAYS, ShardEntry, array_path, token_type
from litebert.runs import sync_folder

PART = ".part"  # a shard folder with this ending is being written and is never read


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
        """Finish the arrays, see them safely on disk and give the shard its name."""
        self._append("sentences", np.array([self.num_tokens], "<u4"))
        self._append("documents", np.array([self.num_sentences], "<u4"))
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
            file.close()
        final = self._store / self.name
        shutil.rmtree(final, ignore_errors=True)  # left by a build that was killed before it listed it
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
        """Drop what was written."""
        for file in self._files.values():
            try:
                file.close()
            except OSError:
                continue  # a full disk refuses what was still buffered; it is dropped anyway
        shutil.rmtree(self._folder, ignore_errors=True)

    def _append(self, name: str, values: npt.NDArray[Any]) -> None:
        data = values.tobytes()
        self._files[name].write(data)
        self._digests[name].update(data)
