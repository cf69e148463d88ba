"""A distillation run: fine-tuning with a teacher, and how near the student has come to it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from litebert.checkpoints.folder import Loaded
from litebert.distillation.teacher import Teacher, check_task
from litebert.errors import InputError
from litebert.runs import MODEL_FOLDER, update_run
from litebert.tasks.examples import ItemPrediction, TaskData
from litebert.tasks.finetune import FinetuneResult, FinetuneSettings, Prepared, check_folder, finetune, prepare
from litebert.tasks.kinds import KINDS
from litebert.tasks.metrics import pearson
from litebert.tasks.predicting import Predictor, load_predictor
from litebert.tasks.score import compute_metrics


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
    """Distil; ``settings.model`` names the student. How near it came is not known of a run that was stopped."""
    check_task(teacher, data)
    check_folder(settings.out, settings.resume)
    prepared = with_teacher(prepare(settings, data, student), teacher)
    result = finetune(settings, data, prepared)
    model = settings.out / MODEL_FOLDER
    if result.status == "stopped" or not model.is_dir():
        return result, None
    near = _nearness(prepared, teacher, model, settings.device)
    update_run(settings.out, result={"teacher_score": near.teacher, "agreement": near.agreement})
    return result, near


def with_teacher(prepared: Prepared, teacher: Teacher) -> Prepared:
    """The same, to be learnt from a teacher; an error where the inputs are too long for it."""
    longest = int(prepared.inputs.lengths.max())
    if teacher.longest is not None and longest > teacher.longest:
        raise InputError(
            f"inputs have up to {longest} tokens but the teacher reads {teacher.longest}; add length={teacher.longest}"
        )
    return replace(prepared, teaching=teacher)


def _nearness(prepared: Prepared, teacher: Teacher, model: Path, device: str) -> DistillReport:
    student = load_predictor(model, device=device)
    note = replace(student.note, labels=teacher.note.labels)
    where = torch.device(device)
    master = Predictor(teacher.network.to(where), teacher.tokenizer, note, where, precision=student.precision)
    scores: list[tuple[float, float, float]] = []
    for part in prepared.dev:
        taught, learnt = (one.predict_encoded(part.items, part.inputs) for one in (master, student))
        metrics = [compute_metrics(prepared.data, part.items, found) for found in (taught, learnt)]
        name = prepared.data.metrics[0]
        scores.append((metrics[0][name], metrics[1][name], _agreement(taught, learnt)))
    means = np.mean(scores, axis=0)
    return DistillReport(
        metric=prepared.data.metrics[0],
        teacher=float(means[0]),
        student=float(means[1]),
        agreement=float(means[2]),
        of_numbers=KINDS[prepared.data.kind].in_units,
        teacher_parameters=_size(teacher.network),
        student_parameters=_size(student.network),
    )


def _agreement(taught: list[ItemPrediction], learnt: list[ItemPrediction]) -> float:
    labels: list[tuple[Any, Any]] = [(one.label, other.label) for one, other in zip(taught, learnt, strict=True)]
    if isinstance(labels[0][0], float):
        return pearson([one for one, _ in labels], [other for _, other in labels])
    return float(np.mean([one == other for one, other in labels]))


def _size(network: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())
