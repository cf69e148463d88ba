"""A planned sequence of token stores: a run reads each in its share of the run, so that no machine need hold them all.

The stores have one vocabulary. All figures are for the held-out text of the first, which therefore goes into the run
folder with the tokenizer: a run may be begun where only part 1 is and resumed where only part 2 is. A part is known by
its fingerprint from the first time it is seen.
"""

import dataclasses
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from litebert.corpus.store import STORE_FILE, TOKENIZER_FOLDER, Store, unigram_entropy
from litebert.errors import InputError
from litebert.pretraining.initial import check_vocabulary
from litebert.runs import write_atomically
from litebert.text.tokenizer_files import read_tokenizer
from litebert.train.objective import Position

PARTS_FOLDER = "corpus"  # in a run folder
PARTS_FILE = "parts.json"


@dataclass(frozen=True, kw_only=True)
class Part:
    """A store and the share of the run from which on it is read."""

    folder: Path
    begin: float = 0.0
    store: Store | None = None  # None: not on this machine

    @property
    def missing(self) -> str:
        """Why the run cannot continue here, if the store is not on this machine."""
        sentence = f"the next part of the text, {self.folder}, is not on this machine; put it there, or take the run "
        return "" if self.store else sentence + "folder to where it is, and continue with --resume"


@dataclass(frozen=True, kw_only=True)
class Text:
    """What a run reads."""

    first: Store  # has the tokenizer, and the held-out text
    parts: tuple[Part, ...]
    unigram: float  # cross entropy of word frequencies on the held-out text
    fingerprints: tuple[str, ...] = ()  # of the parts; empty for one that nobody has seen yet
    # By length: every part has the shapes of the first, so that one compiled graph does for all.
    max_sequences: Mapping[int, int] = field(default_factory=dict)

    def at(self, progress: float) -> Part:
        """The part in force."""
        return [part for part in self.parts if part.begin <= progress][-1]


class AbsentText:
    """Stands for the batches of a part that is not on this machine."""

    def __init__(self, part: Part) -> None:
        self._part = part

    def stream(self, start: Position, *, rank: int, world: int, workers: int) -> Iterator[Any]:
        raise InputError(self._part.missing)

    def advance(self, position: Position, count: int) -> Position:
        raise InputError(self._part.missing)


def open_text(folders: Sequence[Path], shares: Sequence[float], run: Path | None = None) -> Text:
    """The stores of a run; ``run``: the folder of the run to resume. Without ``shares`` all have the same."""
    begins = _begins(len(folders), shares)
    note = read_note(run) if run else None
    if note is None and len(folders) == 1:
        store = Store.open(folders[0])
        return Text(first=store, parts=(Part(folder=folders[0], store=store),), unigram=unigram_entropy(store))
    if note is None:
        first = Store.open(folders[0])
        known, unigram, sequences = [""] * len(folders), unigram_entropy(first), {}
    else:
        assert run is not None
        first = Store.open(run / PARTS_FOLDER)
        known, unigram = list(note["fingerprints"]), float(note["unigram"])
        sequences = {int(length): int(count) for length, count in note["max_sequences"].items()}
        if len(folders) != len(known):
            raise InputError(f"the run was begun with {len(known)} stores, not {len(folders)}; name as many to resume")
    parts = tuple(
        Part(folder=folder, begin=begin, store=_open_part(folder, number, print_, first))
        for number, (folder, begin, print_) in enumerate(zip(folders, begins, known, strict=True), 1)
    )
    found = tuple(part.store.fingerprint if part.store else old for part, old in zip(parts, known, strict=True))
    return Text(first=first, parts=parts, unigram=unigram, fingerprints=found, max_sequences=sequences)


def read_note(run: Path) -> dict[str, Any] | None:
    """What a run folder has about its sequence of stores; None where it has none."""
    path = run / PARTS_FOLDER / PARTS_FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def write_note(run: Path, text: Text) -> None:
    """Keep in the run folder what it takes to resume without the parts that are done."""
    folder = run / PARTS_FOLDER
    if not (folder / STORE_FILE).is_file():
        held_out = text.first.split("held_out").shards
        shutil.rmtree(folder, ignore_errors=True)  # what a process that was killed left of it
        folder.mkdir()
        shutil.copytree(text.first.tokenizer_folder, folder / TOKENIZER_FOLDER)
        for shard in held_out:
            shutil.copytree(shard.folder, folder / shard.name)
        dataclasses.replace(text.first.manifest, shards=tuple(shard.entry for shard in held_out)).write(folder)
    note = {
        "stores": [str(part.folder) for part in text.parts],
        "fingerprints": text.fingerprints,
        "unigram": text.unigram,
        "max_sequences": text.max_sequences,
    }
    write_atomically(folder / PARTS_FILE, json.dumps(note, indent=2) + "\n")


def _begins(count: int, shares: Sequence[float]) -> list[float]:
    """The share of the run at which each part begins."""
    if shares and len(shares) != count:
        raise InputError(f"batches.parts has {len(shares)} shares for {count} stores; give one for each, or none")
    shares = shares or [1.0] * count
    return [sum(shares[:number]) / sum(shares) for number in range(count)]


def _open_part(folder: Path, number: int, known: str, first: Store) -> Store | None:
    """The store of a part, which must be the one that was planned; None where it is not on this machine."""
    if not (folder / STORE_FILE).is_file():
        return None
    store = Store.open(folder)
    if known and store.fingerprint != known:
        raise InputError(
            f"{folder} is not part {number} of this run: its fingerprint is {store.fingerprint[:8]}, that of the part "
            f"{known[:8]}; name the stores in the order in which the run was begun"
        )
    theirs, ours = read_tokenizer(store.tokenizer_folder), read_tokenizer(first.tokenizer_folder)
    check_vocabulary(theirs, ours, str(first.folder), str(folder))
    return store
