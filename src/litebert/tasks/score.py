"""Scores of a task: of a model's predictions, or of a file of them, for each split, and for each depth if asked.

Scores are the task's metrics, scores per label, the confusion matrix, scores by length and the hardest items. A file
of predictions, made by anyone, has one of three forms: GLUE's TSV (``index`` and ``prediction``), JSON lines with
``key`` and ``label``, or SQuAD's one JSON object of ids and texts. Labels are names, the official spelling of the task,
or indices.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from litebert.data.files import kind_of, parse_json, read_text
from litebert.data.separated import Cell
from litebert.data.tables import read_table
from litebert.errors import InputError, nearest
from litebert.tasks.checks import num_characters, seen_warning
from litebert.tasks.columns import label_text
from litebert.tasks.examples import Item, ItemPrediction, Kind, TaskData
from litebert.tasks.glue import GLUE
from litebert.tasks.kinds import KINDS, LabelScore

KEYS = ("key", "index", "id", "idx", "pairid", "example_id")
LABELS = ("label", "prediction", "labels", "predicted", "answer", "text", "score")
TOGETHER = "together"
NUM_LENGTHS = 5  # groups of equal size from the shortest to the longest items
SHOWN_CHARACTERS = 600  # of a hard example
Predict = Callable[[Sequence[Item], int | None], list[ItemPrediction]]  # items, depth


@dataclass(frozen=True, kw_only=True)
class LengthScore:
    """The score of items of ``shortest`` to ``longest`` characters."""

    shortest: int
    longest: int
    count: int
    score: float


@dataclass(frozen=True, kw_only=True)
class Hard:
    """An item the model is wrong about, or least sure of; ``probability`` is what it gave the truth, where known."""

    key: str
    text: str
    expected: str
    predicted: str
    probability: float | None = None


@dataclass(frozen=True, kw_only=True)
class Scores:
    """All that is known about the predictions for one split of a task; metrics are shares, 0 to 1, or in units."""

    part: str
    kind: Kind
    count: int
    metrics: Mapping[str, float]
    labels: tuple[str, ...] = ()
    confusion: tuple[tuple[int, ...], ...] = ()  # rows: true label, columns: prediction
    by_label: tuple[LabelScore, ...] = ()
    length_measure: str = ""
    by_length: tuple[LengthScore, ...] = ()
    hardest: tuple[Hard, ...] = ()

    @property
    def main(self) -> float:
        """The score that is optimised: the task's first metric."""
        return next(iter(self.metrics.values()))


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
    cut: int = 0  # texts that were longer than the model reads
    in_windows: int = 0  # and those that were read in several windows

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
    """The scores of a model, in full at its full depth and in brief at ``depths``; ``seen`` are prints of training."""
    parts = choose_parts(data, split)
    flattered = seen_warning(seen, (item for items in parts.values() for item in items))
    if flattered:
        data = replace(data, notes=(*data.notes, flattered))
    found = {part: predict(items, None) for part, items in parts.items()}
    everything = [item for items in parts.values() for item in items]
    by_depth = []
    for depth in depths:
        predicted = [one for items in parts.values() for one in predict(items, depth)]
        by_depth.append(DepthScore(depth=depth, metrics=compute_metrics(data, everything, predicted)))
    return _evaluation(data, model, parts, found, by_depth)


def in_order_of(found: Sequence[ItemPrediction], learnt: Sequence[str], labels: Sequence[str]) -> list[ItemPrediction]:
    """Predictions of a model that ``learnt`` the labels in another order, with indices into ``labels``.

    Models of others have the same names in an order, or a case, of their own. Where the names are others altogether
    (``LABEL_0``), the order is taken to be the same.
    """
    folded, wanted = ([name.casefold() for name in names] for names in (learnt, labels))
    if sorted(folded) != sorted(wanted) or folded == wanted:
        return list(found)
    place = [wanted.index(name) for name in folded]
    moved = []
    for one in found:
        several = isinstance(one.label, tuple)
        indices = sorted(place[index] for index in cast(tuple[int, ...], one.label if several else (one.label,)))
        shares = tuple(one.probabilities[place.index(index)] for index in range(len(one.probabilities)))
        moved.append(replace(one, label=tuple(indices) if several else indices[0], probabilities=shares))
    return moved


def evaluate_file(data: TaskData, path: Path, *, split: str | None = None) -> Evaluation:
    """The scores of a file of predictions."""
    parts = choose_parts(data, split)
    keys = [item.key for items in parts.values() for item in items]
    if len(set(keys)) < len(keys):
        names = " or ".join(parts)
        raise InputError(f"the keys of {names} are the same; choose the one that {path} is for with split={names}")
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
        scores.append(score_items(data, everything, [one for part in parts for one in found[part]], part=TOGETHER))
    every = [one for items in found.values() for one in items]
    return Evaluation(
        task=data.name,
        source=source,
        parts=tuple(scores),
        depths=tuple(depths),
        notes=data.notes,
        cut=sum(one.cut for one in every),
        in_windows=sum(one.windows > 1 for one in every),
    )


def read_predictions(path: Path, data: TaskData, items: Sequence[Item]) -> list[ItemPrediction]:
    """The predictions in a file, for ``items`` in whatever order."""
    if not path.is_file():
        raise InputError(f"there is no file '{path}'; check the name")
    known, kind = {item.key: item for item in items}, KINDS[data.kind]
    names = {str(index): index for index in range(len(data.labels))}  # of labels, as a file may spell them
    names |= {word: index for index, word in enumerate(GLUE[data.name].spelled if data.name in GLUE else ())}
    names |= {name: index for index, name in enumerate(data.labels)}
    found: dict[str, ItemPrediction] = {}
    for key, label, chances, place in _rows(path):
        if key in found:
            raise InputError(f"{place}: '{key}' is predicted a second time; are these predictions of several parts?")
        if key in known:
            found[key] = ItemPrediction(
                key=key,
                label=kind.read_label(label, names, known[key], f"{place}: the prediction"),
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
            content = parse_json(read_text(path), str(path))
        except InputError:
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


def _probabilities(cell: Cell, data: TaskData, place: str) -> tuple[float, ...]:
    if cell is None or cell == "":
        return ()
    values = [cell.get(name) for name in data.labels] if isinstance(cell, Mapping) else cell
    if not isinstance(values, list) or not all(isinstance(value, int | float) for value in values):
        raise InputError(f"{place}: the probabilities are not a list of numbers, nor one number for each label")
    return tuple(map(float, values))


# --- the scores of one split


def score_items(
    data: TaskData,
    items: Sequence[Item],
    predictions: Sequence[ItemPrediction],
    *,
    part: str = "dev",
    hardest: int = 10,
) -> Scores:
    """The scores of ``predictions``, which are matched with ``items`` by place where they are as many, else by key."""
    if not items:
        raise InputError(f"{data.name} has no {part} items to score")
    if not all(item.has_target for item in items):
        raise InputError(f"the items of {data.name} {part} have no answers to score against; choose another split")
    kind = KINDS[data.kind]
    found = _matched(items, predictions, part)
    each = [kind.item_score(item, one) for item, one in zip(items, found, strict=True)]
    confusion, by_label = kind.breakdown(data.labels, items, found)
    return Scores(
        part=part,
        kind=data.kind,
        count=len(items),
        metrics=compute_metrics(data, items, found),
        labels=data.labels,
        confusion=confusion,
        by_label=by_label,
        length_measure=kind.item_measure,
        by_length=_by_length(items, each),
        hardest=_hardest(data, items, found, each, hardest),
    )


def compute_metrics(data: TaskData, items: Sequence[Item], found: Sequence[ItemPrediction]) -> dict[str, float]:
    """The task's metrics, the one that is optimised first; ``found`` is in the order of ``items``."""
    return KINDS[data.kind].evaluate(data.metrics, items, found, len(data.labels))


def _matched(items: Sequence[Item], predictions: Sequence[ItemPrediction], part: str) -> list[ItemPrediction]:
    if [one.key for one in predictions] == [item.key for item in items]:
        return list(predictions)
    by_key = {one.key: one for one in predictions}
    missing = [item.key for item in items if item.key not in by_key]
    if missing:
        raise InputError(
            f"{len(missing):,} of {len(items):,} items of {part} have no prediction, first '{missing[0]}'; give one "
            "for each"
        )
    return [by_key[item.key] for item in items]


def _by_length(items: Sequence[Item], each: Sequence[float]) -> tuple[LengthScore, ...]:
    """Groups of about the same number of items, equal lengths never separated."""
    lengths = [num_characters(item) for item in items]
    order = sorted(range(len(items)), key=lambda index: lengths[index])
    groups: list[list[int]] = [[]]
    for place, index in enumerate(order):
        full = place * NUM_LENGTHS >= len(groups) * len(items)
        if full and lengths[order[place - 1]] != lengths[index]:
            groups.append([])
        groups[-1].append(index)
    return tuple(
        LengthScore(
            shortest=lengths[group[0]],
            longest=lengths[group[-1]],
            count=len(group),
            score=sum(each[index] for index in group) / len(group),
        )
        for group in groups
    )


def _hardest(
    data: TaskData, items: Sequence[Item], found: Sequence[ItemPrediction], each: Sequence[float], most: int
) -> tuple[Hard, ...]:
    """The worst first: by error, then by how sure the model was of something else."""
    kind = KINDS[data.kind]
    chances = [kind.target_probability(item, one) for item, one in zip(items, found, strict=True)]

    def badness(index: int) -> tuple[float, float]:
        error = each[index] if kind.in_units else 1.0 - each[index]
        chance = chances[index]
        return error, 0.0 if chance is None else -chance

    order = sorted(range(len(items)), key=badness, reverse=True)[:most]
    return tuple(
        Hard(
            key=items[index].key,
            text=text if len(text := items[index].readable) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + " …",
            expected=kind.target_text(items[index], data.labels),
            predicted=kind.label_text(found[index].label, items[index], data.labels),
            probability=chances[index],
        )
        for index in order
        if badness(index)[0] > 0
    )
