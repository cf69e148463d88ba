"""A distillation run: a fine-tuned model as the teacher, a student that reads what it reads, fine-tuning with both.

The teacher is frozen and known by its weights, so that a run resumes with no other. A student is a preset with new
weights or a model folder.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from litebert.checkpoints.folder import Loaded, load_model, model_folder
from litebert.data.tables import Source
from litebert.distillation.objective import PROJECTION, DistillObjective, DistillSettings, make_projection
from litebert.distillation.vectors import VectorTeacher
from litebert.errors import InputError
from litebert.families import FAMILIES
from litebert.nn.config import preset_config
from litebert.nn.network import Network, NetworkConfig
from litebert.runs import MODEL_FOLDER, Parent, parent_of, update_run
from litebert.tasks.columns import Names
from litebert.tasks.examples import ItemPrediction, TaskData, TaskSpec
from litebert.tasks.finetune import FinetuneResult, FinetuneSettings, Prepared, check_folder, finetune, prepare
from litebert.tasks.kinds import KINDS
from litebert.tasks.metrics import pearson
from litebert.tasks.objective import SOFT_LOSSES, TaskObjective
from litebert.tasks.predicting import Predictor, check_fits, load_predictor, read_spec
from litebert.tasks.prepare import load_source
from litebert.tasks.score import compute_metrics
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
        """Remove the projection, which is not part of the model."""
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


def load_teacher(folder: str, settings: DistillSettings) -> Teacher:
    """A fine-tuned model to learn from."""
    if not model_folder(folder).is_dir():
        raise InputError(f"there is no folder '{folder}'; the teacher is a model that `litebert finetune` made")
    loaded = load_model(folder)
    note = read_spec(folder, loaded.network.config)
    if loaded.tokenizer is None:
        raise InputError(f"{folder} has no tokenizer, so texts cannot be read; copy the model's tokenizer.json to it")
    return Teacher(folder, loaded.network.eval().requires_grad_(False), loaded.tokenizer, note, settings)


def read_for(
    note: TaskSpec, task: str | None, data: Source | None, text: Names, label: Names, dev: Source | None
) -> TaskData:
    """A named task, or a file; by default with the columns, kind and labels that the model was fine-tuned with."""
    if task is not None:
        return read_task(task, data, text=text, label=label, dev=dev)
    text, label = text or note.text, label or note.label or None
    return read_task(None, data, text=text, label=label, kind=note.kind, labels=note.labels or None, dev=dev)


def load_student(
    name: str, fields: Sequence[str], teacher: Teacher | VectorTeacher, seed: int, *, same_tokenizer: bool = True
) -> Loaded:
    """A model folder, or a preset with new weights and the teacher's vocabulary, changed by ``fields``."""
    if model_folder(name).is_dir():
        if fields:
            raise InputError(f"{name} is a trained model: fields such as student.{fields[0]} can only change a preset")
        loaded = load_source(name)
        assert loaded.tokenizer is not None
        if same_tokenizer and loaded.tokenizer.fingerprint != teacher.tokenizer.fingerprint:
            raise InputError(
                f"{name} and its teacher {teacher.folder} have different tokenizers, so they cannot read one batch; "
                "name a preset as the student, or a model made from the teacher (`litebert shrink`)"
            )
        return loaded
    theirs = teacher.network.config.encoder
    encoder = replace(preset_config(name, fields), vocab_size=theirs.vocab_size, pad_id=theirs.pad_id)
    if FAMILIES[encoder.family].layout != FAMILIES[teacher.tokenizer.family].layout:
        raise InputError(
            f"{name} is a {encoder.family} model, whose inputs are laid out in another way than those of the teacher "
            f"({teacher.tokenizer.family}); choose another preset"
        )
    torch.manual_seed(seed)
    network = Network(NetworkConfig(encoder=encoder))
    return Loaded(network.eval(), teacher.tokenizer, [f"{Path(name).name} is a preset: its weights are new"])


@dataclass(frozen=True, kw_only=True)
class DistillReport:
    """Teacher and student on dev. ``agreement`` is the share of same answers; of numbers, their correlation."""

    metric: str
    teacher: float
    student: float
    agreement: float
    of_numbers: bool
    teacher_parameters: int
    student_parameters: int

    def sentences(self) -> list[str]:
        alike = f"correlate by {self.agreement:.4f}" if self.of_numbers else f"agree on {self.agreement:.1%}"
        return [
            f"dev {self.metric}: teacher {self.teacher:.4f}, student {self.student:.4f}; their answers {alike}",
            f"parameters: teacher {self.teacher_parameters:,}, student {self.student_parameters:,} "
            f"({self.student_parameters / self.teacher_parameters:.0%})",
        ]


def distill(
    settings: FinetuneSettings, data: TaskData, teacher: Teacher, student: Loaded
) -> tuple[FinetuneResult, DistillReport | None]:
    """Distil; ``settings.model`` names the student. A run that was stopped has no report."""
    if data.kind not in TAUGHT:
        raise InputError(f"{data.name} is a task of kind {data.kind}; what can be distilled is {', '.join(TAUGHT)}")
    check_fits(teacher.note, data, teacher.folder)
    if teacher.note.labels != data.labels and set(teacher.note.labels) == set(data.labels):
        raise InputError(f"the labels of {data.name} are in another order than those of the teacher, {teacher.folder}")
    check_folder(settings.out, settings.resume)
    prepared = with_teacher(prepare(settings, data, student), teacher)
    result = finetune(settings, data, prepared)
    model = settings.out / MODEL_FOLDER
    if result.status == "stopped" or not model.is_dir():
        return result, None
    report = _compare(prepared, teacher, model, settings.device)
    update_run(settings.out, result={"teacher_score": report.teacher, "agreement": report.agreement})
    return result, report


def with_teacher(prepared: Prepared, teacher: Teacher) -> Prepared:
    """The same, to be learnt from a teacher; an error where the inputs are too long for it."""
    longest, encoder = int(prepared.inputs.lengths.max()), teacher.network.config.encoder
    if encoder.positions == "absolute" and longest > encoder.max_positions:
        raise InputError(
            f"inputs have up to {longest} tokens but the teacher reads {encoder.max_positions}; add "
            f"length={encoder.max_positions}"
        )
    return replace(prepared, teaching=teacher)


def _compare(prepared: Prepared, teacher: Teacher, model: Path, device: str) -> DistillReport:
    student = load_predictor(model, device=device)
    note = replace(student.note, labels=teacher.note.labels)
    where = torch.device(device)
    master = Predictor(teacher.network.to(where), teacher.tokenizer, note, where, precision=student.precision)
    metric = prepared.data.metrics[0]
    scores: list[tuple[float, float, float]] = []
    for part in prepared.dev:
        answers = [one.predict_encoded(part.items, part.inputs) for one in (master, student)]
        theirs, ours = (compute_metrics(prepared.data, part.items, found)[metric] for found in answers)
        scores.append((theirs, ours, _agreement(*answers)))
    means = np.mean(scores, axis=0)
    sizes = [sum(parameter.numel() for parameter in one.network.parameters()) for one in (teacher, student)]
    return DistillReport(
        metric=metric,
        teacher=float(means[0]),
        student=float(means[1]),
        agreement=float(means[2]),
        of_numbers=KINDS[prepared.data.kind].in_units,
        teacher_parameters=sizes[0],
        student_parameters=sizes[1],
    )


def _agreement(taught: list[ItemPrediction], learnt: list[ItemPrediction]) -> float:
    labels: list[tuple[Any, Any]] = [(one.label, other.label) for one, other in zip(taught, learnt, strict=True)]
    if isinstance(labels[0][0], float):
        return pearson([one for one, _ in labels], [other for _, other in labels])
    return float(np.mean([one == other for one, other in labels]))
