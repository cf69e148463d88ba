"""From a pretrained model to one with a new head for a task: the encoder as it is, the head drawn from the seed."""

from dataclasses import replace
from pathlib import Path

import torch

from litebert.checkpoints.folder import Loaded, load_model
from litebert.errors import InputError
from litebert.nn.network import HeadsConfig, Network, NetworkConfig
from litebert.tasks.examples import TaskData
from litebert.tasks.kinds import KINDS
from litebert.tasks.recipes import FinetuneRecipe


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
        names=(kind.head,),
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
    if network.pooler is not None and KINDS["span"].head in heads.names:
        network.pooler.requires_grad_(False)  # nothing reads it
    return network, [f"new weights: {part.removeprefix('heads.')}" for part in new]
