"""Evaluate a task: predictions from a model, or from a file, to scores for each part, and for each depth if asked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from litebert.errors import InputError, nearest
from litebert.tasks.examples import Item, Prediction, TaskData
from litebert.tasks.predictions import read_predictions
from litebert.tasks.score import Scores, compute_metrics, has_target, score_items
from litebert.tasks.seen import warning

TOGETHER = "together"
Predict = Callable[[Sequence[Item], int | None], list[Prediction]]  # items, depth


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
        labelled = [parts for parts in named if all(has_target(item) for item in parts[wanted])]
        found = {wanted: (labelled or named)[0][wanted]}
    if not found:
        there = [name for name, parts in every.items() if parts]
        raise InputError(f"there is no {wanted} data of {data.name}; there is {', '.join(there)} (choose with --split)")
    for part, items in found.items():
        if not all(has_target(item) for item in items):
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
    flattered = warning(seen, (item for items in parts.values() for item in items))
    if flattered:
        data = replace(data, notes=(*data.notes, flattered))
    found = {part: predict(items, None) for part, items in parts.items()}
    by_depth = []
    for depth in depths:
        said = [one for items in parts.values() for one in predict(items, depth)]
        everything = [item for items in parts.values() for item in items]
        by_depth.append(DepthScore(depth=depth, metrics=compute_metrics(data, everything, said)))
    return _evaluation(data, model, parts, found, by_depth)


def in_order_of(found: Sequence[Prediction], learnt: Sequence[str], labels: Sequence[str]) -> list[Prediction]:
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


def _moved(one: Prediction, place: Sequence[int]) -> Prediction:
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
        raise InputError(f"the keys of {names} are the same, so say of which {path} is with --split {names}")
    found = {part: read_predictions(path, data, items) for part, items in parts.items()}
    return _evaluation(data, str(path), parts, found, ())


def _evaluation(
    data: TaskData,
    source: str,
    parts: dict[str, tuple[Item, ...]],
    found: dict[str, list[Prediction]],
    depths: Sequence[DepthScore],
) -> Evaluation:
    scores = [score_items(data, items, found[part], part=part) for part, items in parts.items()]
    if len(parts) > 1:
        everything = [item for items in parts.values() for item in items]
        said = [one for part in parts for one in found[part]]
        scores.append(score_items(data, everything, said, part=TOGETHER))
    return Evaluation(task=data.name, source=source, parts=tuple(scores), depths=tuple(depths), notes=data.notes)
