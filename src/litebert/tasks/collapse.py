"""Noticing early that a run has collapsed: whatever the input, the model says the same, and its loss is that of chance.

A model that has not learnt yet is no collapse, though its loss is at chance, too: its scores still differ from one
input to the next. So what is watched is that difference, against what it was before the first step, on a few inputs
that never change. Large models with shared layers are known for this; a rate too high does it to any model.
"""

import math
from typing import Any

from litebert.tasks.encoding import Inputs
from litebert.tasks.kinds import KINDS
from litebert.tasks.predicting import Predictor

PROBED = 64  # inputs that are looked at

LEAST_STEPS = 5  # before which nothing is judged
FIRST = 0.04  # share of the run at which it is first judged,
EVERY = 0.02  # and how often from then on,
UNTIL = 0.6
AT_CHANCE = 0.97  # of the loss of chance, or more
SPREAD = 0.1  # of the first difference between inputs, or less
STUCK_AFTER = 0.3  # share of the run, beyond the warm-up, by which one answer for all is a failure,
STUCK_STEPS = 100  # unless that is fewer steps than this,
FALLING = 0.01  # or the loss has fallen by this share since the last look
SMOOTHING = 0.9


class CollapseWatch:
    """Told of every step's loss, it looks at the model now and then, and says when it has collapsed."""

    def __init__(self, predictor: Predictor, probes: Inputs, *, chance: float, steps: int, warmup: float) -> None:
        self.predictor, self.probes, self.chance, self.steps = predictor, probes, chance, steps
        self.stuck_from = warmup + STUCK_AFTER
        self.verdict = ""
        self._loss: float | None = None
        self._begun: float | None = None
        self._next = FIRST
        self._before = math.inf  # the loss at the last look

    def begin(self) -> None:
        """Look at the model before the first step."""
        if self._begun is None:
            self._begun = self._look()[0]

    def observe(self, step: int, loss: float) -> str:
        """A sentence if the model has collapsed; else nothing."""
        if math.isfinite(loss):
            self._loss = loss if self._loss is None else SMOOTHING * self._loss + (1 - SMOOTHING) * loss
        progress = step / self.steps
        early = progress < self._next or step < LEAST_STEPS
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
        """Everything it remembers."""
        return {
            "loss": self._loss,
            "begun": self._begun,
            "next": self._next,
            "before": self._before if math.isfinite(self._before) else None,
            "verdict": self.verdict,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put it back."""
        self._loss, self._begun = state["loss"], state["begun"]
        self._next, self.verdict = state["next"], state["verdict"]
        self._before = math.inf if state["before"] is None else state["before"]
