"""The nine GLUE tasks and the AX diagnostic, from the official folders of TSV files or from the Hub.

Official files have no quoting: tabs separate cells, line feeds separate rows, and a quotation mark is only text.
Columns are found by their names, because test files have others than train files; only CoLA has files without a header.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from litebert.errors import InputError
from litebert.tasks.columns import number_in
from litebert.tasks.examples import Example, Item, Kind, TaskData

ENTAILMENT = ("entailment", "not_entailment")
NLI = ("entailment", "neutral", "contradiction")
NO_GOLD = "-"  # MNLI's annotators did not agree
HIDDEN = -1  # how the Hub writes a label that was never published


@dataclass(frozen=True, kw_only=True)
class GlueTask:
    """How one task's files look: where they are, which columns hold what, how labels are spelled."""

    folders: tuple[str, ...]
    first: tuple[str, ...]  # names of the column in files and on the Hub, the first that is there counts
    second: tuple[str, ...] = ()
    target: tuple[str, ...] = ("label",)
    kind: Kind = "classify"
    labels: tuple[str, ...] = ()
    spelled: tuple[str, ...] = ()  # labels as the files have them; default: as in ``labels``
    metrics: tuple[str, ...] = ("accuracy",)
    dev: Mapping[str, str] = field(default_factory=lambda: {"dev": "dev.tsv"})
    test: Mapping[str, str] = field(default_factory=lambda: {"test": "test.tsv"})
    headless: tuple[str, ...] = ()  # columns of labelled files, where these have no header


GLUE: Mapping[str, GlueTask] = {
    "cola": GlueTask(
        folders=("CoLA",),
        first=("sentence",),
        labels=("unacceptable", "acceptable"),
        spelled=("0", "1"),
        metrics=("matthews", "accuracy"),
        headless=("source", "label", "star", "sentence"),
    ),
    "sst2": GlueTask(
        folders=("SST-2", "sst2"), first=("sentence",), labels=("negative", "positive"), spelled=("0", "1")
    ),
    "mrpc": GlueTask(
        folders=("MRPC",),
        first=("#1 String", "sentence1"),
        second=("#2 String", "sentence2"),
        target=("Quality",),
        labels=("not_equivalent", "equivalent"),
        spelled=("0", "1"),
        metrics=("accuracy", "f1"),
    ),
    "stsb": GlueTask(
        folders=("STS-B", "stsb"),
        first=("sentence1",),
        second=("sentence2",),
        target=("score",),
        kind="regress",
        metrics=("pearson", "spearman"),
    ),
    "qqp": GlueTask(
        folders=("QQP",),
        first=("question1",),
        second=("question2",),
        target=("is_duplicate",),
        labels=("not_duplicate", "duplicate"),
        spelled=("0", "1"),
        metrics=("accuracy", "f1"),
    ),
    "mnli": GlueTask(
        folders=("MNLI",),
        first=("sentence1", "premise"),
        second=("sentence2", "hypothesis"),
        target=("gold_label",),
        labels=NLI,
        dev={"matched": "dev_matched.tsv", "mismatched": "dev_mismatched.tsv"},
        test={"matched": "test_matched.tsv", "mismatched": "test_mismatched.tsv"},
    ),
    "qnli": GlueTask(folders=("QNLI",), first=("question",), second=("sentence",), labels=ENTAILMENT),
    "rte": GlueTask(folders=("RTE",), first=("sentence1",), second=("sentence2",), labels=ENTAILMENT),
    "wnli": GlueTask(
        folders=("WNLI",),
        first=("sentence1",),
        second=("sentence2",),
        labels=("not_entailment", "entailment"),
        spelled=("0", "1"),
    ),
    "ax": GlueTask(
        folders=("AX", "diagnostic"),
        first=("sentence1", "Premise", "premise"),
        second=("sentence2", "Hypothesis", "hypothesis"),
        target=("label", "Label"),
        labels=NLI,
        metrics=("matthews", "accuracy"),
        dev={"diagnostic": "diagnostic-full.tsv"},
        test={"diagnostic": "diagnostic.tsv"},
    ),
}


def read_glue(name: str, data: Path) -> TaskData:
    """A GLUE task from its folder, or from the folder that holds those of all tasks."""
    task = GLUE[name]
    folder = task_folder(task, data)
    notes: list[str] = []
    train = _read_split(task, folder / "train.tsv", notes) or ()
    dev = {part: items for part, file in task.dev.items() if (items := _read_split(task, folder / file, notes))}
    test = {part: items for part, file in task.test.items() if (items := _read_split(task, folder / file, notes))}
    if not train and not dev and not test:
        files = ("train.tsv", *task.dev.values(), *task.test.values())
        raise InputError(f"{folder} holds none of {', '.join(files)}; data names the folder of {name}'s TSV files")
    return _task_data(name, train, dev, test, notes)


def glue_of_splits(name: str, splits: Mapping[str, Any]) -> TaskData:
    """A GLUE task from its splits on the Hub."""
    task = GLUE[name]
    parts: dict[str, dict[str, tuple[Item, ...]]] = {"train": {}, "validation": {}, "test": {}}
    for split, rows in splits.items():
        word, _, part = split.partition("_")  # validation_matched and the like
        usual = {"validation": "dev", "test": "diagnostic" if name == "ax" else "test"}.get(word, word)
        order = _label_order(rows, task.labels)
        parts[word if word in parts else "test"][part or usual] = tuple(
            Example(
                key=str(row.get("idx", number)),
                first=str(row[_column("the data set", list(row), task.first)]),
                second=str(row[_column("the data set", list(row), task.second)]) if task.second else None,
                target=_hub_target(row.get("label", HIDDEN), order),
            )
            for number, row in enumerate(rows)
        )
    return _task_data(name, parts["train"].get("train", ()), parts["validation"], parts["test"])


def _label_order(rows: Any, known: Sequence[str]) -> dict[int, int]:
    """From the Hub's numbers of labels to ours, by name where the Hub has names; empty for numbers to predict."""
    names = getattr(rows.features.get("label"), "names", None) if hasattr(rows, "features") else None
    if names and {*names} == {*known}:
        return {index: known.index(name) for index, name in enumerate(names)}
    return {index: index for index in range(len(known))}


def _hub_target(label: Any, order: Mapping[int, int]) -> int | float | None:
    if label == HIDDEN:
        return None
    return order.get(int(label)) if order else float(label)


def _task_data(
    name: str,
    train: tuple[Item, ...],
    dev: Mapping[str, tuple[Item, ...]],
    test: Mapping[str, tuple[Item, ...]],
    notes: Sequence[str] = (),
) -> TaskData:
    task = GLUE[name]
    return TaskData(
        name=name,
        kind=task.kind,
        labels=task.labels,
        metrics=task.metrics,
        train=train,
        dev=dev,
        test=test,
        notes=tuple(notes),
    )


def task_folder(task: GlueTask, data: Path) -> Path:
    """``data`` itself, or the folder in it that has the task's name, in whatever case."""
    names = {name.casefold() for name in task.folders}
    inside = [path for path in sorted(data.iterdir()) if path.is_dir() and path.name.casefold() in names]
    return inside[0] if inside else data


def official_index(task: GlueTask, word: str) -> int | None:
    """The label's index by its name or as the official files spell it; None where it is neither."""
    for spelling in (task.labels, task.spelled):
        if word in spelling:
            return spelling.index(word)
    return None


def _read_split(task: GlueTask, path: Path, notes: list[str]) -> tuple[Example, ...]:
    if not path.is_file():
        return ()
    rows = read_rows(path)
    headless = task.headless if rows and rows[0][1:2] in (["0"], ["1"]) else ()  # a label where a name would be
    header, body = (list(headless), rows) if headless else (rows[0] if rows else [], rows[1:])
    first = header.index(_column(path, header, task.first))
    second = header.index(_column(path, header, task.second)) if task.second else None
    target = next((header.index(name) for name in task.target if name in header), None)
    if target is None and not path.name.startswith(("test", "diagnostic.")):
        raise InputError(f"{path} has no column {' or '.join(task.target)}; it has {', '.join(header)}")
    start = 1 if headless else 2
    items, short, disputed = [], 0, 0
    for number, row in enumerate(body):
        if len(row) < len(header):
            short += 1  # a few rows of the official QQP file are cut; its own baseline leaves them out, too
            continue
        if target is not None and row[target] == NO_GOLD:
            disputed += 1
            continue
        place = f"{path}, line {start + number}"
        items.append(
            Example(
                key=str(number),
                first=row[first],
                second=None if second is None else row[second],
                target=None if target is None else _target(task, row[target], place),
            )
        )
    if short:
        notes.append(f"left out {short} rows of {path.name} that have fewer cells than its header")
    if disputed:
        notes.append(f"left out {disputed} rows of {path.name} without a gold label")
    return tuple(items)


def read_rows(path: Path) -> list[list[str]]:
    """The cells of an unquoted TSV file; only a line feed ends a row."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 (byte {error.start:,}); convert it or download it again") from None
    lines = text.split("\n")
    return [line.rstrip("\r").split("\t") for line in lines if line.strip("\r")]


def _column(source: Path | str, header: Sequence[str], names: Sequence[str]) -> str:
    for name in names:
        if name in header:
            return name
    raise InputError(
        f"{source} has no column {' or '.join(names)}, it has {', '.join(header)}; is it the official file of the task?"
    )


def _target(task: GlueTask, cell: str, place: str) -> int | float:
    if not task.labels:  # a number
        value = number_in(cell)
        if value is None or not math.isfinite(value):
            raise InputError(f"{place}: the score is '{cell}', which is not a number; correct or remove the row")
        return value
    index = official_index(task, cell)
    if index is None:
        known = ", ".join(task.spelled or task.labels)
        raise InputError(f"{place}: the label is '{cell}' but must be one of {known}; correct or remove the row")
    return index
