"""Behaviour added to training from outside: saving, rolling back after divergence, noticing that a run is stuck.

A callback derives from ``Callback`` and overrides the hooks it needs; figures on screen and in files are callbacks,
too (``console``, ``metrics``, ``plot``). Hooks run in the order in which callbacks were given. On several
ranks those that save or judge belong on every rank, those that write figures on the first.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litebert.checkpoints.training import load_state, save_state
from litebert.errors import InputError
from litebert.nn.network import Network
from litebert.runs import Status
from litebert.train import parallel
from litebert.train.objective import Stage
from litebert.train.parallel import NOT_SHARED, Ranks

if TYPE_CHECKING:
    from litebert.train.trainer import Trainer

log = logging.getLogger(__name__)

ROLLBACK_FACTOR = 0.5  # of the learning rate, after each rollback

# A run has diverged when its losses are far above the lowest smoothed loss so far.
PATIENCE = 8  # steps in a row that must be far above
RISE = 0.25  # far above: by this share of the lowest loss,
MIN_RISE = 0.5  # by this much,
NOISY_RISE = 4.0  # and by this many times the usual distance between one loss and the next
FIRST = 10  # steps before the lowest loss is taken
SMOOTHING = 0.9

# It is stuck when its masked-LM loss stays at what word frequencies alone give.
STUCK_AFTER = 0.35  # share of the run after which a loss at that level is called stuck
STUCK_MARGIN = 0.1  # how far below that level a loss must be, as a share of it
STUCK_FALL = 0.03  # a loss that falls by this share of the level in a tenth of the run is given time,
STUCK_LATE = 0.75  # until this share of the run is over
LOOK_EVERY = 0.1  # share of the run between looks at whether the masked-LM loss falls


class Callback:
    """Does nothing; override what you need. One with a ``name`` and a ``state_dict`` is saved with the run."""

    name = ""  # under which its state is saved

    def on_start(self, trainer: "Trainer") -> None:
        """Training begins, at step 0 or, resumed, at ``trainer.state.step``."""

    def on_stage(self, trainer: "Trainer", stage: Stage) -> None:
        """The next step is the first of ``stage``; ``trainer.stage`` is still the one before, None in a new process."""

    def on_update(self, trainer: "Trainer") -> None:
        """The weights have changed; they have not been scored yet."""

    def on_step(self, trainer: "Trainer") -> None:
        """A step was taken; its losses may still be on the device."""

    def on_figures(self, trainer: "Trainer", step: int, figures: Mapping[str, float]) -> None:
        """The losses of a step were read: every step once, in order, some steps late."""

    def on_log(self, trainer: "Trainer", row: Mapping[str, float]) -> None:
        """A log line is due: means over the steps since the last one, with step, tokens, progress, speed."""

    def on_score(self, trainer: "Trainer", figures: Mapping[str, float]) -> None:
        """The network was scored on held-out text."""

    def on_note(self, trainer: "Trainer", sentence: str) -> None:
        """Somebody called ``trainer.note``; it is logged already."""

    def on_trouble(self, trainer: "Trainer", reason: str) -> bool:
        """``trainer.trouble`` was set; True if an earlier state was put in place, so that training can continue."""
        return False

    def on_rollback(self, trainer: "Trainer") -> None:
        """The run is back at ``trainer.state.step``: forget what came after it."""

    def on_end(self, trainer: "Trainer", status: Status) -> None:
        """Training has ended like this, the last score is in ``trainer.held_out``."""

    def state_dict(self) -> dict[str, Any]:
        """What must be saved with the run, as plain values and tensors."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put it back."""


class SaveStates(Callback):
    """Saves the run to ``run``/checkpoints every ``steps`` or ``seconds``, before each stage and when stopped.

    With ``ends`` also before the first step and after the last, so that there is always a state to roll back to. The
    last ``keep`` states stay, and the best by held-out loss. ``facts`` (shape, data, recipe) must be the same on
    resume; ``read_facts`` brings those of an older version up to date. States are whole, not sharded, so a run may
    continue with another number of ranks.
    """

    name = "saver"

    def __init__(
        self,
        run: Path,
        facts: Mapping[str, Any],
        *,
        keep: int = 2,
        seconds: float = 300.0,
        steps: int | None = None,
        ends: bool = True,
        read_facts: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
    ) -> None:
        self._read_facts = read_facts
        self.run, self.facts, self.keep, self.seconds, self.steps, self.ends = run, facts, keep, seconds, steps, ends
        self.best: float | None = None
        self._saved = 0.0  # on the clock

    def on_start(self, trainer: "Trainer") -> None:
        if trainer.state.step == 0 and self.ends:
            self.save(trainer)

    def on_stage(self, trainer: "Trainer", stage: Stage) -> None:
        if trainer.stage is not None:  # what changes now may be too much for the run: that should cost it little
            self.save(trainer)
        self._saved = time.monotonic()

    def on_step(self, trainer: "Trainer") -> None:
        if self._is_due(trainer):
            self.save(trainer)
            self._saved = time.monotonic()

    def on_end(self, trainer: "Trainer", status: Status) -> None:
        if status != "diverged" and (self.ends or status == "stopped"):
            self.save(trainer)

    def _is_due(self, trainer: "Trainer") -> bool:
        """On a period of steps or of the clock (the first rank's)."""
        if self.steps:
            return trainer.state.step % self.steps == 0
        since = time.monotonic() - self._saved
        return trainer.ranks.total([float(since >= self.seconds and trainer.ranks.first)])[0] > 0

    def save(self, trainer: "Trainer") -> None:
        """Write the state, unless the run is in trouble; all ranks must call this."""
        trainer.flush()
        if trainer.trouble:
            return
        with trainer.clock.timing("save"):
            loss = trainer.held_out.get("loss")
            is_best = loss is not None and (self.best is None or loss < self.best)
            if is_best:
                self.best = loss
            state = {"facts": self.facts, **trainer.state_dict()}
            if trainer.ranks.first:
                save_state(self.run, trainer.state.step, state, keep=self.keep, best=is_best)
            trainer.ranks.barrier()

    def restore(self, trainer: "Trainer") -> bool:
        """Put the last good state back; False where there is none. All ranks must call this."""
        state = self._last_state(trainer.ranks)
        if state is None:
            return False
        changed = changed_fact(self._read_facts(state["facts"]), self.facts)
        if changed:
            raise InputError(f"{self.run} was begun with {changed}; resume with the same, or begin a new run")
        trainer.load_state_dict(state)
        return True

    def restore_weights(self, network: Network, ranks: Ranks) -> None:
        """Put back the weights alone, those of the last good state, where there is one; all ranks must call this."""
        state = self._last_state(ranks)
        if state is not None:
            parallel.load_full_weights(network, state["weights"])

    def _last_state(self, ranks: Ranks) -> dict[str, Any] | None:
        """The state that the first rank finds, on every rank: a shared disk may show the others an older one."""
        found = load_state(self.run) if ranks.first else None
        step = ranks.from_first(None if found is None else found[0])
        if step is None:
            return None
        if not ranks.first:
            found = load_state(self.run, which=step)
        if found is None or found[0] != step:
            raise InputError(f"rank {ranks.rank} cannot read step {step:,} of {self.run}; {NOT_SHARED}")
        for note in found[2] if ranks.first else ():
            log.warning("%s", note)
        return found[1]

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.best = state["best"]


def changed_fact(before: Any, now: Any, name: str = "") -> str | None:
    """The first fact that differs, in words; what an older version did not keep, or kept as text, is ignored."""
    if isinstance(now, Mapping):
        known = before if isinstance(before, Mapping) else {}
        found = (changed_fact(known[key], value, f"{name} {key}".strip()) for key, value in now.items() if key in known)
        return next(filter(None, found), None)
    return None if before == now else f"{name} {before}, not {now}"


class DivergenceGuard(Callback):
    """Notices that a run has diverged and rolls it back to the last state of ``saver``, at most ``rollbacks`` times.

    Each time the learning rate is halved. Without a saver the run ends.
    """

    name = "guard"

    def __init__(self, saver: SaveStates | None = None, rollbacks: int = 3) -> None:
        self.saver, self.rollbacks = saver, rollbacks
        self.reset()

    def reset(self) -> None:
        """Forget the losses seen, where they are meant to change (a new loss, a deeper network)."""
        self._state: dict[str, Any] = {"seen": 0, "smooth": 0.0, "last": 0.0, "noise": 0.0, "lowest": None, "above": 0}

    def on_stage(self, trainer: "Trainer", stage: Stage) -> None:
        if trainer.stages.index(stage) != trainer.state.stage:  # the loss may jump, which is no divergence
            self.reset()

    def on_figures(self, trainer: "Trainer", step: int, figures: Mapping[str, float]) -> None:
        norm = figures["gradient_norm"]
        skipped = trainer.stepper.scaler.is_enabled() and not math.isfinite(norm)  # by loss scaling: no divergence
        trouble = self.observe(step, figures["loss"], None if skipped else norm)
        trainer.trouble = trainer.trouble or trouble or ""

    def on_trouble(self, trainer: "Trainer", reason: str) -> bool:
        before = trainer.state  # restoring puts an older one in its place
        if before.rollbacks >= self.rollbacks or not (self.saver and self.saver.restore(trainer)):
            trainer.note(f"{reason}; gave up after {before.rollbacks} rollbacks")
            return False
        state = trainer.state
        state.rollbacks, state.rate_scale = before.rollbacks + 1, before.rate_scale * ROLLBACK_FACTOR
        state.lead = before.lead  # that time has passed
        trainer.note(f"{reason}; went back to step {state.step} with the rate times {state.rate_scale:g}")
        return True

    def observe(self, step: int, loss: float, gradient_norm: float | None = None) -> str | None:
        """A sentence if the run has diverged. Leave ``gradient_norm`` out of steps that loss scaling skipped."""
        if not math.isfinite(loss):
            return f"the loss is {loss} at step {step}"
        if gradient_norm is not None and not math.isfinite(gradient_norm):
            return f"the gradient is {gradient_norm} at step {step}"
        state, lowest = self._state, self._state["lowest"]
        if lowest is not None and loss > lowest + max(RISE * lowest, MIN_RISE, NOISY_RISE * state["noise"]):
            # Losses far above teach neither the level nor the noise, or the alarm would move away with them.
            state["above"] += 1
            if state["above"] < PATIENCE:
                return None
            return (
                f"the loss has exploded: {loss:.3f} at step {step}, and for {state['above']} steps far above "
                f"the {lowest:.3f} that it had reached"
            )
        # Plain means at first, so that the very first losses do not weigh for long.
        state["above"], seen = 0, state["seen"] + 1
        state["smooth"] += max(1 - SMOOTHING, 1 / seen) * (loss - state["smooth"])
        # Between neighbours, and slowly: a loss that climbs must not pass for a noisy one.
        distance = abs(loss - state["last"]) if seen > 1 else 0.0
        state["noise"] += max((1 - SMOOTHING) / 5, 1 / seen) * (distance - state["noise"])
        state["seen"], state["last"] = seen, loss
        if seen >= FIRST:
            state["lowest"] = state["smooth"] if lowest is None else min(lowest, state["smooth"])
        return None

    def state_dict(self) -> dict[str, Any]:
        return dict(self._state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._state = dict(state)


class StuckWatch(Callback):
    """Notes, once, that the masked-LM loss stays at the ``level`` of word frequencies alone.

    That is the commonest complaint of people who pretrain a model with shared layers, and theirs to act on;
    ``advice`` is a sentence on how.
    """

    name = "stuck"

    def __init__(self, level: float, advice: str) -> None:
        self.level, self.advice = level, advice
        # The smoothed loss; progress and that loss at the last look; whether it fell between the last two looks
        self._state: dict[str, Any] = {"smooth": None, "looked_at": None, "looked": None, "falling": True}
        self._state["said"] = False  # whether the note was made

    def on_figures(self, trainer: "Trainer", step: int, figures: Mapping[str, float]) -> None:
        sentence = self.observe(figures["mlm_loss"], trainer.progress()) if "mlm_loss" in figures else None
        if sentence:
            trainer.note(sentence)

    def observe(self, loss: float, progress: float) -> str | None:
        """A sentence if the run is stuck.

        A tenth of the chosen tokens are left as they are, so a model that knows frequencies and copies gets a tenth
        below the level. That is the second plateau people report (6.6 after 7.2), and is still not reading context.
        """
        if not math.isfinite(loss):
            return None
        state = self._state
        before = loss if state["smooth"] is None else state["smooth"]
        smooth = state["smooth"] = SMOOTHING * before + (1 - SMOOTHING) * loss
        if state["looked_at"] is None:
            state["looked_at"], state["looked"] = progress, smooth
        elif progress - state["looked_at"] >= LOOK_EVERY:
            state["falling"] = state["looked"] - smooth > STUCK_FALL * self.level
            state["looked_at"], state["looked"] = progress, smooth
        if state["said"] or progress < STUCK_AFTER or min(smooth, loss) < self.level * (1 - STUCK_MARGIN):
            return None
        if state["falling"] and progress < STUCK_LATE:  # short runs leave the level late
            return None
        state["said"] = True
        return (
            f"after {progress:.0%} of the run the masked-LM loss is {smooth:.2f}, where word frequencies alone "
            f"give {self.level:.2f}: the model has not begun to use context. {self.advice}"
        )

    def state_dict(self) -> dict[str, Any]:
        return dict(self._state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._state = dict(state)
