"""A task's data for a model that was fine-tuned for it: a file of one's own is read as the model's was."""

from litebert.data.tables import Source
from litebert.tasks.columns import Names
from litebert.tasks.examples import TaskData, TaskSpec
from litebert.tasks.sources import read_task


def read_for(
    note: TaskSpec, task: str | None, data: Source | None, text: Names, label: Names, dev: Source | None
) -> TaskData:
    """A named task, or a file with the columns, the kind and the labels of the note, unless something else is said."""
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
