"""Which documents of the raw text a build tokenises: each distinct one, in its split, unless the store has it already.

Only the shards are remembered between runs: a resumed build reads the raw text again from its beginning (hashing is
some twenty times faster than tokenising), so it finds the same duplicates and splits, skips what the listed shards
hold, and notices where the text has changed.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from litebert.corpus.sentences import Languages
from litebert.corpus.settings import BuildSettings
from litebert.corpus.store import SPLITS, ShardEntry
from litebert.corpus.tokenise import RawDocument
from litebert.errors import InputError
from litebert.text.documents import documents

BATCH = 1 << 15  # characters of a task; small, so that workers finish together and pending tasks need little memory


@dataclass(slots=True)
class DocumentBatch:
    """Consecutive documents of one split."""

    split: str
    first: int  # documents of the split before these
    documents: list[RawDocument] = field(default_factory=list)
    chain: list[str] = field(default_factory=list)  # after each document, a digest of all up to it
    characters: int = 0


class Reader:
    """Reads the raw text once; its counters show how far it is."""

    def __init__(self, sources: Sequence[str], settings: BuildSettings, listed: Sequence[ShardEntry]) -> None:
        self._sources = sources
        self._settings = settings
        self._content = hashlib.sha256()
        self._seen = SeenDocuments() if settings.deduplicate else None
        self._splits = {name: _Split(name, [entry for entry in listed if entry.split == name]) for name in SPLITS}
        self.documents_read = 0
        self.duplicates = 0
        self.skipped = 0  # already in the store
        self.bytes_read = 0
        self.place = ("", 0)  # the source being read and the bytes of it that were read

    @property
    def content(self) -> str:
        """A digest of every document read so far, in order."""
        return self._content.hexdigest()

    @property
    def distinct(self) -> int:
        """Distinct documents read so far."""
        return sum(split.count for split in self._splits.values())

    def batches(self) -> Iterator[DocumentBatch]:
        """The documents that the store lacks; within a split, in order."""
        languages = Languages(self._settings.languages)
        pending: dict[str, DocumentBatch] = {}
        for document in documents(self._sources, field=self._settings.field, errors=self._settings.errors):
            split = self._split_of(document.text)
            self.place = (document.source, document.offset)
            if split is None:
                continue
            batch = pending.setdefault(split.name, DocumentBatch(split.name, split.count - 1))
            batch.documents.append(RawDocument(document.text, languages.of(document.source)))
            batch.chain.append(split.chain.hex())
            batch.characters += len(document.text)
            if batch.characters >= BATCH:
                yield pending.pop(split.name)
        yield from pending.values()
        for split in self._splits.values():
            split.check_end()

    def _split_of(self, text: str) -> "_Split | None":
        """The split of a document, or None where it is a duplicate or in the store already."""
        data = text.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(data, digest_size=16).digest()
        self._content.update(digest)
        self.documents_read += 1
        self.bytes_read += len(data)
        if self._seen is not None and not self._seen.add(int.from_bytes(digest[:8], "little")):
            self.duplicates += 1
            return None
        split = self._splits[split_of(digest, self._settings.held_out, self._settings.seed)]
        if split.take(digest):
            return split
        self.skipped += 1
        return None


class _Split:
    """The documents of one split; the first ``handled`` are in the store."""

    def __init__(self, name: str, listed: Sequence[ShardEntry]) -> None:
        self.name = name
        self._handled = listed[-1].handled if listed else 0
        self._digest = listed[-1].handled_digest if listed else ""
        self.count = 0
        self.chain = b""

    def take(self, digest: bytes) -> bool:
        """Count a document; True where it must be tokenised."""
        self.count += 1
        self.chain = hashlib.blake2b(self.chain + digest, digest_size=16).digest()
        if self.count == self._handled and self.chain.hex() != self._digest:
            self._raise_changed()
        return self.count > self._handled

    def check_end(self) -> None:
        """At the end of the text, everything that the store holds must have been read."""
        if self.count < self._handled:
            self._raise_changed()

    def _raise_changed(self) -> None:
        raise InputError(
            f"the corpus has changed since this build began: the first {self._handled:,} documents of '{self.name}' "
            "differ from those in the store; give the same text again, or choose another folder"
        )


class SeenDocuments:
    """A set of 8-byte hashes that needs about 8 bytes for each: sorted arrays, each larger than the next.

    Two different documents among ten million collide by chance in one of 400,000 corpora.
    """

    RECENT = 1 << 15

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._sorted: list[npt.NDArray[np.uint64]] = []

    def add(self, key: int) -> bool:
        """Add ``key``; False where it was there already."""
        if key in self._recent:
            return False
        value = np.uint64(key)
        for known in self._sorted:
            place = int(known.searchsorted(value))
            if place < len(known) and known[place] == value:
                return False
        self._recent.add(key)
        if len(self._recent) >= self.RECENT:
            self._merge()
        return True

    def _merge(self) -> None:
        """Turn the recent hashes into a sorted array, merged with arrays that are not larger, so that there are few."""
        new = np.sort(np.fromiter(self._recent, np.uint64, len(self._recent)))
        self._recent.clear()
        while self._sorted and len(self._sorted[-1]) <= len(new):
            new = np.sort(np.concatenate([self._sorted.pop(), new]), kind="stable")
        self._sorted.append(new)


def split_of(digest: bytes, held_out: float, seed: int) -> str:
    """The split of a document, from its content and the seed alone: its place in the corpus does not matter."""
    drawn = hashlib.blake2b(digest, digest_size=8, key=str(seed).encode()).digest()
    train, other = SPLITS
    return other if int.from_bytes(drawn, "little") < held_out * 2.0**64 else train
