"""A number for each text or pair."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from litebert.tasks.encoding import Inputs, Targets
from litebert.tasks.examples import Example, ItemPrediction, Prediction, TaskSpec
from litebert.tasks.kinds.base import Floats, Metric, TextKind
from litebert.tasks.metrics import mean_absolute_error, pearson, root_mean_squared_error, spearman

NUMBER = "score"  # what a number to predict is called


class Regress(TextKind):
    """Squared error."""

    name = "regress"
    described = "regression"
    problem = "regression"
    metrics: ClassVar[Mapping[str, Metric]] = {
        "pearson": lambda targets, found, _: pearson(targets, found),
        "spearman": lambda targets, found, _: spearman(targets, found),
        "mean_absolute_error": lambda targets, found, _: mean_absolute_error(targets, found),
        "root_mean_squared_error": lambda targets, found, _: root_mean_squared_error(targets, found),
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
