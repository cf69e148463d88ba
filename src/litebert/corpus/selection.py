"""Which documents of the raw text are to be tokenised: each once, in its split, and those not yet in the store.

Nothing is remembered between runs but the shards: a build that goes on reads the raw text again from its beginning
(hashing is some twenty times faster than tokenising) and so finds the same duplicates and the same splits, passes over
what the listed shards hold, and notices where the text is not the one that they were made of.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from litebert.corpus.sentences import Languages
from litebert.corpus.store import SPLITS, ShardEntry
from litebert.corpus.tokenise import RawDocument
from litebert.data.files import Errors
from litebert.errors import InputError
from litebert.text.documents import documents

BATCH = 1 << 15  # characters a task; small, so that workers end together and tasks under way take little memory


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What decides which documents are taken and where they go."""

    sources: Sequence[str]
    field: str
    errors: Errors
    languages: Languages
    deduplicate: bool
    held_out: float
    seed: int


@dataclass(slots=True)
class Batch:
    """Documents of one split that follow each other in it."""

    split: str
    first: int  # how many documents of the split come before
    documents: list[RawDocument] = field(default_factory=list)
    chain: list[str] = field(default_factory=list)  # after each document, which ones came so far
    characters: int = 0


class Reader:
    """Goes through the raw text once; its counters say how far it is."""

    def __init__(self, selection: Selection, listed: Sequence[ShardEntry]) -> None:
        self._selection = selection
        self._content = hashlib.sha256()
        self._seen = SeenDocuments() if selection.deduplicate else None
        self._streams = {name: _Stream(name, [entry for entry in listed if entry.split == name]) for name in SPLITS}
        self.documents_read = 0
        self.duplicates = 0
        self.passed_over = 0  # already in the store
        self.bytes_read = 0
        self.place = ("", 0)  # the source being read and how many of its bytes are behind

    @property
    def content(self) -> str:
        """A digest of every document read so far, in order."""
        return self._content.hexdigest()

    @property
    def distinct(self) -> int:
        """Documents read so far, each counted once."""
        return sum(stream.count for stream in self._streams.values())

    def batches(self) -> Iterator[Batch]:
        """The documents that the store lacks, a batch at a time; within a split, in order."""
        selection = self._selection
        pending: dict[str, Batch] = {}
        for document in documents(selection.sources, field=selection.field, errors=selection.errors):
            stream = self._stream_of(document.text)
            self.place = (document.source, document.after.offset)
            if stream is None:
                continue
            batch = pending.setdefault(stream.name, Batch(stream.name, stream.count - 1))
            batch.documents.append(RawDocument(document.text, selection.languages.of(document.source)))
            batch.chain.append(stream.chain.hex())
            batch.characters += len(document.text)
            if batch.characters >= BATCH:
                yield pending.pop(stream.name)
        yield from pending.values()
        for stream in self._streams.values():
            stream.check_end()

    def _stream_of(self, text: str) -> "_Stream | None":
        """Where a document belongs, or None where it is a duplicate or in the store already."""
        data = text.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(data, digest_size=16).digest()
        self._content.update(digest)
        self.documents_read += 1
        self.bytes_read += len(data)
        if self._seen is not None and not self._seen.add(int.from_bytes(digest[:8], "little")):
            self.duplicates += 1
            return None
        stream = self._streams[split_of(digest, self._selection.held_out, self._selection.seed)]
        if stream.take(digest):
            return stream
        self.passed_over += 1
        return None


class _Stream:
    """The documents of one split, of which the first ``handled`` are in the store."""

    def __init__(self, name: str, listed: Sequence[ShardEntry]) -> None:
        self.name = name
        self._handled = listed[-1].handled if listed else 0
        self._digest = listed[-1].handled_digest if listed else ""
        self.count = 0
        self.chain = b""

    def take(self, digest: bytes) -> bool:
        """Count a document; True where it is still to be tokenised."""
        self.count += 1
        self.chain = hashlib.blake2b(self.chain + digest, digest_size=16).digest()
        if self.count == self._handled and self.chain.hex() != self._digest:
            self._complain()
        return self.count > self._handled

    def check_end(self) -> None:
        """At the end of the text, everything that the store holds must have come by."""
        if self.count < self._handled:
            self._complain()

    def _complain(self) -> None:
        raise InputError(
            f"the corpus is not the one that this build began with: the first {self._handled:,} documents of "
            f"'{self.name}' differ from those in the store; give the same text again, or choose another folder"
        )


class SeenDocuments:
    """Hashes of 8 bytes seen so far, in about 8 bytes each: sorted arrays, each larger than the next.

    By chance, two different documents among ten million have the same hash once in 400,000 corpora.
    """

    RECENT = 1 << 15

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._sorted: list[npt.NDArray[np.uint64]] = []

    def add(self, key: int) -> bool:
        """Remember ``key``; False where it was known."""
        if key in self._recent:
            return False
        value = np.uint64(key)
        for known in self._sorted:
            place = int(known.searchsorted(value))
            if place < len(known) and known[place] == value:
                return False
        self._recent.add(key)
        if len(self._recent) >= self.RECENT:
            self._settle()
        return True

    def _settle(self) -> None:
        """Sort the recent ones in; arrays that are not larger are merged, so that there are few."""
        new = np.sort(np.fromiter(self._recent, np.uint64, len(self._recent)))
        self._recent.clear()
        while self._sorted and len(self._sorted[-1]) <= len(new):
            new = np.sort(np.concatenate([self._sorted.pop(), new]), kind="stable")
        self._sorted.append(new)


def split_of(digest: bytes, held_out: float, seed: int) -> str:
    """The split of a document, from its content and the seed alone: neither order nor company matter."""
    drawn = hashlib.blake2b(digest, digest_size=8, key=str(seed).encode()).digest()
    train, other = SPLITS
    return other if int.from_bytes(drawn, "little") < held_out * 2.0**64 else train
