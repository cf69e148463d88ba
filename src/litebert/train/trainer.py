"""The one trainer, for pretraining, fine-tuning and distillation; what differs is the objective that is passed in.

It decides when to step, to score, to roll back and to end; ``Stepper`` takes the steps, and callbacks do all the rest:
saving, divergence, figures on screen and in files. The batches of a step follow from its position in the stream alone,
so a run that was killed continues as if nothing had happened.
"""

import logging
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from litebert.nn.network import Network
from litebert.parameters import format_duration
from litebert.runs import Status
from litebert.train import parallel, precision
from litebert.train.clock import Clock, StopSignal
from litebert.train.objective import Objective, Position, Stage, SumsOf
from litebert.train.parallel import Ranks
from litebert.train.settings import TrainSettings, rate_factor, value_at
from litebert.train.stepper import LogWindow, StepLosses, Stepper, mean_row, read_losses

if TYPE_CHECKING:
    from litebert.train.callbacks import Callback

log = logging.getLogger(__name__)

COMPILING_SHARE = 0.4  # of a budget; beyond it a run learns more in the whole of it without

# Figures on held-out text of the network in training, by the objective in force.
Evaluate = Callable[[SumsOf, Objective], Mapping[str, float]]


@dataclass
class TrainState:
    """Where a run is: everything a saved state holds besides weights, optimiser and random numbers."""

    step: int = 0
    tokens: int = 0
    flops: float = 0.0  # arithmetic of all ranks; counted where it bounds the run
    seconds: float = 0.0
    lead: float = 0.0  # of those, what passed before the first step was done (imports, compiling): not in the schedule
    rate_scale: float = 1.0  # lowered by rollbacks
    rollbacks: int = 0
    positions: dict[str, Position] = field(default_factory=dict)  # of each stream of batches, by its stages' name
    stage: int = 0  # number of the stage in force


@dataclass(frozen=True)
class TrainResult:
    """How a run ended."""

    status: Status
    step: int
    held_out: dict[str, float]
    notes: tuple[str, ...]


class Trainer:
    """A run. ``fit()`` trains to the end; ``for step in trainer:`` does the same, a step at a time.

    ``evaluate`` scores it on held-out text. ``begun`` is the monotonic clock when the command was given (None: when
    training begins), ``peak`` the operations a second that this rank's device can reach, where known.
    """

    def __init__(
        self,
        network: Network,
        stages: Sequence[Stage],
        settings: TrainSettings,
        callbacks: Sequence["Callback"] = (),
        *,
        ranks: Ranks | None = None,
        evaluate: Evaluate | None = None,
        begun: float | None = None,
        peak: float = 0.0,
    ) -> None:
        self.stages, self.settings, self.callbacks = list(stages), settings, list(callbacks)
        self.ranks = ranks or Ranks.alone(next(network.parameters()).device)
        self.evaluate, self.peak = evaluate, peak
        self.stepper = Stepper(network, stages, settings, self.ranks)
        self.state, self.clock, self.window = TrainState(), Clock(begun), LogWindow()
        self.stage: Stage | None = None  # the one in force, once training has begun
        self.progress_of_step = 0.0  # at the beginning of the step at hand, the same on every rank
        self.held_out: dict[str, float] = {}
        self.scored = -1  # the step of the last held-out score
        self.notes: list[str] = []
        self.trouble = ""  # why the run must roll back
        self.stop_reason = ""  # why the run should end before its bound
        self.result: TrainResult | None = None

    @property
    def network(self) -> Network:
        """The network in training."""
        return self.stepper.network

    def fit(self) -> TrainResult:
        """Train to the end of the bound, or until asked to stop."""
        for _ in self:
            pass
        assert self.result is not None
        return self.result

    def __iter__(self) -> Iterator[StepLosses]:
        """Train, giving each step as it is taken; leaving the loop early ends the run as Ctrl-C does.

        A step's losses are still on the device: reading ``step.loss`` waits for it.
        """
        for callback in self.callbacks:
            callback.on_start(self)
        self.clock.start(self.state.seconds)
        if self.settings.compiled:
            self._compile_stages()
        self.state.lead += self.clock.seconds() - self.state.seconds
        status: Status = "stopped"
        try:
            with StopSignal() as stop:
                status = yield from self._steps(stop)
        except GeneratorExit:
            self._end(status)
            raise
        self._end(status)

    def _end(self, status: Status) -> None:
        """Score once more and let the callbacks finish."""
        self.state.seconds = self.clock.seconds()
        # On a period of steps, a score out of turn would count, too.
        if status != "diverged" and (status != "stopped" or not self.settings.score_steps):
            self._score()
        self.result = TrainResult(status, self.state.step, self.held_out, tuple(self.notes))
        for callback in self.callbacks:
            callback.on_end(self, status)

    def _steps(self, stop: StopSignal) -> Generator[StepLosses, None, Status]:
        """Step after step to the end, and how it came to it."""
        next_held_out = self._next_held_out(self.progress())
        stream: Iterator[Any] | None = None
        warm, self.stage = False, None
        while True:
            self.state.seconds = self.clock.seconds()
            progress, stopping, may_score = self._agree(bool(stop))
            self.progress_of_step = progress
            current = self.stage_at(progress)
            ends = progress >= 1.0 or stopping or bool(self.stop_reason)
            if ends or self.stage is not current:  # figures of two stages do not mix, and the last ones are judged, too
                self.flush()
            if ends and not self.trouble:
                self.stage = current
                return "stopped" if stopping and progress < 1.0 and not self.stop_reason else "finished"
            if current.missing and not self.trouble:
                self.note(current.missing)
                return "stopped"
            taken = None
            if not self.trouble:
                if self.stage is not current:
                    for callback in self.callbacks:
                        callback.on_stage(self, current)
                    self.stage, self.state.stage = current, self.stages.index(current)
                    stream = self._stream(current)
                assert stream is not None
                taken = self._step(current, stream, progress)
            if not warm:  # the first step of a process compiles
                warm = True
                self.stepper.wait()
                self.state.lead += self.clock.seconds() - self.state.seconds
            if self.trouble:
                if not self._roll_back():
                    return "diverged"
                self.stage = None  # and the clock runs on: a rollback does not lengthen a budget
                continue
            for callback in self.callbacks:
                callback.on_update(self)
            every = self.settings.score_steps
            if self.state.step % every == 0 if every else progress >= next_held_out and may_score:
                self._score()
                next_held_out = self._next_held_out(progress)
            for callback in self.callbacks:
                callback.on_step(self)
            assert taken is not None
            yield taken

    def _compile_stages(self) -> None:
        """Compile what is still to come, so that no stage does while the clock runs."""
        progress = self.progress()
        ends = [*(stage.begin for stage in self.stages[1:]), math.inf]
        coming = [stage for stage, end in zip(self.stages, ends, strict=True) if end > progress and not stage.missing]
        coming = list({id(stage.objective): stage for stage in coming}.values())  # those of one objective share a graph
        for number, stage in enumerate(coming, 1):
            if self.ranks.first:
                log.info("compiling, part %d of %d: up to a minute the first time", number, len(coming))
            batches, _ = self.stepper.choose(stage, [next(self._stream(stage))])
            self.stepper.compile(stage, batches[0])
        took, budget = self.clock.seconds() - self.state.seconds, self.settings.bound.seconds
        if self.ranks.first and budget is not None and took > COMPILING_SHARE * (budget - self.state.seconds):
            self.note(
                f"starting and compiling took {format_duration(took)} of a budget of {format_duration(budget)}; give "
                "it longer, or --no-compile, which trains more slowly but begins at once"
            )

    def _agree(self, stop: bool) -> tuple[float, bool, bool]:
        """Progress, the wish to stop and whether there is time to score, the same on every rank: the first's clock."""
        progress = self.progress(self.clock.reserve(self.settings.bound.seconds))
        may_score = self.clock.may_score(self.state.seconds)
        if self.ranks.world == 1:
            return progress, stop, may_score
        first = self.ranks.first
        agreed, stops, scores = self.ranks.total([first * progress, float(stop), float(first and may_score)])
        return agreed, stops > 0, scores > 0

    def progress(self, reserve: float = 0.0) -> float:
        """How much of the run is done, from 0 to 1; ``reserve`` seconds count as gone."""
        return self.settings.bound.progress(self.state, reserve)

    def stage_at(self, progress: float) -> Stage:
        """The stage that is in force at some progress."""
        return max((stage for stage in self.stages if stage.begin <= progress), key=lambda stage: stage.begin)

    def _next_held_out(self, progress: float) -> float:
        every = self.settings.held_out_every
        return (math.floor(progress / every) + 1) * every if every else math.inf

    def _stream(self, stage: Stage) -> Iterator[Any]:
        start = self.state.positions.setdefault(stage.name, (0, 0))
        return iter(stage.source.stream(start, rank=self.ranks.rank, world=self.ranks.world, workers=1))

    def _step(self, stage: Stage, stream: Iterator[Any], progress: float) -> StepLosses:
        """One optimiser step."""
        state, window = self.state, self.window
        begun = time.monotonic()
        count = self.settings.micro_batches(progress)
        batches = [next(stream) for _ in range(count // self.ranks.world)]
        window.waited += time.monotonic() - begun
        batches, flops = self.stepper.choose(stage, batches)
        of_batch = value_at(progress, self.settings.batch_rates)
        rate = rate_factor(progress, self.settings.schedule) * of_batch * state.rate_scale
        losses = self.stepper.step(state.step + 1, stage, batches, rate)
        state.step += 1
        state.tokens += losses.tokens
        state.positions[stage.name] = stage.source.advance(state.positions[stage.name], count)
        window.steps.append(losses)
        if stage.flops and (self.peak or self.settings.bound.flops):
            flops += sum(map(stage.flops, batches))
            window.flops += flops if self.peak else 0.0
            state.flops += self.ranks.total([flops])[0] if self.settings.bound.flops else 0.0
        if state.step % self.settings.log_every == 0 or state.step <= 2:
            self.flush()
        return losses

    def flush(self) -> None:
        """Read the losses of the last steps (the one place where the host waits for the device) and report them."""
        window = self.window
        if not window.steps:
            return
        rows = read_losses(window.steps, self.ranks.total)
        for step, row in zip(window.steps, rows, strict=True):
            for callback in self.callbacks:
                callback.on_figures(self, step.step, row)
        line = {
            "step": self.state.step,
            "tokens": self.state.tokens,
            "seconds": self.state.seconds,
            "progress": self.progress(),
            **mean_row(rows),
            "rate": max(self.stepper.optimiser.rates().values()),
            **window.speed(self.peak),
        }
        for callback in self.callbacks:
            callback.on_log(self, line)
        self.window = LogWindow()

    def note(self, sentence: str) -> None:
        """Report something about the run that belongs in its result."""
        self.notes.append(sentence)
        if self.ranks.first:
            log.warning("%s", sentence)
        for callback in self.callbacks:
            callback.on_note(self, sentence)

    def stop(self, reason: str) -> None:
        """End the run after this step, as finished."""
        self.stop_reason = reason

    def _score(self) -> None:
        """Held-out figures, once a step."""
        if self.evaluate is None or self.scored == self.state.step:
            return
        self.scored = self.state.step
        objective = (self.stage or self.stages[0]).objective
        with self.clock.timing("score"):
            self.network.eval()
            with torch.no_grad(), precision.cast(self.settings.precision, self.ranks.device):
                self.held_out = dict(self.evaluate(self.stepper.sums, objective))
            self.network.train()
            for callback in self.callbacks:
                callback.on_score(self, self.held_out)

    def _roll_back(self) -> bool:
        """Whether some callback has put an earlier state in place."""
        trouble, self.trouble = self.trouble, ""
        self.scored = -1  # what comes again is scored again
        if not any(callback.on_trouble(self, trouble) for callback in self.callbacks):
            return False
        for callback in self.callbacks:
            callback.on_rollback(self)
        return True

    def state_dict(self) -> dict[str, Any]:
        """Everything that a run continues with, whole and on the CPU; all ranks must call this."""
        on_gpu = self.ranks.device.type == "cuda"
        cpu = self.ranks.of_all(torch.get_rng_state())
        cuda = self.ranks.of_all(torch.cuda.get_rng_state(self.ranks.device)) if on_gpu else None
        return {
            "train_state": asdict(self.state),
            "weights": parallel.full_weights(self.network),
            "optimiser": parallel.full_state(self.stepper.optimiser.state_dict()),
            "scaler": self.stepper.scaler.state_dict(),
            "random": {"world": self.ranks.world, "cpu": cpu, "cuda": cuda},
            "callbacks": {callback.name: callback.state_dict() for callback in self.callbacks if callback.name},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put a state back; a callback that it does not know stays as it is."""
        state = _upgraded(state)
        parallel.load_full_weights(self.network, state["weights"])
        self.stepper.optimiser.load_state_dict(state["optimiser"])
        if state["scaler"]:
            self.stepper.scaler.load_state_dict(state["scaler"])
        kept = state["train_state"]
        positions = {name: (epoch, index) for name, (epoch, index) in kept["positions"].items()}
        self.state = TrainState(**{**kept, "positions": positions})
        for callback in self.callbacks:
            if callback.name in state["callbacks"]:
                callback.load_state_dict(state["callbacks"][callback.name])
        self._set_random(state["random"])

    def _set_random(self, random: Mapping[str, Any]) -> None:
        """Continue this rank's random numbers; with another number of ranks, new ones by rank and step."""
        rank, world, device = self.ranks.rank, self.ranks.world, self.ranks.device
        # Before states had every rank's, they had the first's.
        cpu, cuda = ([kept] if isinstance(kept, torch.Tensor) else kept for kept in (random["cpu"], random["cuda"]))
        if len(cpu) != world or random["world"] != world:
            torch.manual_seed(hash((self.settings.seed, self.state.step, rank)) % 2**31)
            return
        torch.set_rng_state(cpu[rank])
        if cuda is not None and device.type == "cuda":
            torch.cuda.set_rng_state(cuda[rank], device)


def _upgraded(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """A state under the names of today; in version 0.1.0 it had a place, a guard and companions."""
    if "train_state" in state:
        return state
    callbacks = {**state["companions"], "guard": state["guard"], "saver": {"best": state["best"]}}
    return {**state, "train_state": state["place"], "callbacks": callbacks}
