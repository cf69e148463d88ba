"""The one entrance for tasks: by name and folder, through the Hub, or from a person's own files or data in memory.

Whatever they come from, rows get the same form, so that nothing later knows the difference.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from litebert.data.files import kind_of, read_text
from litebert.data.tables import Source, Table, read_table
from litebert.errors import InputError, nearest
from litebert.tasks.columns import Names
from litebert.tasks.examples import Answer, Choice, Example, Item, Kind, Question, TaskData
from litebert.tasks.glue import GLUE, read_glue
from litebert.tasks.race import LETTERS, PARTS, read_race
from litebert.tasks.splits import split_dev
from litebert.tasks.squad import VERSIONS, find_answer, read_questions, read_squad, span_data
from litebert.tasks.tables import SPLITS, split_files, task_from_tables

TASKS = (*GLUE, *VERSIONS, *PARTS)
EXTRA = "reading from the Hub needs the datasets library: pip install 'litebert[hub]'"
GLUE_TEXTS: Mapping[str, tuple[str, ...]] = {
    "cola": ("sentence",),
    "sst2": ("sentence",),
    "mnli": ("premise", "hypothesis"),
    "ax": ("premise", "hypothesis"),
    "qnli": ("question", "sentence"),
    "qqp": ("question1", "question2"),
}
HIDDEN = -1  # how the Hub writes a label that was never published


def read_task(
    task: str | None = None,
    data: Source | None = None,
    *,
    text: Names = None,
    label: Names = None,
    kind: str | None = None,
    dev: Source | None = None,
    from_hub: bool = False,
    labels: Sequence[str] | None = None,
    whole: bool = False,
    header: bool | None = None,
    dev_share: float = 0.1,
    seed: int = 0,
) -> TaskData:
    """A task from ``data``: the folder of a named task, a file or folder of tables, or rows in memory.

    Rows in memory are anything that ``stream_rows`` takes, or a dictionary of splits; with ``from_hub``, ``data`` is
    the name of a data set (``owner/set`` or ``owner/set:configuration``). ``labels`` are those a model already has, in
    its order. ``whole`` is for scoring: every row of a file is dev, and nothing is set apart. Otherwise a dev split is
    made where there is none.
    """
    chosen = known_kind(kind)
    if task is not None and task not in TASKS:
        raise InputError(f"there is no task '{task}'{nearest(task, TASKS)}")
    if task is not None and (text or label or kind) and not from_hub:
        raise InputError(f"{task} knows its own columns: leave out text, label and kind, or leave out task")
    if from_hub:
        read = _read_hub(task, data, text, label, chosen)
    elif data is None:
        raise InputError("data is missing: name a task's folder or a file of your own, or give rows in memory")
    else:
        data, dev = _as_path(data), _as_path(dev)
        if task is None:
            read = _read_own(data, dev, text, label, chosen, labels, whole=whole, header=header)
        else:
            read = _read_named(task, data, dev, whole)
    if read.train and not read.dev and (from_hub or not whole):
        return with_dev(read, share=dev_share, seed=seed)
    return read


def with_dev(data: TaskData, *, share: float, seed: int) -> TaskData:
    """The task with a share of its training rows set apart for dev, and a note that says so."""
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


def _as_path(data: Source) -> Source:
    """A string is a path, which must exist."""
    if not isinstance(data, str | Path):
        return data
    if not Path(data).exists():
        raise InputError(f"there is no file or folder '{data}'")
    return Path(data)


def _read_named(task: str, data: Source, dev: Source | None, whole: bool) -> TaskData:
    """A named task from its official files, or from the splits of a ``DatasetDict``."""
    if isinstance(data, Mapping):
        return _from_splits(task, data)
    if not isinstance(data, Path):
        raise InputError(f"{task} is read from its folder, not from {type(data).__name__}; leave out task for own rows")
    if data.is_dir():
        if dev is not None:
            raise InputError(
                f"dev goes with a file as data; {data} is a folder, in which {task} finds its own dev data"
            )
        if task in GLUE:
            return read_glue(task, data)
        return read_squad(task, data) if task in VERSIONS else read_race(task, data)
    if task not in VERSIONS:
        raise InputError(f"{data} is a file; data of {task} names the folder with its official files")
    notes: list[str] = []
    questions = read_questions(data, notes)
    others = {"dev": read_questions(dev, notes)} if dev is not None else {}
    if whole and not others:
        return span_data(task, (), {"dev": questions}, notes, has_null=task == "squad2")
    return span_data(task, questions, others, notes, has_null=task == "squad2")


def _read_own(
    data: Source,
    dev: Source | None,
    text: Names,
    label: Names,
    kind: Kind | None,
    labels: Sequence[str] | None,
    *,
    whole: bool,
    header: bool | None,
) -> TaskData:
    splits, name = _splits_of(data)
    if dev is not None:
        splits["dev"] = dev
    elif whole and list(splits) == ["train"] and not (isinstance(data, Path) and data.is_dir()):
        splits = {"dev": splits["train"]}
    if _is_squad_file(splits.get("train", splits.get("dev"))):
        notes: list[str] = []
        questions = {split: read_questions(path, notes) for split, path in splits.items()}
        others = {"dev": questions["dev"]} if "dev" in questions else {}
        return span_data(name, questions.get("train", ()), others, notes)
    tables = {split: read_table(source, header=header, name=split) for split, source in splits.items()}
    return task_from_tables(name, tables, text=text, label=label, kind=kind, labels=labels)


def _splits_of(data: Source) -> tuple[dict[str, Source], str]:
    """The splits that a file, a folder, a ``DatasetDict`` or other rows in memory hold, and a name for the task."""
    if isinstance(data, Path):
        files: dict[str, Source] = {"train": data} if data.is_file() else {**split_files(data)}
        return files, data.name.split(".")[0] if data.is_file() else data.resolve().name
    if isinstance(data, Mapping) and data and all(_split_name(key) for key in data):
        found = {split: rows for key, rows in data.items() if (split := _split_name(key))}
        if "train" in found or "dev" in found:
            return found, "data"
        raise InputError(f"the data has no train split; it has {', '.join(map(str, data))}")
    return {"train": data}, "data"


def _split_name(name: object) -> str | None:
    """Train, dev or test, as it may be spelled."""
    return next((split for split, spellings in SPLITS.items() if name in spellings), None)


def _is_squad_file(source: Source) -> bool:
    """Whether a JSON file is one object with articles, rather than rows."""
    if not isinstance(source, Path) or kind_of(source) != ".json":
        return False
    head = read_text(source)[:4096].lstrip()
    return head.startswith("{") and '"data"' in head and '"paragraphs"' in head


# --- the Hub


@dataclass(frozen=True, kw_only=True)
class HubName:
    """Where a task is on the Hub."""

    name: str
    configuration: str | None = None


def hub_name(task: str) -> HubName:
    """The data set that holds a named task."""
    if task in GLUE:
        return HubName(name="nyu-mll/glue", configuration=task)
    if task in VERSIONS:
        return HubName(name="rajpurkar/squad_v2" if task == "squad2" else "rajpurkar/squad")
    return HubName(name="ehovy/race", configuration={"race": "all"}.get(task, task.removeprefix("race-")))


def _read_hub(task: str | None, data: Source | None, text: Names, label: Names, kind: Kind | None) -> TaskData:
    if task is not None:
        return _from_splits(task, _load(hub_name(task)))
    if not isinstance(data, str | Path) or not str(data):
        raise InputError("from_hub needs task, or a data set's name as data (owner/set or owner/set:configuration)")
    name, _, configuration = str(data).partition(":")
    splits = _load(HubName(name=name, configuration=configuration or None))
    tables: dict[str, Table] = {}
    for theirs, rows in splits.items():
        ours = _split_name(theirs)
        if ours is not None and ours not in tables:
            tables[ours] = read_table(rows, name=f"{name} {theirs}")
    if "train" not in tables:
        raise InputError(f"{name} has no train split; it has {', '.join(splits)}")
    return task_from_tables(name.split("/")[-1], tables, text=text, label=label, kind=kind)


def _load(place: HubName) -> Mapping[str, Any]:
    """All splits of a data set."""
    try:
        import datasets
    except ImportError:
        raise InputError(EXTRA) from None
    try:
        loaded = datasets.load_dataset(place.name, place.configuration)
    except (OSError, ValueError, RuntimeError) as error:  # not found, no network, several configurations
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{place.name} could not be loaded from the Hub ({reason}); use local files as data") from None
    return dict(loaded)


def _from_splits(task: str, splits: Mapping[str, Any]) -> TaskData:
    """A named task from its splits on the Hub."""
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
    """From the Hub's numbers of labels to ours, by name where the Hub has names."""
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
