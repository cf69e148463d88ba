"""Items and what a model said of them to scores: the task's metrics, who is taken for whom, lengths, hard examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from litebert.errors import InputError
from litebert.tasks.checks import num_characters
from litebert.tasks.examples import Choice, Example, Item, Kind, Prediction, Question, TaskData
from litebert.tasks.metrics import METRICS, LabelSet, confusion, set_f1
from litebert.tasks.squad_score import score_answer, score_answers

NUM_LENGTHS = 5  # groups of equal size from the shortest to the longest items
SHOWN_CHARACTERS = 600  # of a hard example
ITEM_MEASURE: Mapping[Kind, str] = {
    "classify": "accuracy",
    "choice": "accuracy",
    "multilabel": "F1 of an item",
    "span": "F1",
    "regress": "mean absolute error",
}


@dataclass(frozen=True, kw_only=True)
class LabelScore:
    """How well one label is found."""

    name: str
    precision: float
    recall: float
    f1: float
    count: int


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
    """All that is known about the predictions for one part of a task; metrics are shares, 0 to 1, or in units."""

    part: str
    kind: Kind
    count: int
    metrics: Mapping[str, float]
    labels: tuple[str, ...] = ()
    confusion: tuple[tuple[int, ...], ...] = ()  # rows: what is right; columns: what was said
    by_label: tuple[LabelScore, ...] = ()
    length_measure: str = ""
    by_length: tuple[LengthScore, ...] = ()
    hardest: tuple[Hard, ...] = field(default=())

    @property
    def main(self) -> float:
        """The score that is optimised: the task's first metric."""
        return next(iter(self.metrics.values()))


def score_items(
    data: TaskData, items: Sequence[Item], predictions: Sequence[Prediction], *, part: str = "dev", hardest: int = 10
) -> Scores:
    """The scores of ``predictions``, which are matched with ``items`` by place where they are as many, else by key."""
    if not items:
        raise InputError(f"{data.name} has no {part} items to score")
    if not all(has_target(item) for item in items):
        raise InputError(f"the items of {data.name} {part} have no answers to score against; choose another --split")
    found = _matched(items, predictions, part)
    each = [item_score(item, one) for item, one in zip(items, found, strict=True)]
    table: tuple[tuple[int, ...], ...] = ()
    by_label: tuple[LabelScore, ...] = ()
    if data.kind == "classify":
        targets, said = _classes(items, found)
        counts = confusion(targets, said, len(data.labels))
        table = tuple(tuple(row) for row in counts.tolist())
        by_label = _by_class(data.labels, table)
    elif data.kind == "multilabel":
        by_label = _by_set(data.labels, *_sets(items, found))
    return Scores(
        part=part,
        kind=data.kind,
        count=len(items),
        metrics=compute_metrics(data, items, found),
        labels=data.labels,
        confusion=table,
        by_label=by_label,
        length_measure=ITEM_MEASURE[data.kind],
        by_length=_by_length(items, each),
        hardest=_hardest(data, items, found, each, hardest),
    )


def compute_metrics(data: TaskData, items: Sequence[Item], found: Sequence[Prediction]) -> dict[str, float]:
    """The task's metrics, the one that is optimised first; ``found`` is in the order of ``items``."""
    if data.kind == "span":
        texts = {str(index): str(one.label) for index, one in enumerate(found)}
        renamed = [_with_key(cast(Question, item), str(index)) for index, item in enumerate(items)]
        scores = score_answers(renamed, texts)
        return {name: scores[name] for name in (*data.metrics, *(n for n in scores if n not in data.metrics))}
    targets = [cast(Example | Choice, item).target for item in items]
    said = [one.label for one in found]
    return {name: METRICS[data.kind][name](targets, said, len(data.labels)) for name in data.metrics}


def item_score(item: Item, found: Prediction) -> float:
    """How good one prediction is: 1 or 0, an F1, or (of a number) how far off it is."""
    if isinstance(item, Question):
        return score_answer(item, str(found.label)).f1
    if isinstance(item.target, tuple):
        return set_f1(item.target, cast(LabelSet, found.label))
    if isinstance(item.target, float):
        return abs(item.target - float(cast(float, found.label)))
    return float(item.target == found.label)


def has_target(item: Item) -> bool:
    """Whether it is known what is right."""
    return bool(item.answers) or item.impossible if isinstance(item, Question) else item.target is not None


def item_text(item: Item) -> str:
    """An item for a person to read."""
    if isinstance(item, Example):
        return item.first if item.second is None else f"{item.first}\n{item.second}"
    if isinstance(item, Question):
        return f"{item.question}\n{item.passage}"
    options = "  ".join(f"({letter}) {text}" for letter, text in zip("ABCDEFGH", item.options, strict=False))
    return "\n".join(text for text in (item.question, options, item.passage) if text)


def label_name(data: TaskData, item: Item, label: object) -> str:
    """A label as people say it."""
    if isinstance(label, tuple):
        return ", ".join(data.labels[index] for index in label) or "none"
    if isinstance(item, Choice):
        return f"({'ABCDEFGH'[cast(int, label)]}) {item.options[cast(int, label)]}"
    if data.kind == "classify":
        return data.labels[cast(int, label)]
    return f"{label:.3g}" if isinstance(label, float) else str(label) or "no answer"


def _with_key(question: Question, key: str) -> Question:
    return replace(question, key=key)


def _matched(items: Sequence[Item], predictions: Sequence[Prediction], part: str) -> list[Prediction]:
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


def _classes(items: Sequence[Item], found: Sequence[Prediction]) -> tuple[list[int], list[int]]:
    return [cast(int, cast(Example, item).target) for item in items], [cast(int, one.label) for one in found]


def _sets(items: Sequence[Item], found: Sequence[Prediction]) -> tuple[list[LabelSet], list[LabelSet]]:
    return [cast(LabelSet, cast(Example, item).target) for item in items], [cast(LabelSet, one.label) for one in found]


def _label_score(name: str, right: int, wanted: int, given: int) -> LabelScore:
    return LabelScore(
        name=name,
        precision=right / given if given else 0.0,
        recall=right / wanted if wanted else 0.0,
        f1=2 * right / (wanted + given) if wanted + given else 0.0,
        count=wanted,
    )


def _by_class(labels: Sequence[str], table: Sequence[Sequence[int]]) -> tuple[LabelScore, ...]:
    given = [sum(row[index] for row in table) for index in range(len(labels))]
    return tuple(
        _label_score(name, table[index][index], sum(table[index]), given[index]) for index, name in enumerate(labels)
    )


def _by_set(labels: Sequence[str], targets: Sequence[LabelSet], found: Sequence[LabelSet]) -> tuple[LabelScore, ...]:
    pairs = list(zip(targets, found, strict=True))
    return tuple(
        _label_score(
            name,
            sum(index in wanted and index in given for wanted, given in pairs),
            sum(index in wanted for wanted, _ in pairs),
            sum(index in given for _, given in pairs),
        )
        for index, name in enumerate(labels)
    )


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
    data: TaskData, items: Sequence[Item], found: Sequence[Prediction], each: Sequence[float], most: int
) -> tuple[Hard, ...]:
    """The worst first: by error, then by how sure the model was of something else."""
    chances = [_chance(item, one) for item, one in zip(items, found, strict=True)]

    def badness(index: int) -> tuple[float, float]:
        error = each[index] if data.kind == "regress" else 1.0 - each[index]
        chance = chances[index]
        return error, 0.0 if chance is None else -chance

    order = sorted(range(len(items)), key=badness, reverse=True)[:most]
    hard = []
    for index in order:
        if badness(index)[0] <= 0:
            continue
        item, one = items[index], found[index]
        text = item_text(item)
        hard.append(
            Hard(
                key=item.key,
                text=text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + " …",
                expected=_expected(data, item),
                predicted=label_name(data, item, one.label),
                probability=chances[index],
            )
        )
    return tuple(hard)


def _expected(data: TaskData, item: Item) -> str:
    if isinstance(item, Question):
        return " / ".join(dict.fromkeys(answer.text for answer in item.answers)) or "no answer"
    return label_name(data, item, item.target)


def _chance(item: Item, found: Prediction) -> float | None:
    """What the model gave the right class, where it says so."""
    target = None if isinstance(item, Question) else item.target
    if isinstance(target, int) and target < len(found.probabilities):
        return found.probabilities[target]
    return None
