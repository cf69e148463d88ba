"""A task's data for a model that was fine-tuned for it: a file of one's own is read as the model's was."""

from pathlib import Path

from litebert.tasks.examples import TaskData, TaskSpec
from litebert.tasks.find import read_task


def read_for(
    note: TaskSpec, task: str | None, data: Path | None, text: str | None, label: str | None, dev: Path | None
) -> TaskData:
    """A named task, or a file with the columns, the kind and the labels of the note, unless something else is said."""
    if task is not None:
        return read_task(task, data, text=text, label=label, dev=dev)
    return read_task(
        None,
        data,
        text=text or ",".join(note.text) or None,
        label=label or note.label or None,
        kind=note.kind,
        labels=note.labels or None,
        dev=dev,
    )
