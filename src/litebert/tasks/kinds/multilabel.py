"""Any number of labels for each text or pair, none included."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from litebert.tasks.encoding import Inputs, Targets
from litebert.tasks.examples import Example, Item, ItemPrediction, Prediction, TaskSpec
from litebert.tasks.kinds.base import (
    Confusion,
    Floats,
    LabelScore,
    Metric,
    TextKind,
    entropy,
    label_score,
)
from litebert.tasks.metrics import LabelSet, exact_sets, macro_set_f1, micro_f1, set_f1


class Multilabel(TextKind):
    """Binary cross-entropy for each label, those above one half are predicted."""

    name = "multilabel"
    described = "several labels a text"
    problem = "multi_label_classification"
    metrics: ClassVar[Mapping[str, Metric]] = {
        "micro_f1": lambda targets, found, _: micro_f1(targets, found),
        "macro_f1": macro_set_f1,
        "exact_match": lambda targets, found, _: exact_sets(targets, found),
    }
    default_metrics = ("micro_f1", "macro_f1", "exact_match")
    item_measure = "F1 of an item"
    has_classes = True

    def _targets(self, found: Sequence[LabelSet], bounds: npt.NDArray[np.int64], num_labels: int) -> Targets:
        many = np.zeros((len(found), num_labels), np.float32)
        for row, target in enumerate(found):
            many[row, list(target)] = 1.0
        return Targets(bounds, values=many)

    def _decode_row(self, key: str, row: Floats) -> ItemPrediction:
        shares = 1 / (1 + np.exp(-row.astype(np.float64)))
        labels = tuple(int(label) for label in np.flatnonzero(shares > 0.5))
        return ItemPrediction(key=key, label=labels, probabilities=tuple(map(float, shares)))

    def item_score(self, item: Any, found: ItemPrediction) -> float:
        return set_f1(item.target, cast(LabelSet, found.label))

    def breakdown(
        self, labels: Sequence[str], items: Sequence[Item], found: Sequence[ItemPrediction]
    ) -> tuple[Confusion, tuple[LabelScore, ...]]:
        targets = [cast(LabelSet, cast(Example, item).target) for item in items]
        pairs = list(zip(targets, (cast(LabelSet, one.label) for one in found), strict=True))
        return (), tuple(
            label_score(
                name,
                sum(index in wanted and index in given for wanted, given in pairs),
                sum(index in wanted for wanted, _ in pairs),
                sum(index in given for _, given in pairs),
            )
            for index, name in enumerate(labels)
        )

    def chance_loss(self, items: Sequence[Example], inputs: Inputs, num_labels: int) -> float:
        counts = Counter(label for item in items for label in cast(LabelSet, item.target))
        shares = [counts[label] / len(items) for label in range(num_labels)]
        return float(np.mean([entropy((share, 1 - share)) for share in shares]))

    def label_text(self, label: Any, item: Any, labels: Sequence[str]) -> str:
        return ", ".join(labels[index] for index in label) or "none"

    def written(self, label: Any, item: Any, labels: Sequence[str]) -> Any:
        return [labels[index] for index in label]

    def probability_names(self, spec: TaskSpec) -> tuple[str, ...]:
        return spec.labels

    def present(self, item: Any, found: ItemPrediction, spec: TaskSpec) -> Prediction:
        names = tuple(spec.labels[index] for index in cast(LabelSet, found.label))
        return Prediction(label=names, probabilities=dict(zip(spec.labels, found.probabilities, strict=True)))
