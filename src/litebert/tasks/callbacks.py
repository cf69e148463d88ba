"""What a fine-tuning run watches: the best weights so far by their dev score, and whether the model has collapsed.

A run has collapsed when the model gives every input the same scores, and its loss is that of chance. A model that has
not learnt yet is no collapse, though its loss is at chance, too: its scores still differ from one input to the next. So
what is watched is that difference, against what it was before the first step, on a few inputs that never change. Large
models with shared layers are known for this; too high a learning rate does it to any model.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from litebert.nn.network import Network
from litebert.tasks.encoding import Inputs
from litebert.tasks.examples import TaskData
from litebert.tasks.kinds import KINDS
from litebert.tasks.metrics import IN_UNITS
from litebert.tasks.predicting import Predictor
from litebert.tasks.prepare import DevPart
from litebert.train.callbacks import Callback
from litebert.train.objective import Objective, SumsOf
from litebert.train.trainer import Trainer

log = logging.getLogger(__name__)

PROBED = 64  # inputs that are looked at

MIN_STEPS = 5  # before which nothing is judged
FIRST = 0.04  # share of the run at which it is first judged,
EVERY = 0.02  # and how often from then on,
UNTIL = 0.6
AT_CHANCE = 0.97  # of the loss of chance, or more
SPREAD = 0.1  # of the first difference between inputs, or less
STUCK_AFTER = 0.3  # share of the run, beyond the warm-up, by which one answer for all inputs is a failure,
STUCK_STEPS = 100  # unless that is fewer steps than this,
FALLING = 0.01  # or the loss has fallen by this share since the last look
SMOOTHING = 0.9


class BestCheckpoint(Callback):
    """Scores ``predictor`` on dev and remembers the best weights.

    After ``patience`` scores without a better one the run ends; 0: never.
    """

    name = "keeper"  # as in states of version 0.1.0

    def __init__(
        self,
        predictor: Predictor,
        data: TaskData,
        parts: Sequence[DevPart],
        *,
        patience: int = 0,
        level: int = logging.INFO,
    ) -> None:
        self.predictor, self.data, self.parts, self.patience = predictor, data, list(parts), patience
        self.level = level  # of messages
        self.best: float | None = None
        self.best_step = 0
        self.figures: dict[str, float] = {}  # of the best
        self.note = predictor.note  # as it was for the best
        self.weights: dict[str, Tensor] | None = None
        self._since = 0

    def evaluate(self, _sums: SumsOf, _objective: Objective) -> dict[str, float]:
        """Dev figures of the network in training."""
        return self.measure()

    def on_score(self, trainer: Trainer, figures: Mapping[str, float]) -> None:
        value = self.main(figures)
        if self.best is None or value > self.best:
            self.best, self.best_step, self.figures = value, trainer.state.step, dict(figures)
            self.note, self._since = self.predictor.note, 0
            self.weights = {name: tensor.detach().clone() for name, tensor in trainer.network.state_dict().items()}
        else:
            self._since += 1
            if self.patience and self._since >= self.patience:
                trainer.stop(f"dev {self.data.metrics[0]} has not risen for {self._since} scores")
                log.log(self.level, "%s", trainer.stop_reason)

    def measure(self) -> dict[str, float]:
        """The figures of every part; where there may be no answer, with the threshold that is best for it."""
        kind, figures, losses = KINDS[self.data.kind], dict[str, float](), []
        for part in self.parts:
            scores = self.predictor.scores(part.inputs)
            self.predictor.note = kind.fitted(self.predictor.note, part.items, part.inputs, scores)
            found = kind.decode(part.items, part.inputs, scores, self.predictor.note)
            metrics = kind.evaluate(self.data.metrics, part.items, found, len(self.data.labels))
            figures |= {self._prefix(part) + name: value for name, value in metrics.items()}
            losses.append(np.mean([kind.item_loss(item, one) for item, one in zip(part.items, found, strict=True)]))
        return {"loss": float(np.mean(losses)), **figures} if np.isfinite(losses).all() else figures

    def _prefix(self, part: DevPart) -> str:
        return f"{part.name}_" if len(self.parts) > 1 else ""

    def main(self, figures: Mapping[str, float]) -> float:
        """What is optimised: the first metric, the mean of it over the parts."""
        name = self.data.metrics[0]
        mean = float(np.mean([figures[self._prefix(part) + name] for part in self.parts]))
        return -mean if name in IN_UNITS else mean

    def put_back(self, network: Network) -> None:
        """The best weights back into the network."""
        if self.weights is not None:
            with torch.no_grad():
                for name, tensor in network.state_dict().items():
                    tensor.copy_(self.weights[name])
            self.predictor.note = self.note

    def state_dict(self) -> dict[str, Any]:
        weights = None if self.weights is None else {name: tensor.cpu() for name, tensor in self.weights.items()}
        return {
            "best": self.best,
            "best_step": self.best_step,
            "figures": self.figures,
            "null_threshold": self.note.null_threshold,
            "since": self._since,
            "weights": weights,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.best, self.best_step, self.figures = state["best"], state["best_step"], dict(state["figures"])
        self.note = replace(self.note, null_threshold=state["null_threshold"])
        self._since = state["since"]
        device = self.predictor.device
        weights = state["weights"]
        self.weights = None if weights is None else {name: tensor.to(device) for name, tensor in weights.items()}


class CollapseGuard(Callback):
    """Ends an attempt that has collapsed, or, if it is the ``last`` one, only logs it."""

    name = "collapse"

    def __init__(
        self,
        predictor: Predictor,
        probes: Inputs,
        *,
        chance: float,
        steps: int,
        warmup: float,
        last: bool = False,
        level: int = logging.INFO,
    ) -> None:
        self.predictor, self.probes, self.chance, self.steps = predictor, probes, chance, steps
        self.stuck_from, self.last, self.level = warmup + STUCK_AFTER, last, level
        self.verdict = ""
        self._loss: float | None = None
        self._begun: float | None = None  # how much scores differed before the first step
        self._next = FIRST
        self._before = math.inf  # the loss at the last look

    def on_start(self, trainer: Trainer | None) -> None:
        if self._begun is None:
            self._begun = self._look()[0]

    def on_figures(self, trainer: Trainer, step: int, figures: Mapping[str, float]) -> None:
        verdict = self.observe(step, figures["task_loss"]) if "task_loss" in figures else ""
        if verdict and self.last:
            log.log(self.level, "%s; there are no restarts left, so training continues", verdict)
        elif verdict:
            trainer.stop(verdict)

    def observe(self, step: int, loss: float) -> str:
        """A sentence if the model has collapsed by this step, else nothing."""
        if math.isfinite(loss):
            self._loss = loss if self._loss is None else SMOOTHING * self._loss + (1 - SMOOTHING) * loss
        progress = step / self.steps
        early = progress < self._next or step < MIN_STEPS
        if self.verdict or early or progress > UNTIL or self.chance <= 0:
            return ""
        self._next = progress + EVERY
        falling = self._loss is not None and self._loss < (1 - FALLING) * self._before
        self._before = math.inf if self._loss is None else self._loss
        if self._loss is None or self._loss < AT_CHANCE * self.chance:
            return ""
        spread, constant = self._look()
        begun = self._begun or 0.0
        of_chance = f"the loss, {self._loss:.3f}, is that of chance ({self.chance:.3f})"
        if not math.isfinite(spread) or spread <= max(SPREAD * begun, 1e-6):
            self.verdict = f"collapsed: after {progress:.0%} of the run all inputs get the same scores, and {of_chance}"
        elif constant and not falling and progress >= self.stuck_from and step >= STUCK_STEPS:
            self.verdict = f"stuck: after {progress:.0%} of the run all inputs get one answer, and {of_chance}"
        return self.verdict

    def has_recovered(self) -> bool:
        """Whether the loss has left that of chance after all."""
        return self._loss is not None and self._loss < AT_CHANCE * self.chance

    def _look(self) -> tuple[float, bool]:
        """How much scores differ between inputs, and whether all get one label."""
        scores = self.predictor.scores(self.probes)
        return KINDS[self.predictor.note.kind].spread(scores, self.probes)

    def state_dict(self) -> dict[str, Any]:
        return {
            "loss": self._loss,
            "begun": self._begun,
            "next": self._next,
            "before": self._before if math.isfinite(self._before) else None,
            "verdict": self.verdict,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._loss, self._begun = state["loss"], state["begun"]
        self._next, self.verdict = state["next"], state["verdict"]
        self._before = math.inf if state["before"] is None else state["before"]
