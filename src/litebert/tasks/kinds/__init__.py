"""The six kinds of task, one object each; whatever depends on the kind of a task asks ``KINDS[kind]``."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from litebert.errors import InputError
from litebert.tasks.examples import Kind, TaskData, TaskSpec
from litebert.tasks.kinds.base import HeadScores, LabelScore, TaskKind
from litebert.tasks.kinds.choice import Choice
from litebert.tasks.kinds.classify import Classify
from litebert.tasks.kinds.embed import Embed
from litebert.tasks.kinds.multilabel import Multilabel
from litebert.tasks.kinds.regress import Regress
from litebert.tasks.kinds.span import Span

__all__ = ["KINDS", "HeadScores", "LabelScore", "TaskKind", "check_fits"]

KINDS: Mapping[Kind, TaskKind] = {
    kind.name: kind for kind in (Classify(), Multilabel(), Regress(), Choice(), Span(), Embed())
}


def check_fits(spec: TaskSpec, data: TaskData, folder: Path | str) -> None:
    """An error where a model was made for another kind of task, or knows other labels, than a task has."""
    if spec.kind != data.kind:
        made, given = KINDS[spec.kind].described, KINDS[data.kind].described
        raise InputError(f"{folder} was made for {made}, but {data.name} is {given}")
    if KINDS[data.kind].has_classes and len(spec.labels) != len(data.labels):
        raise InputError(
            f"{folder} knows {len(spec.labels)} labels ({_few(spec.labels)}) but {data.name} has {len(data.labels)} "
            f"({_few(data.labels)}); name the task that it was fine-tuned for"
        )


def _few(labels: Sequence[str]) -> str:
    return ", ".join(labels[:4]) + (", ..." if len(labels) > 4 else "")
