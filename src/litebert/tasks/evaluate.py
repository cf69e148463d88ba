"""Evaluate a task: predictions from a model, or from a file, to scores for each split, and for each depth if asked.

A file of predictions, made by anyone, has one of three forms: GLUE's TSV (``index`` and ``prediction``), JSON lines
with ``key`` and ``label``, or SQuAD's one JSON object of ids and texts. Labels are names, the official spelling of the
task, or indices.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from litebert.data.files import kind_of, read_text
from litebert.data.separated import Cell
from litebert.data.tables import read_table
from litebert.errors import InputError, nearest
from litebert.tasks.checks import seen_warning
from litebert.tasks.columns import cell_labels, label_text, number_in
from litebert.tasks.examples import LETTERS, Choice, Item, ItemPrediction, Kind, TaskData
from litebert.tasks.glue import GLUE, official_index
from litebert.tasks.kinds import LabelScore
from litebert.tasks.score import Hard, Scores, compute_metrics, score_items

KEYS = ("key", "index", "id", "idx", "pairid", "example_id")
LABELS = ("label", "prediction", "labels", "predicted", "answer", "text", "score")
TOGETHER = "together"
Predict = Callable[[Sequence[Item], int | None], list[ItemPrediction]]  # items, depth


@dataclass(frozen=True, kw_only=True)
class DepthScore:
    """The metrics that a model gives when it stops at a depth, over all parts together."""

    depth: int
    metrics: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What is known about predictions for a task."""

    task: str
    source: str  # the model folder or the file of predictions
    parts: tuple[Scores, ...]
    depths: tuple[DepthScore, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def whole(self) -> Scores:
        """Everything that was scored, all splits together."""
        return self.parts[-1]

    @property
    def scores(self) -> dict[str, float]:
        """The official metrics, the one to optimise first."""
        return dict(self.whole.metrics)

    @property
    def per_label(self) -> dict[str, LabelScore]:
        """Precision, recall, F1 and number of items of each label."""
        return {one.name: one for one in self.whole.by_label}

    @property
    def confusion(self) -> tuple[tuple[int, ...], ...]:
        """How often each label (row) was predicted as each (column), in the order of ``labels``."""
        return self.whole.confusion

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels, in the order of the confusion matrix."""
        return self.whole.labels

    @property
    def hardest(self) -> tuple[Hard, ...]:
        """The rows it is wrong about, the worst first."""
        return self.whole.hardest

    def __str__(self) -> str:
        figures = ", ".join(f"{name} {value:.4f}" for name, value in self.scores.items())
        return f"{self.task}: {figures} ({self.whole.count:,} items)"


def choose_parts(data: TaskData, split: str | None) -> dict[str, tuple[Item, ...]]:
    """The items to score: of dev, or of the split or part that is named."""
    every = {"train": {"train": data.train} if data.train else {}, "dev": dict(data.dev), "test": dict(data.test)}
    wanted = split or "dev"
    found = every.get(wanted)
    if found is None:
        named = [parts for parts in (every["dev"], every["test"]) if wanted in parts]
        if not named:
            parts = {*every, *data.dev, *data.test}
            raise InputError(f"{data.name} has no split '{wanted}'{nearest(wanted, parts)}")
        labelled = [parts for parts in named if all(item.has_target for item in parts[wanted])]
        found = {wanted: (labelled or named)[0][wanted]}
    if not found:
        there = [name for name, parts in every.items() if parts]
        raise InputError(f"there is no {wanted} data of {data.name}; there is {', '.join(there)} (choose with split)")
    for part, items in found.items():
        if not all(item.has_target for item in items):
            raise InputError(f"{data.name} {part} has no labels to score against; its answers were never published")
    return found


def evaluate_model(
    data: TaskData,
    model: str,
    predict: Predict,
    *,
    split: str | None = None,
    depths: Sequence[int] = (),
    seen: Sequence[str] = (),
) -> Evaluation:
    """The scores of a model, in full at its full depth and in brief at ``depths``; ``seen``: prints of training."""
    parts = choose_parts(data, split)
    flattered = seen_warning(seen, (item for items in parts.values() for item in items))
    if flattered:
        data = replace(data, notes=(*data.notes, flattered))
    found = {part: predict(items, None) for part, items in parts.items()}
    by_depth = []
    for depth in depths:
        said = [one for items in parts.values() for one in predict(items, depth)]
        everything = [item for items in parts.values() for item in items]
        by_depth.append(DepthScore(depth=depth, metrics=compute_metrics(data, everything, said)))
    return _evaluation(data, model, parts, found, by_depth)


def in_order_of(found: Sequence[ItemPrediction], learnt: Sequence[str], labels: Sequence[str]) -> list[ItemPrediction]:
    """Predictions of a model that ``learnt`` the labels in another order, with indices into ``labels``.

    Models of others have the same names in an order, or a case, of their own. Where the names are others altogether
    (``LABEL_0``), the order is taken to be the same.
    """
    folded = [name.casefold() for name in learnt]
    wanted = [name.casefold() for name in labels]
    if sorted(folded) != sorted(wanted) or folded == wanted:
        return list(found)
    place = [wanted.index(name) for name in folded]
    return [_moved(one, place) for one in found]


def _moved(one: ItemPrediction, place: Sequence[int]) -> ItemPrediction:
    if isinstance(one.label, tuple):
        label: int | tuple[int, ...] = tuple(sorted(place[index] for index in one.label))
    else:
        assert isinstance(one.label, int)
        label = place[one.label]
    shares = tuple(one.probabilities[place.index(index)] for index in range(len(one.probabilities)))
    return replace(one, label=label, probabilities=shares)


def evaluate_file(data: TaskData, path: Path, *, split: str | None = None) -> Evaluation:
    """The scores of a file of predictions."""
    parts = choose_parts(data, split)
    keys = [item.key for items in parts.values() for item in items]
    if len(set(keys)) < len(keys):
        names = " or ".join(parts)
        raise InputError(f"the keys of {names} are the same, so say of which {path} is with split={names}")
    found = {part: read_predictions(path, data, items) for part, items in parts.items()}
    return _evaluation(data, str(path), parts, found, ())


def _evaluation(
    data: TaskData,
    source: str,
    parts: dict[str, tuple[Item, ...]],
    found: dict[str, list[ItemPrediction]],
    depths: Sequence[DepthScore],
) -> Evaluation:
    scores = [score_items(data, items, found[part], part=part) for part, items in parts.items()]
    if len(parts) > 1:
        everything = [item for items in parts.values() for item in items]
        said = [one for part in parts for one in found[part]]
        scores.append(score_items(data, everything, said, part=TOGETHER))
    return Evaluation(task=data.name, source=source, parts=tuple(scores), depths=tuple(depths), notes=data.notes)


def read_predictions(path: Path, data: TaskData, items: Sequence[Item]) -> list[ItemPrediction]:
    """The predictions in a file, for ``items`` in whatever order."""
    if not path.is_file():
        raise InputError(f"there is no file '{path}'")
    known = {item.key: item for item in items}
    found: dict[str, ItemPrediction] = {}
    for key, label, chances, place in _rows(path):
        if key in found:
            raise InputError(f"{place}: '{key}' is predicted a second time; are these predictions of several parts?")
        if key in known:
            found[key] = ItemPrediction(
                key=key,
                label=READERS[data.kind](label, data, known[key], place),
                probabilities=_probabilities(chances, data, place),
            )
    missing = [key for key in known if key not in found]
    if missing:
        raise InputError(
            f"{path} has no prediction for {len(missing):,} of {len(items):,} items, first '{missing[0]}'; give one "
            "for each, and check the split"
        )
    return [found[item.key] for item in items]


def _rows(path: Path) -> list[tuple[str, Cell, Cell, str]]:
    """Key, label, probabilities and place of every prediction."""
    if kind_of(path) == ".json":
        try:
            content = json.loads(read_text(path))
        except ValueError:
            content = None  # JSON lines under another name
        if isinstance(content, dict) and not {*content} & {"key", "label"}:
            return [(key, label, None, f"{path}, '{key}'") for key, label in content.items()]
    table = read_table(path)
    key, label = _named(table.columns, KEYS), _named(table.columns, LABELS)
    if key is None or label is None:
        raise InputError(f"{path} needs a column key (or index) and one label (or prediction), not {table.columns}")
    chances = table.column("probabilities") if "probabilities" in table.columns else [None] * len(table.rows)
    return [
        (label_text(name), cell, chance, table.place(row))
        for row, (name, cell, chance) in enumerate(zip(table.column(key), table.column(label), chances, strict=True))
    ]


def _named(columns: Sequence[str], names: Sequence[str]) -> str | None:
    folded = {name.casefold(): name for name in columns}
    return next((folded[name] for name in names if name in folded), None)


def _text(cell: Cell, data: TaskData, item: Item, place: str) -> str:
    return "" if cell is None else str(cell)


def _number(cell: Cell, data: TaskData, item: Item, place: str) -> float:
    number = number_in(cell)
    if number is None or not math.isfinite(number):
        raise InputError(f"{place}: the prediction is '{cell}', which is not a number")
    return number


def _label_set(cell: Cell, data: TaskData, item: Item, place: str) -> tuple[int, ...]:
    separator = next((sign for sign in ";|," if isinstance(cell, str) and sign in cell), "")
    return tuple(sorted({_index(word, data, item, place) for word in cell_labels(cell, separator)}))


def _index(cell: Cell, data: TaskData, item: Item, place: str) -> int:
    word = label_text(cell)
    if word in data.labels:
        return data.labels.index(word)
    official = official_index(GLUE[data.name], word) if data.name in GLUE else None
    if official is not None:
        return official
    if word.isdecimal() and int(word) < len(data.labels):
        return int(word)
    raise InputError(f"{place}: the prediction is '{word}' but must be one of {', '.join(data.labels)}")


def _option(cell: Cell, data: TaskData, item: Item, place: str) -> int:
    assert isinstance(item, Choice)
    word = label_text(cell)
    place_of = int(word) if word.isdecimal() else LETTERS.find(word.upper()) if len(word) == 1 else -1
    if not 0 <= place_of < len(item.options):
        raise InputError(f"{place}: the prediction is '{word}' but must be an option's letter, or its number from 0")
    return place_of


READERS: Mapping[Kind, Callable[[Cell, TaskData, Item, str], Any]] = {
    "classify": _index,
    "multilabel": _label_set,
    "regress": _number,
    "choice": _option,
    "span": _text,
}


def _probabilities(cell: Cell, data: TaskData, place: str) -> tuple[float, ...]:
    if cell is None or cell == "":
        return ()
    values = [cell.get(name) for name in data.labels] if isinstance(cell, Mapping) else cell
    if not isinstance(values, list) or not all(isinstance(value, int | float) for value in values):
        raise InputError(f"{place}: the probabilities are not a list of numbers, nor one number for each label")
    return tuple(map(float, values))
