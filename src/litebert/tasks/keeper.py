"""Keeps the best model of a run: scores dev on the way, remembers the weights that scored best, ends a run that no
longer gets better."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from litebert.nn.network import Network
from litebert.tasks.encoding import Inputs
from litebert.tasks.examples import Item, ItemPrediction, TaskData
from litebert.tasks.kinds import KINDS
from litebert.tasks.metrics import IN_UNITS
from litebert.tasks.predicting import Predictor
from litebert.tasks.score import compute_metrics


@dataclass(frozen=True)
class DevPart:
    """Items to score with, encoded once."""

    name: str
    items: tuple[Item, ...]
    inputs: Inputs


class Keeper:
    """Scores ``predictor`` on dev. ``patience`` scores without a better one are enough; 0 is never enough."""

    def __init__(self, predictor: Predictor, data: TaskData, parts: Sequence[DevPart], *, patience: int) -> None:
        self.predictor, self.data, self.parts, self.patience = predictor, data, list(parts), patience
        self.best: float | None = None
        self.best_step = 0
        self.figures: dict[str, float] = {}  # of the best
        self.note = predictor.note  # as it was for the best
        self.weights: dict[str, Tensor] | None = None
        self._since = 0
        self.step: Callable[[], int] = lambda: 0
        self.enough: Callable[[str], None] = lambda _: None

    def score(self) -> dict[str, float]:
        """Dev figures of the network as it is."""
        figures, note = self.measure()
        value = self.main(figures)
        if self.best is None or value > self.best:
            self.best, self.best_step, self.figures, self.note, self._since = value, self.step(), figures, note, 0
            self.weights = {
                name: tensor.detach().clone() for name, tensor in self.predictor.network.state_dict().items()
            }
        else:
            self._since += 1
            if self.patience and self._since >= self.patience:
                self.enough(f"dev {self.data.metrics[0]} has not risen for {self._since} scores")
        return figures

    def measure(self) -> tuple[dict[str, float], Any]:
        """The figures of every part, and the note with the threshold that gives them."""
        found: dict[str, float] = {}
        losses = []
        for part in self.parts:
            said = self._said(part)
            metrics = compute_metrics(self.data, part.items, said)
            prefix = f"{part.name}_" if len(self.parts) > 1 else ""
            found |= {f"{prefix}{name}": value for name, value in metrics.items()}
            losses.append(dev_loss(self.data, part.items, said))
        if losses and all(math.isfinite(loss) for loss in losses):
            found = {"loss": float(np.mean(losses)), **found}
        return found, self.predictor.note

    def _said(self, part: DevPart) -> list[ItemPrediction]:
        """Predictions; where there may be no answer, with the threshold that is best for this part."""
        scores = self.predictor.scores(part.inputs)
        kind = KINDS[self.data.kind]
        self.predictor.note = kind.fitted(self.predictor.note, part.items, part.inputs, scores)
        return kind.decode(part.items, part.inputs, scores, self.predictor.note)

    def main(self, figures: Mapping[str, float]) -> float:
        """What is optimised: the first metric, the mean of it over the parts."""
        name = self.data.metrics[0]
        prefixes = [f"{part.name}_" for part in self.parts] if len(self.parts) > 1 else [""]
        mean = float(np.mean([figures[prefix + name] for prefix in prefixes]))
        return -mean if name in IN_UNITS else mean

    def put_back(self, network: Network) -> None:
        """The best weights back into the network."""
        if self.weights is not None:
            with torch.no_grad():
                for name, tensor in network.state_dict().items():
                    tensor.copy_(self.weights[name])
            self.predictor.note = self.note

    def state_dict(self) -> dict[str, Any]:
        """Everything it remembers, the best weights included."""
        weights = None if self.weights is None else {name: tensor.cpu() for name, tensor in self.weights.items()}
        return {
            "best": self.best,
            "best_step": self.best_step,
            "figures": self.figures,
            "null_threshold": self.note.null_threshold,
            "since": self._since,
            "weights": weights,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put it back."""
        self.best, self.best_step, self.figures = state["best"], state["best_step"], dict(state["figures"])
        self.note = replace(self.note, null_threshold=state["null_threshold"])
        self._since = state["since"]
        device = self.predictor.device
        weights = state["weights"]
        self.weights = None if weights is None else {name: tensor.to(device) for name, tensor in weights.items()}


def dev_loss(data: TaskData, items: Sequence[Item], found: Sequence[ItemPrediction]) -> float:
    """The mean loss of predictions where their probabilities tell it; NaN for spans and several labels."""
    losses = [KINDS[data.kind].item_loss(item, one) for item, one in zip(items, found, strict=True)]
    return float(np.mean(losses)) if losses else math.nan
