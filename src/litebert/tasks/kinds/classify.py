"""One label of several for each text or pair."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

from litebert.tasks.encoding import Inputs
from litebert.tasks.examples import Example, Item, ItemPrediction, Prediction, TaskSpec
from litebert.tasks.kinds.base import (
    Confusion,
    Floats,
    HeadScores,
    LabelScore,
    Metric,
    TextKind,
    entropy,
    label_score,
    most_likely,
    softmax,
)
from litebert.tasks.metrics import accuracy, binary_f1, confusion, macro_f1, matthews


class Classify(TextKind):
    """Cross-entropy over the labels, softmax to decode."""

    name = "classify"
    described = "classification"
    problem = "single_label_classification"
    metrics: ClassVar[Mapping[str, Metric]] = {
        "accuracy": lambda targets, found, _: accuracy(targets, found),
        "f1": lambda targets, found, _: binary_f1(targets, found),
        "macro_f1": lambda targets, found, _: macro_f1(targets, found),
        "matthews": lambda targets, found, _: matthews(targets, found),
    }
    default_metrics = ("accuracy", "macro_f1", "matthews")
    item_measure = "accuracy"
    has_classes = True
    single_label = True

    def _decode_row(self, key: str, row: Floats) -> ItemPrediction:
        return most_likely(key, softmax(row))

    def breakdown(
        self, labels: Sequence[str], items: Sequence[Item], found: Sequence[ItemPrediction]
    ) -> tuple[Confusion, tuple[LabelScore, ...]]:
        targets = [cast(int, cast(Example, item).target) for item in items]
        counts = confusion(targets, [cast(int, one.label) for one in found], len(labels))
        table = tuple(tuple(row) for row in counts.tolist())
        given = [sum(row[index] for row in table) for index in range(len(labels))]
        return table, tuple(
            label_score(name, table[index][index], sum(table[index]), given[index]) for index, name in enumerate(labels)
        )

    def chance_loss(self, items: Sequence[Example], inputs: Inputs, num_labels: int) -> float:
        return entropy([count / len(items) for count in Counter(item.target for item in items).values()])

    def spread(self, scores: HeadScores, inputs: Inputs) -> tuple[float, bool]:
        table = scores.scores - scores.scores.mean(1, keepdims=True)  # what softmax does not see
        return float(table.std(0).mean()), len(set(table.argmax(1).tolist())) == 1

    def label_text(self, label: Any, item: Any, labels: Sequence[str]) -> str:
        return labels[label]

    def written(self, label: Any, item: Any, labels: Sequence[str]) -> Any:
        return labels[label] if labels else label

    def probability_names(self, spec: TaskSpec) -> tuple[str, ...]:
        return spec.labels

    def present(self, item: Any, found: ItemPrediction, spec: TaskSpec) -> Prediction:
        index = cast(int, found.label)
        shares = dict(zip(spec.labels, found.probabilities, strict=True))
        return Prediction(label=spec.labels[index], probability=found.probabilities[index], probabilities=shares)
