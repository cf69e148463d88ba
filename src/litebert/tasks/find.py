"""The one way in: a task by its name and folder, or a person's own file, read into the same ``TaskData``."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from litebert.errors import InputError, nearest
from litebert.tasks.columns import Columns, find_columns
from litebert.tasks.examples import Item, Kind, Question, TaskData
from litebert.tasks.glue import GLUE, read_glue
from litebert.tasks.race import PARTS, read_race
from litebert.tasks.splits import split_dev
from litebert.tasks.squad import VERSIONS, is_squad_form, parse_questions, read_questions, read_squad, span_data
from litebert.tasks.table_files import Table, kind_of, read_table, read_text
from litebert.tasks.tables import OWN_METRICS, find_labels, make_items, split_files

TASKS = (*GLUE, *VERSIONS, *PARTS)


def read_task(
    task: str | None,
    data: Path | None,
    *,
    text: str | None = None,
    label: str | None = None,
    dev: Path | None = None,
    kind: str | None = None,
    labels: Sequence[str] | None = None,
    whole: bool = False,
    dev_share: float = 0.1,
    seed: int = 0,
) -> TaskData:
    """A named task from its folder, or a person's own file or folder of files.

    ``labels`` are those a model already has, in its order. ``whole`` is for scoring: every row of a file is dev, and
    nothing is set apart. Otherwise a dev split is made where there is none.
    """
    if data is None:
        raise InputError("say with --data where the data is: a task's folder, or a file of your own")
    if task is not None and task not in TASKS:
        raise InputError(f"there is no task '{task}'{nearest(task, TASKS)}")
    if not data.exists():
        raise InputError(f"there is no file or folder '{data}'")
    if task is None:
        read = _read_own(data, dev, text, label, _kind(kind), labels, whole)
    elif data.is_file():
        read = _read_named_file(task, data, dev, whole)
    elif task in GLUE:
        read = read_glue(task, data)
    else:
        read = read_squad(task, data) if task in VERSIONS else read_race(task, data)
    if read.train and not read.dev and not whole:
        return with_dev(read, share=dev_share, seed=seed)
    return read


def with_dev(data: TaskData, *, share: float, seed: int) -> TaskData:
    """The task with a part of its training rows set apart for dev, and a note that says so."""
    train, dev = split_dev(data.train, share=share, seed=seed)
    note = f"no dev data given: {len(dev):,} of {len(data.train):,} rows are set apart for it (seed {seed})"
    return replace(data, train=train, dev={"dev": dev}, notes=(*data.notes, note))


def _kind(word: str | None) -> Kind | None:
    for kind in get_args(Kind):
        if word == kind:
            return kind
    if word is not None:
        raise InputError(f"there is no kind '{word}'{nearest(word, get_args(Kind))}")
    return None


def _read_named_file(task: str, data: Path, dev: Path | None, whole: bool) -> TaskData:
    if task not in VERSIONS:
        raise InputError(f"{data} is a file; --data of {task} names the folder with its official files")
    notes: list[str] = []
    questions = read_questions(data, notes)
    others = {"dev": read_questions(dev, notes)} if dev else {}
    if whole and not others:
        return span_data(task, (), {"dev": questions}, notes, has_null=task == "squad2")
    return span_data(task, questions, others, notes, has_null=task == "squad2")


def _read_own(
    data: Path,
    dev: Path | None,
    text: str | None,
    label: str | None,
    kind: Kind | None,
    labels: Sequence[str] | None,
    whole: bool,
) -> TaskData:
    files = {"train": data} if data.is_file() else split_files(data)
    if dev is not None:
        files["dev"] = dev
    elif whole and data.is_file():
        files = {"dev": data}
    main = files.get("train", files.get("dev", data))
    name = data.name.split(".")[0] if data.is_file() else data.resolve().name
    if _is_squad_file(main):
        return _own_questions(name, files)
    table = read_table(main)
    columns = find_columns(table, text=text, label=label, kind=kind)
    notes = [columns.describe()]
    known = tuple(labels) if labels and columns.kind in ("classify", "multilabel") else find_labels(table, columns)
    tables = {split: table if path == main else read_table(path) for split, path in files.items()}
    parts = {split: _own_items(found, columns, known, notes, split) for split, found in tables.items()}
    if columns.kind == "span":
        questions = {split: tuple(q for q in items if isinstance(q, Question)) for split, items in parts.items()}
        others = {split: items for split, items in questions.items() if split == "dev"}
        return span_data(name, questions.get("train", ()), others, notes)
    return TaskData(
        name=name,
        kind=columns.kind,
        labels=known,
        metrics=OWN_METRICS[columns.kind],
        train=parts.get("train", ()),
        dev={"dev": parts["dev"]} if "dev" in parts else {},
        test={"test": parts["test"]} if "test" in parts else {},
        notes=tuple(notes),
    )


def _own_items(table: Table, columns: Columns, known: Sequence[str], notes: list[str], split: str) -> tuple[Item, ...]:
    """A test file may come without labels; the others may not."""
    return make_items(table, columns, known, notes, labelled=split != "test")


def _is_squad_file(path: Path) -> bool:
    """Whether a JSON file is one object with articles, rather than rows."""
    if kind_of(path) != ".json":
        return False
    head = read_text(path)[:4096].lstrip()
    return head.startswith("{") and '"data"' in head and '"paragraphs"' in head


def _own_questions(name: str, files: dict[str, Path]) -> TaskData:
    import json

    notes: list[str] = []
    parts = {}
    for split, path in files.items():
        content = json.loads(read_text(path))
        if not is_squad_form(content):
            raise InputError(f"{path} is not in SQuAD form, as the other file is")
        parts[split] = parse_questions(content, path, notes)
    dev = {"dev": parts["dev"]} if "dev" in parts else {}
    return span_data(name, parts.get("train", ()), dev, notes)
