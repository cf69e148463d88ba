"""Any number of labels for each text or pair, none included."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from litebert.data.separated import Cell
from litebert.errors import InputError
from litebert.tasks.columns import SEPARATORS, Columns, TableRow, cell_labels, is_missing, label_text
from litebert.tasks.encoding import Inputs, Targets
from litebert.tasks.examples import Example, ItemPrediction, Prediction, TaskSpec
from litebert.tasks.kinds.base import Floats, Metrics, TextKind, class_index, entropy
from litebert.tasks.metrics import LabelSet, exact_sets, macro_set_f1, micro_f1, set_f1

FLAGS = {"1": True, "0": False, "true": True, "false": False, "yes": True, "no": False, "": False}


class Multilabel(TextKind):
    """A probability for each label; those above one half are predicted."""

    name = "multilabel"
    described = "several labels a text"
    problem = "multi_label_classification"
    metrics: ClassVar[Metrics] = {"micro_f1": micro_f1, "macro_f1": macro_set_f1, "exact_match": exact_sets}
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

    def chance_loss(self, items: Sequence[Example], inputs: Inputs, num_labels: int) -> float:
        counts = Counter(label for item in items for label in cast(LabelSet, item.target))
        shares = [counts[label] / len(items) for label in range(num_labels)]
        return float(np.mean([entropy((share, 1 - share)) for share in shares]))

    def label_text(self, label: Any, item: Any, labels: Sequence[str]) -> str:
        return ", ".join(labels[index] for index in label) or "none"

    def written(self, label: Any, item: Any, labels: Sequence[str]) -> Any:
        return [labels[index] for index in label]

    def present(self, item: Any, found: ItemPrediction, spec: TaskSpec) -> Prediction:
        names = tuple(spec.labels[index] for index in cast(LabelSet, found.label))
        return Prediction(label=names, probabilities=dict(zip(spec.labels, found.probabilities, strict=True)))

    def _target(self, row: TableRow, columns: Columns, known: Mapping[str, int]) -> LabelSet:
        """Names in one cell, or a column of 0 and 1 for each label."""
        if len(columns.labels) == 1:
            words = cell_labels(row.cells[columns.labels[0]], columns.separator)
        else:
            words = [name for name in columns.labels if _flag(row.cells[name], f"{row.place}: {name}")]
        return self.read_label(words, known, None, f"{row.place}: the label")

    def read_label(self, cell: Cell, known: Mapping[str, int], item: Any, what: str) -> LabelSet:
        separator = next((sign for sign in SEPARATORS if isinstance(cell, str) and sign in cell), "")
        return tuple(sorted({class_index(word, known, what) for word in cell_labels(cell, separator)}))


def _flag(cell: Cell, what: str) -> bool:
    """A cell that says whether a label holds."""
    word = "" if is_missing(cell) else label_text(cell).casefold()
    if word not in FLAGS:
        raise InputError(f"{what} is '{cell}' but a column of label=a,b,c holds 0 or 1")
    return FLAGS[word]
