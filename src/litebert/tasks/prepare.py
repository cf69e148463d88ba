"""What every run on a task has in common, made once: the model read, the data encoded, nothing left open.

And how a run begins: with the encoder of a pretrained model and a new head for the task, drawn from the seed.
"""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from litebert.checkpoints.folder import Loaded, load_model
from litebert.errors import InputError
from litebert.nn.network import HeadsConfig, Network, NetworkConfig
from litebert.planning.count import SHORT
from litebert.pretraining.memory import longest_that_fits
from litebert.runs import Parent
from litebert.tasks.checks import remember
from litebert.tasks.encoding import Inputs, Targets
from litebert.tasks.examples import EncodingSettings, Example, Item, TaskData, TaskSpec
from litebert.tasks.kinds import KINDS
from litebert.tasks.objective import TaskObjective
from litebert.tasks.predicting import BUDGET
from litebert.tasks.recipes import USUAL_LENGTH, FinetuneRecipe, settled
from litebert.text.tokenizer import Tokenizer
from litebert.train.objective import Objective
from litebert.train.precision import training_precision
from litebert.train.settings import Precision

log = logging.getLogger(__name__)

LONG = 0.98  # share of the inputs that fit where no length is given


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
    cuda_graphs: bool | None = None  # None: on a GPU
    save_seconds: float = 300.0
    save_steps: int | None = None
    watched: bool = True  # figures on screen and in files, messages at the level of information

    @property
    def level(self) -> int:
        """The level of messages."""
        return logging.INFO if self.watched else logging.DEBUG


@dataclass(frozen=True)
class DevPart:
    """Items to score with, encoded once."""

    name: str
    items: tuple[Item, ...]
    inputs: Inputs


class Teaching(Protocol):
    """A teacher and how to learn from it, as ``litebert.distillation`` has it. One serves any number of runs."""

    def begin(
        self, own: TaskObjective, network: Network, device: torch.device
    ) -> tuple[Objective, Mapping[str, float]]:
        """The objective instead of the task's own, and the weights of its parts; it may add heads to the network."""

    def end(self, network: Network) -> None:
        """Take out of the network what ``begin`` put there."""

    def facts(self) -> Mapping[str, Any]:
        """What must be the same when a run is resumed, as plain values."""

    def parents(self) -> list[Parent]:
        """The teacher, for run.json."""


@dataclass(frozen=True)
class Prepared:
    """All that runs with several seeds have in common."""

    source: Loaded
    tokenizer: Tokenizer
    data: TaskData
    recipe: FinetuneRecipe
    note: TaskSpec
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
        raise InputError(f"there is no training data of {data.name}; data names a folder or file that has some")
    train = tuple(item for item in data.train if item.has_target)
    if not train:
        raise InputError(f"no training item of {data.name} has a label")
    source = source or load_source(settings.model)
    tokenizer, encoder = source.tokenizer, source.network.config.encoder
    assert tokenizer is not None
    if tokenizer.vocab_size > encoder.vocab_size:
        raise InputError(
            f"the tokenizer in {settings.model} has {tokenizer.vocab_size} pieces but the model only "
            f"{encoder.vocab_size}; they do not belong together"
        )
    limit, usual = encoder.input_limit(settings.recipe.length), USUAL_LENGTH
    if settings.recipe.length is None and limit > SHORT:
        device = torch.device(settings.device)
        precision = settings.precision or training_precision(device, encoder.width)
        limit = usual = longest_that_fits(encoder, "finetune", device, precision, BUDGET[device.type])
    kind = KINDS[data.kind]
    inputs = kind.encode(train, tokenizer, EncodingSettings(length=limit, stride=settings.recipe.stride))
    # Nothing is padded, so a model for long texts gains nothing by a lower limit.
    longest = int(np.quantile(inputs.lengths, LONG)) + 1 if usual == USUAL_LENGTH else usual
    units = len(inputs) if kind.per_token else len(train)
    recipe, notes = settled(settings.recipe, encoder, units=units, longest=longest, most=usual)
    assert recipe.length is not None
    encoding = EncodingSettings(length=recipe.length, stride=recipe.stride)
    too_long = np.unique(inputs.items[inputs.lengths > recipe.length])
    if len(too_long):  # only these are tokenised again
        inputs = inputs.replaced(too_long, kind.encode([train[item] for item in too_long], tokenizer, encoding))
    if cut := len(np.unique(inputs.items[inputs.cut])) if len(inputs.cut) else 0:
        sentence = "%s of %s training texts are longer than %d tokens and are cut (max_length)"
        log.log(settings.level, sentence, f"{cut:,}", f"{len(train):,}", recipe.length)
    targets = kind.targets(train, inputs, len(data.labels))
    labelled = {name: tuple(item for item in items if item.has_target) for name, items in data.dev.items()}
    dev = tuple(
        DevPart(name, items, kind.encode(items, tokenizer, encoding)) for name, items in labelled.items() if items
    )
    if not dev:
        raise InputError(f"there is no dev data of {data.name} to choose the best model with; give some as dev")
    note = TaskSpec(
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
    note = kind.described_by(note, train)
    return Prepared(
        source, tokenizer, data, recipe, note, train, inputs, targets, dev, tuple(notes), _fingerprint(inputs, targets)
    )


def _fingerprint(inputs: Inputs, targets: Targets) -> str:
    digest = hashlib.sha256()
    for array in (inputs.ids, inputs.segments, inputs.starts, targets.labels, targets.ends, targets.values):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def evenly_spaced(items: Sequence[Item], most: int) -> tuple[Item, ...]:
    """At most this many items, from the first to the last."""
    return tuple(items[int(place)] for place in np.linspace(0, len(items) - 1, min(most, len(items))))


def sampled_part(part: DevPart, prepared: Prepared, most: int) -> DevPart:
    """A part of dev, or ``most`` of its items; 0: all."""
    if not most or len(part.items) <= most:
        return part
    items = evenly_spaced(part.items, most)
    encoded = KINDS[prepared.data.kind].encode(items, prepared.tokenizer, prepared.note.encoding())
    return DevPart(part.name, items, encoded)


def load_source(model: str | Path) -> Loaded:
    """The model to start from; without a tokenizer there is nothing to read texts with."""
    loaded = load_model(model)
    if loaded.tokenizer is None:
        if not Path(model).is_dir():
            raise InputError(f"{model} is a preset without weights; name the folder of a pretrained model")
        raise InputError(f"{model} has no tokenizer, so texts cannot be read; copy the model's tokenizer.json to it")
    return loaded


def task_heads(data: TaskData, *, answerable: bool) -> HeadsConfig:
    """The head that a task asks for."""
    kind = KINDS[data.kind]
    return HeadsConfig(
        names=(kind.head,) if kind.head else (),
        labels=kind.head_labels(data.labels),
        answerable=answerable and data.has_null,
        problem=kind.problem,
    )


def start_network(source: Network, heads: HeadsConfig, recipe: FinetuneRecipe, seed: int) -> tuple[Network, list[str]]:
    """A network with the source's encoder and pooler and a head for the task, and what of it is new.

    A head for the same labels is kept, so that a model can be fine-tuned further.
    """
    encoder = source.config.encoder
    if recipe.dropout is not None:
        encoder = replace(encoder, dropout=recipe.dropout, attention_dropout=recipe.dropout)
    if recipe.classifier_dropout is not None:
        encoder = replace(encoder, classifier_dropout=recipe.classifier_dropout)
    torch.manual_seed(seed)
    network = Network(NetworkConfig(encoder=encoder, heads=heads))
    ours, theirs = network.state_dict(), source.state_dict()
    same = source.config.heads.labels == heads.labels
    taken = {
        name: theirs[name]
        for name, tensor in ours.items()
        if name in theirs and (same or not name.startswith("heads.")) and theirs[name].shape == tensor.shape
    }
    network.load_state_dict(taken, strict=False)
    new = sorted({".".join(name.split(".")[: 2 if name.startswith("heads") else 1]) for name in ours.keys() - taken})
    if network.pooler is not None and heads.names in ((), (KINDS["span"].head,)):
        network.pooler.requires_grad_(False)  # nothing reads it
    return network, [f"new weights: {part.removeprefix('heads.')}" for part in new]
