"""Watching over a run: has it diverged, or is it stuck at what word frequencies alone would give?

Both are told in a sentence. Divergence ends in a rollback; being stuck is the commonest complaint of people who
pretrain a model with shared layers, and is theirs to act on.
"""

import math

# A run has diverged when its losses are far above the lowest smoothed loss so far.
PATIENCE = 8  # steps in a row that must be far above
RISE = 0.25  # far above: by this share of the lowest loss,
LEAST_RISE = 0.5  # by this much,
NOISY_RISE = 4.0  # and by this many times the usual distance between one loss and the next
FIRST = 10  # steps before the lowest loss is taken
SMOOTHING = 0.9

# It is stuck when its masked-LM loss stays at what word frequencies alone give.
STUCK_AFTER = 0.35  # share of the run after which a loss at that level is called stuck
STUCK_MARGIN = 0.1  # how far below that level a loss must be, as a share of it
STUCK_FALL = 0.03  # a loss that falls by this share of the level in a tenth of the run is given time,
STUCK_LATE = 0.75  # until this share of the run is over
LOOK_EVERY = 0.1  # share of the run between looks at whether the masked-LM loss falls

State = dict[str, float | int | bool | None]  # plain numbers: JSON has no infinity


class Guard:
    """Told of every step, it says when the run has diverged, and nothing else."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the losses seen: call it where they are meant to change (a new loss, a deeper network)."""
        self._seen = 0
        self._smooth = 0.0
        self._last = 0.0
        self._noise = 0.0
        self._lowest = math.inf
        self._above = 0

    def observe(self, step: int, loss: float, gradient_norm: float | None = None) -> str | None:
        """A sentence if the run has diverged. Leave ``gradient_norm`` out of steps that loss scaling skipped."""
        if not math.isfinite(loss):
            return f"the loss is {loss} at step {step}"
        if gradient_norm is not None and not math.isfinite(gradient_norm):
            return f"the gradient is {gradient_norm} at step {step}"
        allowed = max(RISE * self._lowest, LEAST_RISE, NOISY_RISE * self._noise)
        if loss > self._lowest + allowed:  # never before the lowest loss is known: that is infinite
            # Losses far above teach neither the level nor the noise, or the alarm would move away with them.
            self._above += 1
            if self._above >= PATIENCE:
                return (
                    f"the loss has exploded: {loss:.3f} at step {step}, and for {self._above} steps far above "
                    f"the {self._lowest:.3f} that it had reached"
                )
            return None
        self._above = 0
        self._learn(loss)
        return None

    def _learn(self, loss: float) -> None:
        """Take a usual loss into the level, the noise and the lowest level."""
        # Plain means at first, so that the very first losses do not weigh for long.
        self._seen += 1
        self._smooth += max(1 - SMOOTHING, 1 / self._seen) * (loss - self._smooth)
        # Between neighbours, and slowly: a loss that climbs must not pass for a noisy one.
        distance = abs(loss - self._last) if self._seen > 1 else 0.0
        self._noise += max((1 - SMOOTHING) / 5, 1 / self._seen) * (distance - self._noise)
        self._last = loss
        if self._seen >= FIRST:
            self._lowest = min(self._lowest, self._smooth)

    def state_dict(self) -> State:
        """Everything it remembers."""
        return {
            "seen": self._seen,
            "smooth": self._smooth,
            "last": self._last,
            "noise": self._noise,
            "lowest": self._lowest if math.isfinite(self._lowest) else None,
            "above": self._above,
        }

    def load_state_dict(self, state: State) -> None:
        """Put it back."""
        self._seen, self._above = int(state["seen"] or 0), int(state["above"] or 0)
        self._smooth, self._last = float(state["smooth"] or 0), float(state["last"] or 0)
        self._noise = float(state["noise"] or 0)
        self._lowest = math.inf if state["lowest"] is None else float(state["lowest"])


class StuckWatch:
    """Told of every masked-LM loss, it says, once, that a run stays at the ``level`` of word frequencies alone.

    ``advice``: a sentence on what to do then.
    """

    def __init__(self, level: float, advice: str) -> None:
        self.level, self.advice = level, advice
        self._smooth: float | None = None
        self._looked: tuple[float, float] | None = None  # progress and that loss, less than a tenth of the run ago
        self._falling = True  # whether it fell in the tenth before
        self._said = False

    def observe(self, loss: float, progress: float) -> str | None:
        """A sentence if the run is stuck.

        A tenth of the chosen tokens are left as they are, so a model that knows frequencies and copies gets a tenth
        below the level. That is the second plateau people report (6.6 after 7.2), and is still not reading context.
        """
        if not math.isfinite(loss):
            return None
        before = loss if self._smooth is None else self._smooth
        self._smooth = SMOOTHING * before + (1 - SMOOTHING) * loss
        self._look(self._smooth, progress)
        if self._said or progress < STUCK_AFTER or min(self._smooth, loss) < self.level * (1 - STUCK_MARGIN):
            return None
        if self._falling and progress < STUCK_LATE:  # short runs leave the level late
            return None
        self._said = True
        return (
            f"after {progress:.0%} of the run the masked-LM loss is {self._smooth:.2f}, where word frequencies alone "
            f"give {self.level:.2f}: the model has not begun to use context. {self.advice}"
        )

    def _look(self, smooth: float, progress: float) -> None:
        """Once in a tenth of the run: is the loss falling?"""
        if self._looked is None:
            self._looked = (progress, smooth)
        elif progress - self._looked[0] >= LOOK_EVERY:
            self._falling = self._looked[1] - smooth > STUCK_FALL * self.level
            self._looked = (progress, smooth)

    def state_dict(self) -> State:
        """Everything it remembers."""
        at, loss = self._looked or (None, None)
        return {"smooth": self._smooth, "looked_at": at, "looked": loss, "falling": self._falling, "said": self._said}

    def load_state_dict(self, state: State) -> None:
        """Put it back."""
        smooth, at, loss = state["smooth"], state["looked_at"], state["looked"]
        self._smooth = None if smooth is None else float(smooth)
        self._looked = None if at is None or loss is None else (float(at), float(loss))
        self._falling, self._said = bool(state["falling"]), bool(state["said"])
