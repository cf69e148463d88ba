"""A fine-tuned model as a teacher: frozen, and known by its weights, so that a run resumes with no other."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from litebert.checkpoints.folder import load_model, model_folder
from litebert.data.tables import Source
from litebert.distillation.objective import PROJECTION, DistillObjective, make_projection
from litebert.distillation.settings import DistillSettings
from litebert.errors import InputError
from litebert.nn.network import Network
from litebert.runs import Parent, parent_of
from litebert.tasks.columns import Names
from litebert.tasks.examples import TaskData, TaskSpec
from litebert.tasks.objective import SOFT_LOSSES, TaskObjective
from litebert.tasks.predicting import check_fits, read_spec
from litebert.tasks.sources import read_task
from litebert.text.tokenizer import Tokenizer
from litebert.train.objective import Objective

TAUGHT = tuple(SOFT_LOSSES)


@dataclass(frozen=True)
class Teacher:
    """A model to learn from, and how. It fits ``litebert.tasks.prepare.Teaching``."""

    folder: str
    network: Network
    tokenizer: Tokenizer
    note: TaskSpec
    settings: DistillSettings

    def begin(
        self, own: TaskObjective, network: Network, device: torch.device
    ) -> tuple[Objective, Mapping[str, float]]:
        """The objective of a student, with a projection among its heads where that is needed."""
        self.network.to(device)
        projection = make_projection(network, self.network, self.settings)
        if projection is not None:
            network.heads[PROJECTION] = projection.to(device)
        return DistillObjective(own, self.network, self.settings), self.settings.weights()

    def end(self, network: Network) -> None:
        """Without the projection again: it is no part of the model."""
        if PROJECTION in network.heads:
            del network.heads[PROJECTION]

    def facts(self) -> dict[str, Any]:
        return {"weights": self._digest, **asdict(self.settings)}

    def parents(self) -> list[Parent]:
        return [parent_of("teacher", Path(self.folder))]

    @cached_property
    def _digest(self) -> str:
        digest = hashlib.sha256()
        for name, tensor in self.network.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]

    @property
    def longest(self) -> int | None:
        """The most tokens that it can read; None: any number."""
        encoder = self.network.config.encoder
        return encoder.max_positions if encoder.positions == "absolute" else None


def load_teacher(folder: str, settings: DistillSettings) -> Teacher:
    """A fine-tuned model to learn from."""
    if not model_folder(folder).is_dir():
        raise InputError(f"there is no folder '{folder}'; the teacher is a model that `litebert finetune` made")
    loaded = load_model(folder)
    note = read_spec(folder, loaded.network.config)
    if loaded.tokenizer is None:
        raise InputError(f"{folder} has no tokenizer, so texts cannot be read; copy the model's tokenizer.json to it")
    return Teacher(folder, loaded.network.eval().requires_grad_(False), loaded.tokenizer, note, settings)


def check_task(teacher: Teacher, data: TaskData) -> None:
    """An error unless the teacher answers what the task asks."""
    if data.kind not in TAUGHT:
        raise InputError(f"{data.name} is a task of kind {data.kind}; what can be distilled is {', '.join(TAUGHT)}")
    check_fits(teacher.note, data, teacher.folder)
    if teacher.note.labels != data.labels and set(teacher.note.labels) == set(data.labels):
        raise InputError(f"the labels of {data.name} are in another order than those of the teacher, {teacher.folder}")


def read_for(
    note: TaskSpec, task: str | None, data: Source | None, text: Names, label: Names, dev: Source | None
) -> TaskData:
    """A named task, or a file; by default with the columns, kind and labels that the model was fine-tuned with."""
    if task is not None:
        return read_task(task, data, text=text, label=label, dev=dev)
    return read_task(
        None,
        data,
        text=text or note.text,
        label=label or note.label or None,
        kind=note.kind,
        labels=note.labels or None,
        dev=dev,
    )
