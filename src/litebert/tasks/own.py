"""Tables of a person's own as a task: columns found once, labels of the training rows, then every split read alike."""

from collections.abc import Mapping, Sequence

from litebert.tasks.columns import find_columns
from litebert.tasks.examples import Kind, Question, TaskData
from litebert.tasks.kinds import KINDS
from litebert.tasks.table_files import Table
from litebert.tasks.tables import find_labels, make_items


def own_task(
    name: str,
    tables: Mapping[str, Table],
    *,
    text: str | None = None,
    label: str | None = None,
    kind: Kind | None = None,
    labels: Sequence[str] | None = None,
) -> TaskData:
    """The task in tables named train, dev and test, of which the first that is there decides what the columns are.

    Only a test table may come without labels. ``labels`` are those a model has already, in its order.
    """
    main = next(tables[split] for split in ("train", "dev", "test") if split in tables)
    columns = find_columns(main, text=text, label=label, kind=kind)
    notes = [columns.describe()]
    has_classes = KINDS[columns.kind].has_classes
    known = tuple(labels) if labels and has_classes else find_labels(main, columns)
    parts = {
        split: make_items(table, columns, known, notes, labelled=split != "test") for split, table in tables.items()
    }
    unanswered = (item for items in parts.values() for item in items if isinstance(item, Question) and item.impossible)
    return TaskData(
        name=name,
        kind=columns.kind,
        labels=known,
        metrics=KINDS[columns.kind].default_metrics,
        train=parts.get("train", ()),
        dev={"dev": parts["dev"]} if "dev" in parts else {},
        test={"test": parts["test"]} if "test" in parts else {},
        notes=tuple(notes),
        has_null=next(unanswered, None) is not None,
        text=columns.text_parts,
        label=",".join(columns.labels),
    )
