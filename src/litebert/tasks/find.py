"""The one way in: a task by its name and folder, or a person's own file, read into the same ``TaskData``."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

from litebert.data.files import kind_of
from litebert.data.tables import read_table, read_text
from litebert.errors import InputError, nearest
from litebert.tasks.examples import Kind, TaskData
from litebert.tasks.glue import GLUE, read_glue
from litebert.tasks.own import own_task
from litebert.tasks.race import PARTS, read_race
from litebert.tasks.splits import split_dev
from litebert.tasks.squad import VERSIONS, read_questions, read_squad, span_data
from litebert.tasks.tables import split_files

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
    if task is not None and (text or label or kind):
        raise InputError(f"{task} knows its own columns: leave out --text, --label and --kind, or leave out --task")
    if task is not None and dev is not None and data.is_dir():
        raise InputError(
            f"--dev goes with a file as --data; {data} is a folder, in which {task} finds its own dev data"
        )
    if task is None:
        read = _read_own(data, dev, text, label, known_kind(kind), labels, whole)
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


def known_kind(word: str | None) -> Kind | None:
    """A kind of task as a person names it."""
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
    tables = {split: read_table(path) for split, path in files.items()}
    return own_task(name, tables, text=text, label=label, kind=kind, labels=labels)


def _is_squad_file(path: Path) -> bool:
    """Whether a JSON file is one object with articles, rather than rows."""
    if kind_of(path) != ".json":
        return False
    head = read_text(path)[:4096].lstrip()
    return head.startswith("{") and '"data"' in head and '"paragraphs"' in head


def _own_questions(name: str, files: dict[str, Path]) -> TaskData:
    notes: list[str] = []
    parts = {split: read_questions(path, notes) for split, path in files.items()}
    dev = {"dev": parts["dev"]} if "dev" in parts else {}
    return span_data(name, parts.get("train", ()), dev, notes)
