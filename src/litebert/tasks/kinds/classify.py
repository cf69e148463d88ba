"""One label of several for each text or pair."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from litebert.data.separated import Cell
from litebert.tasks.encoding import Inputs
from litebert.tasks.examples import Example, ItemPrediction, Prediction, TaskSpec
from litebert.tasks.kinds.base import (
    Floats,
    HeadScores,
    Metrics,
    TextKind,
    class_index,
    entropy,
    most_likely,
    present_chosen,
    softmax,
)
from litebert.tasks.metrics import accuracy, binary_f1, macro_f1, matthews


class Classify(TextKind):
    """Softmax over the labels."""

    name = "classify"
    described = "classification"
    problem = "single_label_classification"
    metrics: ClassVar[Metrics] = {"accuracy": accuracy, "f1": binary_f1, "macro_f1": macro_f1, "matthews": matthews}
    default_metrics = ("accuracy", "macro_f1", "matthews")
    item_measure = "accuracy"
    has_classes = True
    single_label = True

    def _decode_row(self, key: str, row: Floats) -> ItemPrediction:
        return most_likely(key, softmax(row))

    def chance_loss(self, items: Sequence[Example], inputs: Inputs, num_labels: int) -> float:
        return entropy([count / len(items) for count in Counter(item.target for item in items).values()])

    def spread(self, scores: HeadScores, inputs: Inputs) -> tuple[float, bool]:
        table = scores.scores - scores.scores.mean(1, keepdims=True)  # what softmax does not see
        return float(table.std(0).mean()), len(set(table.argmax(1).tolist())) == 1

    def label_text(self, label: Any, item: Any, labels: Sequence[str]) -> str:
        return labels[label]

    def written(self, label: Any, item: Any, labels: Sequence[str]) -> Any:
        return labels[label] if labels else label

    def present(self, item: Any, found: ItemPrediction, spec: TaskSpec) -> Prediction:
        return present_chosen(spec.labels, found)

    def read_label(self, cell: Cell, known: Mapping[str, int], item: Any, what: str) -> int:
        return class_index(cell, known, what)
