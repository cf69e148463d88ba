"""A token store on disk: the text once tokenised, kept as plain arrays that are mapped into memory, never loaded.

A store is a folder with ``store.json`` (what it holds and what made it), ``tokenizer/`` (a copy of the tokenizer) and
one folder a shard. A shard holds whole documents as four raw little-endian arrays, the fields of ``Shard``. Only what
``store.json`` lists exists: a shard is written under another name and listed after it is safely on disk.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from litebert.errors import InputError
from litebert.runs import write_atomically

FORMAT = 1
STORE_FILE = "store.json"
TOKENIZER_FOLDER = "tokenizer"
SPLITS = ("train", "held_out")
ARRAYS = ("tokens", "word_starts", "sentences", "documents")


@dataclass(frozen=True, kw_only=True)
class ShardEntry:
    """What ``store.json`` says of a shard: its name, its sizes and the SHA-256 of each of its arrays."""

    name: str
    split: str
    tokens: int
    words: int
    unknown: int
    sentences: int
    documents: int
    one_sentence: int  # documents of a single sentence: good for masking, not for pairs
    characters: int
    handled: int  # distinct documents of this split handled up to the end of this shard, empty ones included
    handled_digest: str  # which documents those were; a build that goes on compares it with what it reads again
    checksums: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Origin:
    """What made a store. Two stores with the same origin hold the same bytes."""

    tokenizer: str
    normalisation: str
    languages: list[str]
    settings: dict[str, Any]
    sources: list[str]
    source_bytes: list[int]  # -1 for standard input
    content: str = ""  # digest of every document read, in order; known once the build is complete

    def fingerprint(self) -> str:
        """A hash of all of it."""
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
        """Put it in place of the one that was there, at once."""
        write_atomically(folder / STORE_FILE, json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """The one of this folder; an error says so where there is none or it cannot be understood."""
        path = folder / STORE_FILE
        if not path.is_file():
            raise InputError(f"{folder} is not a token store (it has no {STORE_FILE}); litebert corpus build makes one")
        try:
            fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if fields.get("format") != FORMAT:
                raise InputError(
                    f"{path} has format {fields.get('format')} but this version reads {FORMAT}; build the store again"
                )
            fields["origin"] = Origin(**fields["origin"])
            fields["shards"] = tuple(ShardEntry(**entry) for entry in fields["shards"])
            return cls(**fields)
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
            raise InputError(f"{path} is damaged ({error}); build the store again") from None


class Shard:
    """Whole documents as four read-only arrays mapped from disk: positions in one index the next.

    ``tokens``: ids. ``word_starts``: 1 where a token begins a word. ``sentences``: the token where each sentence
    starts, then the number of tokens. ``documents``: the sentence where each document starts, then the number of
    sentences. Every sentence has at least one token and every document at least one sentence.
    """

    def __init__(self, folder: Path, entry: ShardEntry, token_type: npt.DTypeLike) -> None:
        self.folder = folder
        self.entry = entry
        self._token_type = np.dtype(token_type)

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def num_tokens(self) -> int:
        return self.entry.tokens

    @property
    def num_sentences(self) -> int:
        return self.entry.sentences

    @property
    def num_documents(self) -> int:
        return self.entry.documents

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
        """One array, mapped; its length is compared with what the store says, which finds a cut file at once."""
        path = array_path(self.folder, name)
        if not path.is_file():
            raise InputError(f"shard {self.name} is damaged: {path} is missing; build the store again")
        size = path.stat().st_size
        if size != length * dtype.itemsize:
            raise InputError(
                f"shard {self.name} is damaged: {path} has {size} bytes in place of {length * dtype.itemsize}; "
                "build the store again"
            )
        # The plain array over the mapping: an np.memmap pays for its class at every slice.
        return np.asarray(np.memmap(path, dtype=dtype, mode="r", shape=(length,)))

    def verify(self) -> None:
        """Read every byte and compare with the checksums; an error names the shard and the file."""
        for name in ARRAYS:
            getattr(self, name)
            path = array_path(self.folder, name)
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != self.entry.checksums.get(name):
                raise InputError(
                    f"shard {self.name} is damaged: {path} does not have the checksum that the store lists for it; "
                    "delete the store and build it again"
                )


@dataclass(frozen=True)
class Split:
    """The shards of one split, ``train`` or ``held_out``, in order."""

    name: str
    shards: list[Shard]

    @property
    def num_tokens(self) -> int:
        return sum(shard.entry.tokens for shard in self.shards)

    @property
    def num_words(self) -> int:
        return sum(shard.entry.words for shard in self.shards)

    @property
    def num_sentences(self) -> int:
        return sum(shard.entry.sentences for shard in self.shards)

    @property
    def num_documents(self) -> int:
        return sum(shard.entry.documents for shard in self.shards)

    @property
    def num_one_sentence(self) -> int:
        """Documents of a single sentence, which no pair can be made of."""
        return sum(shard.entry.one_sentence for shard in self.shards)

    @property
    def num_unknown(self) -> int:
        return sum(shard.entry.unknown for shard in self.shards)

    @property
    def num_characters(self) -> int:
        return sum(shard.entry.characters for shard in self.shards)


class Store:
    """A token store, open for reading."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest

    @classmethod
    def open(cls, folder: Path | str, *, partial: bool = False) -> "Store":
        """The store in ``folder``; one whose build was cut short is refused unless ``partial`` asks for what is there.

        What an unfinished store lists is whole and can be read, but training on a part unawares is no one's wish.
        """
        folder = Path(folder)
        manifest = Manifest.read(folder)
        if not manifest.complete and not partial:
            tokens = sum(entry.tokens for entry in manifest.shards)
            raise InputError(
                f"{folder} is not finished: {len(manifest.shards)} shards with {tokens:,} tokens are there; run the "
                "same litebert corpus build again to go on, or pass --partial to use what is there"
            )
        return cls(folder, manifest)

    @property
    def fingerprint(self) -> str:
        """The hash of what made it; empty for an unfinished store."""
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
        kind = token_type(self.vocab_size)
        shards = [Shard(self.folder / entry.name, entry, kind) for entry in self.manifest.shards if entry.split == name]
        return Split(name, shards)

    def verify(self) -> None:
        """Compare every shard with its checksums; an error names the damaged one."""
        for name in SPLITS:
            for shard in self.split(name).shards:
                shard.verify()


def token_type(vocab_size: int) -> np.dtype[Any]:
    """Two bytes a token where the vocabulary fits, else four."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def array_path(shard_folder: Path, name: str) -> Path:
    """Where an array of a shard lies."""
    return shard_folder / f"{name}.bin"
