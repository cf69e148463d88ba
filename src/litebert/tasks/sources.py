"""Reading tasks: by name and folder, through the Hub, or from own files or data in memory.

Whatever they come from, rows get the same form, so that nothing later knows the difference.
"""

import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from litebert.data.tables import Source, Table, read_table
from litebert.errors import InputError, nearest
from litebert.tasks.columns import Names
from litebert.tasks.examples import Example, Item, Kind, Question, TaskData, text_key
from litebert.tasks.glue import GLUE, glue_of_splits, read_glue
from litebert.tasks.passages import (
    RACE,
    SQUAD,
    is_squad_file,
    race_of_splits,
    read_questions,
    read_race,
    read_squad,
    span_data,
    squad_of_splits,
)
from litebert.tasks.tables import SPLITS, split_files, task_from_tables

TASKS = (*GLUE, *SQUAD, *RACE)
EXTRA = "from_hub needs the datasets library: pip install 'litebert[hub]'"
DEV_SHARE = 0.1  # of the training rows, where there is no dev data
BINS = 10  # of the targets of a regression, to have high and low ones in both train and dev


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
    if not read.train or read.dev or (whole and not from_hub):
        return read
    train, rest = split_dev(read.train, source=str(data) if isinstance(data, Path) else read.name)
    note = f"no dev data given: {len(rest):,} of {len(read.train):,} rows are set apart for it (seed 0)"
    return replace(read, train=train, dev={"dev": rest}, notes=(*read.notes, note))


def known_kind(word: str | None) -> Kind | None:
    """A kind of task by its name."""
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
        raise InputError(f"there is no file or folder '{data}'; check the name")
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
        return read_squad(task, data) if task in SQUAD else read_race(task, data)
    if task not in SQUAD:
        raise InputError(f"{data} is a file; data of {task} names the folder with its official files")
    splits = {"train": data, "dev": dev} if dev is not None else {"dev" if whole else "train": data}
    return _read_squad_files(task, splits)


def _read_squad_files(name: str, splits: Mapping[str, Path]) -> TaskData:
    notes: list[str] = []
    questions = {split: read_questions(path, notes) for split, path in splits.items()}
    return span_data(name, questions.get("train", ()), questions.get("dev", ()), notes)


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
    if is_squad_file(splits.get("train", splits.get("dev"))):
        return _read_squad_files(name, splits)
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


# --- the Hub


def hub_name(task: str) -> tuple[str, str | None]:
    """The data set that holds a named task, and its configuration."""
    if task in GLUE:
        return "nyu-mll/glue", task
    if task in SQUAD:
        return "rajpurkar/squad_v2" if task == "squad2" else "rajpurkar/squad", None
    return "ehovy/race", "all" if task == "race" else task.removeprefix("race-")


def _read_hub(task: str | None, data: Source | None, text: Names, label: Names, kind: Kind | None) -> TaskData:
    if task is not None:
        return _from_splits(task, _load(*hub_name(task)))
    if not isinstance(data, str | Path) or not str(data):
        raise InputError("from_hub needs task, or a data set's name as data (owner/set or owner/set:configuration)")
    name, _, configuration = str(data).partition(":")
    splits = _load(name, configuration or None)
    tables: dict[str, Table] = {}
    for theirs, rows in splits.items():
        ours = _split_name(theirs)
        if ours is not None and ours not in tables:
            tables[ours] = read_table(rows, name=f"{name} {theirs}")
    if "train" not in tables:
        raise InputError(f"{name} has no train split; it has {', '.join(splits)}")
    return task_from_tables(name.split("/")[-1], tables, text=text, label=label, kind=kind)


def _load(name: str, configuration: str | None) -> Mapping[str, Any]:
    """All splits of a data set."""
    try:
        import datasets
    except ImportError:
        raise InputError(EXTRA) from None
    try:
        loaded = datasets.load_dataset(name, configuration)
    except (OSError, ValueError, RuntimeError) as error:  # not found, no network, several configurations
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{name} could not be loaded from the Hub ({reason}); use local files as data") from None
    return dict(loaded)


def _from_splits(task: str, splits: Mapping[str, Any]) -> TaskData:
    """A named task from its splits on the Hub, or from a ``DatasetDict`` of them."""
    if task in GLUE:
        return glue_of_splits(task, splits)
    return squad_of_splits(task, splits) if task in SQUAD else race_of_splits(task, splits)


# --- a dev split where none is given


def split_dev(
    items: Sequence[Item], *, share: float = DEV_SHARE, seed: int = 0, source: str = "the data"
) -> tuple[tuple[Item, ...], ...]:
    """Train and dev, each in the order of ``items``: stratified by label, the same for the same seed.

    What belongs together stays together: rows of the same text, questions about one passage, passages of one article.
    A dev score over texts that were trained on would be a score of memory.
    """
    strata = _strata(items)
    groups: dict[Hashable, list[int]] = {}
    for index, key in enumerate(_group_keys(items)):
        groups.setdefault(key, []).append(index)
    members: dict[Hashable, list[list[int]]] = {}
    for group in groups.values():
        members.setdefault(strata[group[0]], []).append(group)
    draw = random.Random(seed)
    chosen: set[int] = set()
    owed = 0.0  # what earlier strata gave too little, so that the whole has its share
    for stratum in members.values():
        draw.shuffle(stratum)
        owed += share * sum(map(len, stratum))
        for group in stratum[:-1]:  # the last one stays, or a class would be tested that was never trained
            if len(group) <= owed + 0.5:
                chosen.update(group)
                owed -= len(group)
    if not chosen or len(chosen) == len(items):
        raise InputError(
            f"the {len(items)} training rows of {source} ({len(groups)} different texts) are too few to set some apart "
            "for dev; give more, or a file of their own as dev"
        )
    dev = tuple(item for index, item in enumerate(items) if index in chosen)
    return tuple(item for index, item in enumerate(items) if index not in chosen), dev


def _group_keys(items: Sequence[Item]) -> list[Hashable]:
    """What each item must stay together with."""
    by_title = len({item.title for item in items if isinstance(item, Question)}) > 1
    keys: list[Hashable] = []
    for item in items:
        texts = text_key(item)
        if isinstance(item, Example):
            keys.append(texts)
        elif isinstance(item, Question):
            keys.append(item.title if by_title else texts[0])
        else:
            keys.append(texts[0] or texts[1])
    return keys


def _strata(items: Sequence[Item]) -> list[Hashable]:
    """The label of each item; of numbers, in which tenth of them it is."""
    targets: list[Hashable] = [item.target if isinstance(item, Example) else None for item in items]
    numbers = [target for target in targets if isinstance(target, float)]
    if len(numbers) < len(targets):
        return targets
    order = sorted(range(len(numbers)), key=lambda index: numbers[index])
    place = {index: rank * BINS // len(order) for rank, index in enumerate(order)}
    return [place[index] for index in range(len(targets))]
