"""A token store on disk: text tokenised once, kept as plain arrays that are mapped into memory, never loaded.

A store is a folder with ``store.json`` (what it holds and what it was made from), ``tokenizer/`` (a copy of the
tokenizer) and one folder per shard. A shard holds whole documents as four raw little-endian arrays, the fields of
``Shard``. Only shards that ``store.json`` lists exist: a shard is written under another name and listed once it is
safely on disk.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from litebert.data.files import read_object
from litebert.errors import InputError
from litebert.runs import write_atomically

FORMAT = 1
STORE_FILE = "store.json"
TOKENIZER_FOLDER = "tokenizer"
SPLITS = ("train", "held_out")
ARRAYS = ("tokens", "word_starts", "sentences", "documents")
CHUNK = 1 << 20  # tokens counted at a time


@dataclass(frozen=True, kw_only=True)
class ShardEntry:
    """A shard in ``store.json``: its name, its sizes and the SHA-256 of each of its arrays."""

    name: str
    split: str
    tokens: int
    words: int
    unknown: int
    sentences: int
    documents: int
    one_sentence: int  # documents of a single sentence: usable for masking, not for pairs
    characters: int
    handled: int  # distinct documents of this split up to the end of this shard, empty ones included
    handled_digest: str  # digest of those documents; a resumed build compares it with the text it reads
    checksums: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What a store was made from. Two stores with the same origin hold the same bytes."""

    tokenizer: str
    normalisation: str
    languages: list[str]
    settings: dict[str, Any]
    sources: list[str]
    source_bytes: list[int]  # -1 for standard input
    content: str = ""  # digest of every document read, in order; known once the build is complete

    def fingerprint(self) -> str:
        """A hash of all fields."""
        return hashlib.sha256(json.dumps(dataclasses.asdict(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The contents of ``store.json``."""

    format: int
    complete: bool
    fingerprint: str  # empty until complete
    origin: Origin
    vocab_size: int
    special_ids: dict[str, int]
    documents_read: int
    duplicates: int
    empty: int
    shards: tuple[ShardEntry, ...]

    def write(self, folder: Path) -> None:
        """Replace the file atomically."""
        write_atomically(folder / STORE_FILE, json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """The manifest of a folder; an ``InputError`` where there is none or it cannot be read."""
        path = folder / STORE_FILE
        if not path.is_file():
            raise InputError(f"{folder} is not a token store (it has no {STORE_FILE}); litebert corpus build makes one")
        try:
            fields = read_object(path, "build the store again")
            if fields.get("format") != FORMAT:
                raise InputError(
                    f"{path} has format {fields.get('format')} but this version reads {FORMAT}; build the store again"
                )
            fields["origin"] = Origin(**fields["origin"])
            fields["shards"] = tuple(ShardEntry(**entry) for entry in fields["shards"])
            return cls(**fields)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is damaged ({error}); build the store again") from None


class Shard:
    """Whole documents as four read-only arrays mapped from disk: positions in one index the next.

    ``tokens``: ids. ``word_starts``: 1 where a token begins a word. ``sentences``: the token where each sentence
    starts, then the number of tokens. ``documents``: the sentence where each document starts, then the number of
    sentences. Every sentence has at least one token and every document at least one sentence.
    """

    def __init__(self, folder: Path, entry: ShardEntry, token_type: npt.DTypeLike) -> None:
        self.folder, self.entry, self.name = folder, entry, entry.name
        self.num_tokens, self.num_sentences, self.num_documents = entry.tokens, entry.sentences, entry.documents
        self._token_type = np.dtype(token_type)

    @cached_property
    def tokens(self) -> npt.NDArray[np.unsignedinteger[Any]]:
        return self._map("tokens", self._token_type, self.num_tokens)

    @cached_property
    def word_starts(self) -> npt.NDArray[np.uint8]:
        return self._map("word_starts", np.dtype("u1"), self.num_tokens)

    @cached_property
    def sentences(self) -> npt.NDArray[np.uint32]:
        return self._map("sentences", np.dtype("<u4"), self.num_sentences + 1)

    @cached_property
    def documents(self) -> npt.NDArray[np.uint32]:
        return self._map("documents", np.dtype("<u4"), self.num_documents + 1)

    def _map(self, name: str, dtype: np.dtype[Any], length: int) -> npt.NDArray[Any]:
        """One array, mapped; its length is compared with ``store.json``, which finds a truncated file immediately."""
        path = array_path(self.folder, name)
        if not path.is_file():
            raise InputError(f"shard {self.name} is damaged: {path} is missing; build the store again")
        size = path.stat().st_size
        if size != length * dtype.itemsize:
            raise InputError(
                f"shard {self.name} is damaged: {path} has {size} bytes instead of {length * dtype.itemsize}; "
                "build the store again"
            )
        # A plain array over the mapping: slicing an np.memmap is slow.
        return np.asarray(np.memmap(path, dtype=dtype, mode="r", shape=(length,)))

    def verify(self) -> None:
        """Read every byte and compare with the checksums; the error names the shard and the file."""
        for name in ARRAYS:
            getattr(self, name)
            path = array_path(self.folder, name)
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != self.entry.checksums.get(name):
                raise InputError(
                    f"shard {self.name} is damaged: {path} does not match the checksum in {STORE_FILE}; "
                    "delete the store and build it again"
                )


def _total(field: str) -> "cached_property[int]":
    """A count summed over the shards of a split."""
    return cached_property(lambda split: sum(getattr(shard.entry, field) for shard in split.shards))


class Split:
    """The shards of one split, ``train`` or ``held_out``, in order."""

    num_tokens = _total("tokens")
    num_words = _total("words")
    num_sentences = _total("sentences")
    num_documents = _total("documents")
    num_one_sentence = _total("one_sentence")  # documents of a single sentence, which cannot give a pair
    num_unknown = _total("unknown")
    num_characters = _total("characters")

    def __init__(self, name: str, shards: list[Shard]) -> None:
        self.name, self.shards = name, shards


class Store:
    """A token store, open for reading."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest

    @classmethod
    def open(cls, folder: Path | str, *, partial: bool = False) -> "Store":
        """The store in ``folder``; an unfinished one raises an error unless ``partial`` is set.

        The shards of an unfinished store can be read, but nobody should train on half a corpus by accident.
        """
        folder = Path(folder)
        manifest = Manifest.read(folder)
        if not manifest.complete and not partial:
            tokens = sum(entry.tokens for entry in manifest.shards)
            raise InputError(
                f"{folder} is not finished: it has {len(manifest.shards)} shards with {tokens:,} tokens; run the "
                "same litebert corpus build again to resume, or set partial to use what is there"
            )
        return cls(folder, manifest)

    @property
    def fingerprint(self) -> str:
        """A hash of everything it was made from; empty for an unfinished store."""
        return self.manifest.fingerprint

    @property
    def tokenizer_folder(self) -> Path:
        return self.folder / TOKENIZER_FOLDER

    @property
    def special_ids(self) -> Mapping[str, int]:
        """The ids of ``pad``, ``unk``, ``cls``, ``sep`` and ``mask``."""
        return self.manifest.special_ids

    @property
    def vocab_size(self) -> int:
        return self.manifest.vocab_size

    def split(self, name: str) -> Split:
        """The shards of ``train`` or ``held_out``."""
        if name not in SPLITS:
            raise InputError(f"there is no split '{name}'; a store has {' and '.join(SPLITS)}")
        dtype = token_type(self.vocab_size)
        entries = [entry for entry in self.manifest.shards if entry.split == name]
        return Split(name, [Shard(self.folder / entry.name, entry, dtype) for entry in entries])

    def verify(self) -> None:
        """Compare every shard with its checksums; the error names the damaged one."""
        for name in SPLITS:
            for shard in self.split(name).shards:
                shard.verify()


def token_type(vocab_size: int) -> np.dtype[Any]:
    """Two bytes per token where the vocabulary fits, else four."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def array_path(shard_folder: Path, name: str) -> Path:
    """The file of a shard's array."""
    return shard_folder / f"{name}.bin"


def unigram_entropy(store: Store, *, most: int = 100_000_000) -> float:
    """Cross entropy, in nats per token, of training-text token frequencies on held-out text (add-one, no special ids).

    At most about ``most`` training tokens are counted, spread evenly over the text. Without held-out text the
    training text is used for both.
    """
    special = sorted(set(store.special_ids.values()))
    trained = _counts(store.split("train"), store.vocab_size, special, most)
    held_out = _counts(store.split("held_out"), store.vocab_size, special, most)
    measured = held_out if held_out.any() else trained
    if not measured.any():
        raise InputError(f"{store.folder} has no text; build the store again from more text")
    return -float(measured @ _log_frequencies(trained, len(special))) / int(measured.sum())


def log_frequencies(store: Store, *, most: int = 100_000_000) -> npt.NDArray[np.float64]:
    """The logarithm of each id's share of the training text (add-one; special tokens count as never seen)."""
    special = sorted(set(store.special_ids.values()))
    return _log_frequencies(_counts(store.split("train"), store.vocab_size, special, most), len(special))


def _log_frequencies(counts: npt.NDArray[np.int64], num_special: int) -> npt.NDArray[np.float64]:
    return np.log(counts + 1.0) - math.log(int(counts.sum()) + len(counts) - num_special)


def _counts(split: Split, vocab_size: int, special: list[int], most: int) -> npt.NDArray[np.int64]:
    """Occurrences of each id in the chunks of a split that are read."""
    counts = np.zeros(vocab_size, np.int64)
    every = max(1, -(-split.num_tokens // most))
    for shard in split.shards:
        for begin in range(0, shard.num_tokens, CHUNK * every):
            counts += np.bincount(shard.tokens[begin : begin + CHUNK], minlength=vocab_size)
    counts[special] = 0
    return counts
