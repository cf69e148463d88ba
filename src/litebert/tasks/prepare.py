"""What every run on a task has in common, made once: the model read, the data encoded, nothing left open."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from litebert.checkpoints.folder import Loaded
from litebert.errors import InputError
from litebert.tasks.encoding import EncodingSettings, Inputs, encode
from litebert.tasks.examples import Example, Item, TaskData
from litebert.tasks.keeper import DevPart
from litebert.tasks.predicting import TaskNote
from litebert.tasks.recipes import FinetuneRecipe, settled
from litebert.tasks.score import has_target
from litebert.tasks.seen import remember
from litebert.tasks.starting import load_source
from litebert.tasks.targets import Targets, make_targets
from litebert.tasks.teaching import Teaching
from litebert.text.tokenizer import Tokenizer
from litebert.train.settings import Precision

LONG = 0.98  # inputs as long as this share of them have room where nobody says how long they may be


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings:
    """What the user asked for, beside the data."""

    model: str
    out: Path
    recipe: FinetuneRecipe
    seed: int = 0
    resume: bool = False
    device: str = "cpu"
    precision: Precision | None = None
    budget: float | None = None  # seconds
    compiled: bool = False
    recorded: bool | None = None  # passes as CUDA graphs; None: on a GPU
    save_seconds: float = 300.0
    save_steps: int | None = None
    watched: bool = True  # figures on screen and in files


@dataclass(frozen=True)
class Prepared:
    """All that runs with several seeds have in common."""

    source: Loaded
    tokenizer: Tokenizer
    data: TaskData
    recipe: FinetuneRecipe
    note: TaskNote
    train: tuple[Item, ...]
    inputs: Inputs
    targets: Targets
    dev: tuple[DevPart, ...]
    notes: tuple[str, ...]
    fingerprint: str
    teaching: Teaching | None = None  # another model to learn from, beside the labels


def prepare(settings: FinetuneSettings, data: TaskData, source: Loaded | None = None) -> Prepared:
    """Read the model (unless ``source`` is it) and encode the data, once."""
    if not data.train:
        raise InputError(f"there is no training data of {data.name}; --data names a folder or file that has some")
    train = tuple(item for item in data.train if has_target(item))
    if not train:
        raise InputError(f"no training item of {data.name} has a label")
    source = source or load_source(settings.model)
    tokenizer, encoder = source.tokenizer, source.network.config.encoder
    assert tokenizer is not None
    if tokenizer.vocab_size > encoder.vocab_size:
        raise InputError(
            f"the tokenizer in {settings.model} has {tokenizer.vocab_size} pieces but the model only "
            f"{encoder.vocab_size}; they are not of one model"
        )
    limit = min(512, encoder.max_positions) if encoder.positions == "absolute" else 512
    length = min(settings.recipe.length or limit, limit)
    inputs = encode(train, tokenizer, EncodingSettings(length=length, stride=settings.recipe.stride))
    longest = int(np.quantile(inputs.lengths, LONG)) + 1
    units = len(inputs) if data.kind == "span" else len(train)
    recipe, notes = settled(settings.recipe, encoder, units=units, longest=longest)
    assert recipe.length is not None
    encoding = EncodingSettings(length=recipe.length, stride=recipe.stride)
    if recipe.length != length:
        inputs = encode(train, tokenizer, encoding)
    targets = make_targets(data.kind, train, inputs, len(data.labels))
    dev = tuple(
        _dev_part(name, [item for item in items if has_target(item)], tokenizer, encoding, 0)
        for name, items in data.dev.items()
    )
    dev = tuple(part for part in dev if part.items)
    if not dev:
        raise InputError(f"there is no dev data of {data.name} to choose the best model with; give some with --dev")
    note = TaskNote(
        task=data.name,
        kind=data.kind,
        labels=data.labels,
        metrics=data.metrics,
        length=recipe.length,
        stride=recipe.stride,
        has_null=data.has_null,
        text=data.text,
        label=data.label,
        pairs=any(isinstance(item, Example) and item.second is not None for item in train),
        seen=remember(train),
    )
    return Prepared(
        source, tokenizer, data, recipe, note, train, inputs, targets, dev, tuple(notes), _fingerprint(inputs, targets)
    )


def _dev_part(name: str, items: Sequence[Item], tokenizer: Tokenizer, encoding: EncodingSettings, most: int) -> DevPart:
    """Items to score with: all, or so many spread evenly."""
    if most and len(items) > most:
        items = [items[int(place)] for place in np.linspace(0, len(items) - 1, most)]
    return DevPart(name, tuple(items), encode(items, tokenizer, encoding))


def _fingerprint(inputs: Inputs, targets: Targets) -> str:
    digest = hashlib.sha256()
    for array in (inputs.ids, inputs.segments, inputs.starts, targets.labels, targets.ends, targets.values):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def few(part: DevPart, prepared: Prepared, most: int) -> DevPart:
    """A part of dev, or so many of its items."""
    if not most or len(part.items) <= most:
        return part
    return _dev_part(part.name, part.items, prepared.tokenizer, prepared.note.encoding(), most)


def spread(items: Sequence[Item], most: int) -> list[Item]:
    """So many items, from the first to the last."""
    return [items[int(place)] for place in np.linspace(0, len(items) - 1, min(most, len(items)))]
