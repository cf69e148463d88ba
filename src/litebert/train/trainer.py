"""The one training loop, for pretraining and fine-tuning alike; what differs is the objective that is passed in.

It decides when to step, to score, to save, to go back and to end; ``Stepper`` takes the steps. The batches of a step
follow from its position in the stream alone, so a run that was killed goes on as if nothing had happened.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from litebert.durations import format_duration
from litebert.nn.network import Network
from litebert.runs import Status
from litebert.train import precision
from litebert.train.clock import Clock
from litebert.train.guard import Guard
from litebert.train.objective import Objective, Stage, SumsOf
from litebert.train.parallel import Ranks
from litebert.train.persistence import Saver
from litebert.train.place import Place
from litebert.train.schedules import rate_factor
from litebert.train.settings import TrainSettings
from litebert.train.stepper import Stepper
from litebert.train.stop import StopSignal
from litebert.train.stretch import Stretch, mean_row, read_losses
from litebert.train.watch import Watch

ROLLBACK_FACTOR = 0.5  # of the rate, after each rollback
COMPILING_SHARE = 0.4  # of a budget; beyond it there is more to learn in the whole of it without

# Figures on held-out text of the network in training, by the objective in force.
Evaluate = Callable[[SumsOf, Objective], Mapping[str, float]]


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    status: Status
    step: int
    held_out: dict[str, float]
    notes: tuple[str, ...]


class Loop:
    """A run. ``evaluate`` scores it on held-out text, ``saver`` and ``watch`` keep and show it.

    ``begun`` is the monotonic clock when the command was given (None: when the loop begins), ``peak`` the operations a
    second that this rank's device can reach, where known.
    """

    def __init__(
        self,
        network: Network,
        stages: Sequence[Stage],
        settings: TrainSettings,
        ranks: Ranks,
        *,
        saver: Saver,
        watch: Watch | None,
        evaluate: Evaluate | None = None,
        say: Callable[[str], None] = lambda _: None,
        begun: float | None = None,
        peak: float = 0.0,
    ) -> None:
        self.stages, self.settings, self.ranks = list(stages), settings, ranks
        self.saver, self.watch, self.evaluate, self.say, self.peak = saver, watch, evaluate, say, peak
        self.stepper = Stepper(network, stages, settings, ranks, say)
        self.guard, self.place, self.clock, self.stretch = Guard(), Place(), Clock(begun), Stretch()
        self.objective = self.stages[0].objective  # the one in force
        self.held_out: dict[str, float] = {}
        self.scored = -1  # the step of the last held-out score
        self.notes: list[str] = []
        self.trouble: str | None = None  # why the run must go back
        # Whoever watches over the run sees the figures of every step, and may say why it should end before its bound.
        self.observe: Callable[[int, Mapping[str, float]], None] = lambda step, row: None
        self.enough = ""

    def run(self) -> Result:
        """Train to the end of the bound, or until told to stop; the state is saved either way."""
        if self.place.step == 0 and self.settings.save_ends:
            self._save()  # there is always something to go back to
        self.clock.start(self.place.seconds)
        if self.settings.compiled:
            self._compile_stages()
        self.place.lead += self.clock.seconds() - self.place.seconds
        with StopSignal() as stop:
            status = self._train(stop)
        self.place.seconds = self.clock.seconds()
        if status != "diverged":
            if status != "stopped" or not self.settings.score_steps:  # by steps a score out of turn would count, too
                self._score()
            if self.settings.save_ends or status == "stopped":
                self._save()
        if self.watch:
            self.watch.close(status)
        return Result(status, self.place.step, self.held_out, tuple(self.notes))

    def _train(self, stop: StopSignal) -> Status:
        """Step after step to the end; how it came to it."""
        last_save, next_held_out = time.monotonic(), self._next_held_out(self.progress())
        stream, stage, warm = None, None, False
        while True:
            self.place.seconds = self.clock.seconds()
            progress, stopping, may_score = self._agree(bool(stop))
            current = max((s for s in self.stages if s.begin <= progress), key=lambda s: s.begin)
            self.objective = current.objective
            ends = progress >= 1.0 or stopping or bool(self.enough)
            if ends or stage is not current:  # figures of two stages do not mix, and the last ones are judged, too
                self._flush()
            if ends and not self.trouble:
                return "stopped" if stopping and progress < 1.0 and not self.enough else "finished"
            if not self.trouble:
                if stage is not current:
                    if stage:  # what changes now may be too much for the run: that should cost it little
                        self._save()
                        last_save = time.monotonic()
                    stage, stream = current, self._stream(current)
                assert stream is not None
                self._step(stage, stream, progress)
            if not warm:  # the first step of a process compiles
                warm = True
                self.stepper.wait()
                self.place.lead += self.clock.seconds() - self.place.seconds
            if self.trouble:
                if not self._roll_back():
                    return "diverged"
                stage = None  # and the clock runs on: a rollback does not lengthen a budget
                continue
            now = time.monotonic()
            if self._score_is_due(progress >= next_held_out and may_score):
                self._score()
                next_held_out = self._next_held_out(progress)
            if self._save_is_due(now - last_save):
                self._save()
                last_save = time.monotonic()

    def _compile_stages(self) -> None:
        """Compile what is still to come, so that no stage does while the clock runs."""
        progress = self.progress()
        ends = [*(stage.begin for stage in self.stages[1:]), math.inf]
        coming = [stage for stage, end in zip(self.stages, ends, strict=True) if end > progress]
        for number, stage in enumerate(coming, 1):
            if self.ranks.first:
                self.say(f"compiling, part {number} of {len(coming)}: up to a minute the first time")
            self.stepper.compile(stage, next(self._stream(stage)))
        took, budget = self.clock.seconds() - self.place.seconds, self.settings.bound.seconds
        if self.ranks.first and budget is not None and took > COMPILING_SHARE * (budget - self.place.seconds):
            self.note(
                f"starting and compiling took {format_duration(took)} of a budget of {format_duration(budget)}; give "
                "it longer, or --no-compile, which trains more slowly and at once"
            )

    def _agree(self, stop: bool) -> tuple[float, bool, bool]:
        """Progress, the wish to stop and whether there is time to score, the same on every rank: the first's clock."""
        progress = self.progress(self.clock.reserve(self.settings.bound.seconds))
        may_score = self.clock.may_score(self.place.seconds)
        if self.ranks.world == 1:
            return progress, stop, may_score
        first = self.ranks.first
        agreed, stops, scores = self.ranks.total([first * progress, float(stop), float(first and may_score)])
        return agreed, stops > 0, scores > 0

    def progress(self, reserve: float = 0.0) -> float:
        """How much of the run is done, from 0 to 1; ``reserve`` seconds count as gone."""
        return self.settings.bound.progress(self.place, reserve)

    def _next_held_out(self, progress: float) -> float:
        every = self.settings.held_out_every
        return (math.floor(progress / every) + 1) * every if every else math.inf

    def _stream(self, stage: Stage) -> Iterator[Any]:
        start = self.place.positions.setdefault(stage.name, (0, 0))
        return iter(stage.source.stream(start, rank=self.ranks.rank, world=self.ranks.world, workers=1))

    def _step(self, stage: Stage, stream: Iterator[Any], progress: float) -> None:
        """One optimiser step."""
        place, stretch = self.place, self.stretch
        begun = time.monotonic()
        count = self.settings.micro_batches(progress)
        batches = [next(stream) for _ in range(count // self.ranks.world)]
        stretch.waited += time.monotonic() - begun
        rate = rate_factor(progress, self.settings.schedule) * place.rate_scale
        lost = self.stepper.step(place.step + 1, stage, batches, rate)
        place.step += 1
        place.tokens += lost.tokens
        place.positions[stage.name] = stage.source.advance(place.positions[stage.name], count)
        stretch.steps.append(lost)
        if stage.flops and (self.peak or self.settings.bound.flops):
            flops = sum(map(stage.flops, batches))
            stretch.flops += flops if self.peak else 0.0
            place.flops += self.ranks.total([flops])[0] if self.settings.bound.flops else 0.0
        if place.step % self.settings.log_every == 0 or place.step <= 2:
            self._flush()

    def _flush(self) -> None:
        """Read what the last steps lost (the one place where the host waits for the device), show it, judge it."""
        stretch = self.stretch
        if not stretch.steps:
            return
        rows = read_losses(stretch.steps, self.ranks.total)
        for step, row in zip(stretch.steps, rows, strict=True):
            self._begin_stage(step.stage)
            norm = row["gradient_norm"]
            skipped = self.stepper.scaler.is_enabled() and not math.isfinite(
                norm
            )  # by loss scaling, which is no divergence
            self.trouble = self.trouble or self.guard.observe(step.step, row["loss"], None if skipped else norm)
            self.observe(step.step, row)
        if self.watch:
            self.watch.step(
                {
                    "step": self.place.step,
                    "tokens": self.place.tokens,
                    "seconds": self.place.seconds,
                    "progress": self.progress(),
                    **mean_row(rows),
                    "rate": max(self.stepper.optimiser.rates().values()),
                    **stretch.speed(self.peak),
                }
            )
        self.stretch = Stretch()

    def _begin_stage(self, number: int) -> None:
        """Where a stage begins the loss may jump, which is no divergence."""
        if number != self.place.stage:
            self.place.stage = number
            self.guard.reset()

    def note(self, sentence: str) -> None:
        """Say something of the run that its result is to tell, too."""
        self.notes.append(sentence)
        (self.watch.note if self.watch else self.say)(sentence)

    def _score(self) -> None:
        """Held-out figures, once a step."""
        if self.evaluate is None or self.scored == self.place.step:
            return
        self.scored = self.place.step
        with self.clock.timing("score"):
            self.stepper.network.eval()
            with torch.no_grad(), precision.cast(self.settings.precision, self.ranks.device):
                self.held_out = dict(self.evaluate(self.stepper.sums, self.objective))
            self.stepper.network.train()
            if self.watch:
                self.watch.held_out({"step": self.place.step, "tokens": self.place.tokens, **self.held_out})

    def _score_is_due(self, by_share: bool) -> bool:
        """On a period of steps, or of progress where that is left open."""
        steps = self.settings.score_steps
        return self.place.step % steps == 0 if steps else by_share

    def _save_is_due(self, since: float) -> bool:
        """On a period of the clock (the first rank's) or of steps."""
        if self.settings.save_steps:
            return self.place.step % self.settings.save_steps == 0
        return self.ranks.total([float(since >= self.settings.save_seconds and self.ranks.first)])[0] > 0

    def _save(self) -> None:
        self._flush()
        if not self.trouble:  # a state that has diverged is not worth keeping
            with self.clock.timing("save"):
                self.saver.save(self)

    def _roll_back(self) -> bool:
        """Go back to the last good state with a lower rate; False when that was done often enough."""
        trouble, self.trouble = self.trouble, None
        self.scored = -1  # what comes again is scored again
        before = self.place  # restoring puts an older one in its place
        if before.rollbacks >= self.settings.rollbacks or not self.saver.restore(self):
            self.note(f"{trouble}; gave up after {before.rollbacks} rollbacks")
            return False
        place = self.place
        place.rollbacks, place.rate_scale = before.rollbacks + 1, before.rate_scale * ROLLBACK_FACTOR
        place.lead = before.lead  # that time has passed
        self.note(f"{trouble}; went back to step {place.step} with the rate times {place.rate_scale:g}")
        return True
