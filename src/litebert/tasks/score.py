"""Items and their predictions to scores: the task's metrics, per label, confusion, by length, hard examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from litebert.errors import InputError
from litebert.tasks.checks import num_characters
from litebert.tasks.examples import Item, ItemPrediction, Kind, TaskData
from litebert.tasks.kinds import KINDS, LabelScore

NUM_LENGTHS = 5  # groups of equal size from the shortest to the longest items
SHOWN_CHARACTERS = 600  # of a hard example


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
    hardest: tuple[Hard, ...] = field(default=())

    @property
    def main(self) -> float:
        """The score that is optimised: the task's first metric."""
        return next(iter(self.metrics.values()))


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
    """Groups of about the same number of items, equal lengths never parted."""
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
    hard = []
    for index in order:
        if badness(index)[0] <= 0:
            continue
        item, one = items[index], found[index]
        text = item.readable
        hard.append(
            Hard(
                key=item.key,
                text=text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + " …",
                expected=kind.target_text(item, data.labels),
                predicted=kind.label_text(one.label, item, data.labels),
                probability=chances[index],
            )
        )
    return tuple(hard)
