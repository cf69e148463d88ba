"""Tasks through the ``datasets`` library (``--from-hub``): the nine GLUE tasks and AX, SQuAD, RACE, or any data set.

Rows get the same form as those of local files, so that nothing later knows where they came from.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.data.tables import Table
from litebert.errors import InputError, nearest
from litebert.tasks.examples import Answer, Choice, Example, Item, Kind, Question, TaskData
from litebert.tasks.find import TASKS, with_dev
from litebert.tasks.glue import GLUE
from litebert.tasks.own import own_task
from litebert.tasks.race import LETTERS, PARTS
from litebert.tasks.squad import VERSIONS, find_answer, span_data

EXTRA = "reading from the hub needs the datasets library: pip install 'litebert[hub]'"
SPLITS = {"train": ("train",), "dev": ("validation", "dev", "valid"), "test": ("test",)}
GLUE_TEXTS: Mapping[str, tuple[str, ...]] = {
    "cola": ("sentence",),
    "sst2": ("sentence",),
    "mnli": ("premise", "hypothesis"),
    "ax": ("premise", "hypothesis"),
    "qnli": ("question", "sentence"),
    "qqp": ("question1", "question2"),
}
HIDDEN = -1  # how the hub writes a label that was never published


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a task is on the hub."""

    name: str
    configuration: str | None = None


def hub_place(task: str) -> Place:
    """The data set that holds a named task."""
    if task in GLUE:
        return Place(name="nyu-mll/glue", configuration=task)
    if task in VERSIONS:
        return Place(name="rajpurkar/squad_v2" if task == "squad2" else "rajpurkar/squad")
    if task in PARTS:
        return Place(name="ehovy/race", configuration={"race": "all"}.get(task, task.removeprefix("race-")))
    raise InputError(f"there is no task '{task}'{nearest(task, TASKS)}")


def read_hub(
    task: str | None,
    name: str | None = None,
    *,
    text: str | None = None,
    label: str | None = None,
    kind: Kind | None = None,
    dev_share: float = 0.1,
    seed: int = 0,
) -> TaskData:
    """A named task, or the data set ``name`` (``owner/set`` or ``owner/set:configuration``) as one's own table."""
    if task is None and not name:
        raise InputError("--from-hub needs --task, or a data set's name as --data (owner/set or owner/set:config)")
    if task is not None:
        data = _named_task(task, _load(hub_place(task)))
    else:
        set_name, _, configuration = str(name).partition(":")
        data = _own(set_name, _load(Place(name=set_name, configuration=configuration or None)), text, label, kind)
    return with_dev(data, share=dev_share, seed=seed) if data.train and not data.dev else data


def _load(place: Place) -> Mapping[str, Any]:
    """All splits of a data set."""
    try:
        import datasets
    except ImportError:
        raise InputError(EXTRA) from None
    try:
        loaded = datasets.load_dataset(place.name, place.configuration)
    except (OSError, ValueError, RuntimeError) as error:  # not found, no network, several configurations
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{place.name} could not be loaded from the hub ({reason}); use local files with --data"
        ) from None
    return dict(loaded)


def _named_task(task: str, splits: Mapping[str, Any]) -> TaskData:
    if task in VERSIONS:
        notes: list[str] = []
        parts = {split: tuple(map(_question, rows)) for split, rows in splits.items()}
        dev = {"dev": parts["validation"]} if "validation" in parts else {}
        return span_data(task, parts.get("train", ()), dev, notes, has_null=task == "squad2")
    if task in PARTS:
        return _race(task, splits)
    return _glue(task, splits)


def _glue(task: str, splits: Mapping[str, Any]) -> TaskData:
    official = GLUE[task]
    texts = GLUE_TEXTS.get(task, ("sentence1", "sentence2"))
    dev: dict[str, tuple[Item, ...]] = {}
    test: dict[str, tuple[Item, ...]] = {}
    train: tuple[Item, ...] = ()
    for split, rows in splits.items():
        names = _label_names(rows, official.labels)
        items = tuple(_glue_example(row, number, texts, official.kind, names) for number, row in enumerate(rows))
        word, _, part = split.partition("_")  # validation_matched and the like
        if word == "train":
            train = items
        elif word == "validation":
            dev[part or "dev"] = items
        else:
            test["diagnostic" if task == "ax" else part or "test"] = items
    return TaskData(
        name=task, kind=official.kind, labels=official.labels, metrics=official.metrics, train=train, dev=dev, test=test
    )


def _label_names(rows: Any, known: Sequence[str]) -> dict[int, int]:
    """From the hub's numbers of labels to ours, by name where the hub has names."""
    names = getattr(rows.features.get("label"), "names", None) if hasattr(rows, "features") else None
    if names and {*names} == {*known}:
        return {index: known.index(name) for index, name in enumerate(names)}
    return {index: index for index in range(len(known))}


def _glue_example(
    row: Mapping[str, Any], number: int, texts: Sequence[str], kind: Kind, names: Mapping[int, int]
) -> Example:
    label = row.get("label", HIDDEN)
    target: int | float | None = float(label) if kind == "regress" else names.get(int(label))
    if label == HIDDEN:
        target = None
    return Example(
        key=str(row.get("idx", number)),
        first=str(row[texts[0]]),
        second=str(row[texts[1]]) if len(texts) > 1 else None,
        target=target,
    )


def _question(row: Mapping[str, Any]) -> Question:
    passage = str(row["context"])
    answers = []
    for text, start in zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True):
        place = find_answer(passage, text, start)
        answers.append(Answer(text=text, start=-1 if place is None else place))
    return Question(
        key=str(row["id"]),
        title=str(row.get("title", "")),
        passage=passage,
        question=str(row["question"]),
        answers=tuple(answers),
        impossible=not answers,
    )


def _race(task: str, splits: Mapping[str, Any]) -> TaskData:
    parts = {split: _choices(rows) for split, rows in splits.items()}
    by_level = {
        split: {level: found for level in PARTS[task] if (found := tuple(i for i in items if i.key.startswith(level)))}
        for split, items in parts.items()
    }
    return TaskData(
        name=task,
        kind="choice",
        labels=(),
        metrics=("accuracy",),
        train=parts.get("train", ()),
        dev=by_level.get("validation", {}),
        test=by_level.get("test", {}),
    )


def _choices(rows: Iterable[Mapping[str, Any]]) -> tuple[Choice, ...]:
    """Questions, numbered within their passage as local files number them."""
    counts: dict[str, int] = {}
    items = []
    for row in rows:
        identity = str(row["example_id"])
        number = counts[identity] = counts.get(identity, -1) + 1
        items.append(
            Choice(
                key=f"{identity}-{number}",
                passage=str(row["article"]),
                question=str(row["question"]),
                options=tuple(map(str, row["options"])),
                target=LETTERS.index(str(row["answer"])),
            )
        )
    return tuple(items)


def _own(name: str, splits: Mapping[str, Any], text: str | None, label: str | None, kind: Kind | None) -> TaskData:
    """Any data set, its rows taken as a table."""
    tables = {
        ours: _table(name, splits[theirs], theirs)
        for ours, spellings in SPLITS.items()
        for theirs in spellings
        if theirs in splits
    }
    if "train" not in tables:
        raise InputError(f"{name} has no train split; it has {', '.join(splits)}")
    return own_task(name.split("/")[-1], tables, text=text, label=label, kind=kind)


def _table(name: str, rows: Any, split: str) -> Table:
    """Rows with class labels written as their names."""
    columns = tuple(rows.column_names)
    named = {column: getattr(rows.features[column], "names", None) for column in columns}

    def cell(column: str, value: Any) -> Any:
        names = named[column]
        if names is None or not isinstance(value, int):
            return value
        return names[value] if 0 <= value < len(names) else None

    cells = tuple(tuple(cell(column, row[column]) for column in columns) for row in rows)
    return Table(path=Path(f"{name} {split}"), columns=columns, rows=cells, lines=tuple(range(1, len(cells) + 1)))
