"""A number for each text or pair."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from litebert.data.separated import Cell
from litebert.errors import InputError
from litebert.tasks.columns import number_in
from litebert.tasks.encoding import Inputs, Targets
from litebert.tasks.examples import Example, ItemPrediction, Prediction, TaskSpec
from litebert.tasks.kinds.base import Floats, Metrics, TextKind
from litebert.tasks.metrics import mean_absolute_error, pearson, root_mean_squared_error, spearman

NUMBER = "score"  # what a number to predict is called


class Regress(TextKind):
    """The score of the head is the number."""

    name = "regress"
    described = "regression"
    problem = "regression"
    metrics: ClassVar[Metrics] = {
        "pearson": pearson,
        "spearman": spearman,
        "mean_absolute_error": mean_absolute_error,
        "root_mean_squared_error": root_mean_squared_error,
    }
    default_metrics = ("pearson", "spearman", "mean_absolute_error")
    item_measure = "mean absolute error"
    in_units = True

    def _targets(self, found: Sequence[float], bounds: npt.NDArray[np.int64], num_labels: int) -> Targets:
        return Targets(bounds, values=np.asarray(found, np.float32))

    def head_labels(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        return labels or (NUMBER,)

    def _decode_row(self, key: str, row: Floats) -> ItemPrediction:
        return ItemPrediction(key=key, label=float(row[0]))

    def item_score(self, item: Any, found: ItemPrediction) -> float:
        return abs(item.target - float(cast(float, found.label)))

    def item_loss(self, item: Any, found: ItemPrediction) -> float:
        return float((cast(float, found.label) - item.target) ** 2)

    def chance_loss(self, items: Sequence[Example], inputs: Inputs, num_labels: int) -> float:
        return float(np.var(np.asarray([item.target for item in items], np.float64)))

    def label_text(self, label: Any, item: Any, labels: Sequence[str]) -> str:
        return f"{label:.3g}"

    def present(self, item: Any, found: ItemPrediction, spec: TaskSpec) -> Prediction:
        return Prediction(label=cast(float, found.label))

    def read_label(self, cell: Cell, known: Mapping[str, int], item: Any, what: str) -> float:
        return read_number(cell, what)


def read_number(cell: Cell, what: str) -> float:
    """The number in a cell; ``what`` says in a message where it is."""
    value = number_in(cell)
    if value is None or not math.isfinite(value):
        shown = "" if cell is None else cell
        raise InputError(f"{what} is '{shown}', which is not a number; correct or remove the row")
    return value
