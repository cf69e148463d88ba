"""The one training loop, for pretraining and fine-tuning alike; what differs is the objective that is passed in.

A step sums the loss of its micro-batches over all ranks and divides by what it counted in the whole batch, so any
number of ranks gives the same losses. The batches of a step follow from its position in the stream alone, so a run
that was killed goes on as if nothing had happened.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from litebert.nn.network import Network
from litebert.resident import return_large_blocks
from litebert.runs import Status
from litebert.train import parallel, precision
from litebert.train.guard import Guard
from litebert.train.lost import Lost, mean_row, read_losses
from litebert.train.objective import Learner, Objective, Source, allow_graphs
from litebert.train.optimisers import build_optimiser
from litebert.train.parallel import Ranks
from litebert.train.persistence import Saver
from litebert.train.place import Place
from litebert.train.recorded import Recorded
from litebert.train.recorded_update import RecordedUpdate
from litebert.train.schedules import rate_factor
from litebert.train.settings import TrainSettings
from litebert.train.stop import StopSignal
from litebert.train.watch import Watch

# The sums (loss, right) of every part of an objective over the tensors of a batch.
Sums = Callable[[Objective, Mapping[str, Tensor]], dict[str, tuple[Tensor, Tensor]]]
SCORING_SHARE = 0.05  # of the time so far that held-out scores may have taken


@dataclass(frozen=True)
class Stage:
    """A source of micro-batches and how to learn from them, from some progress on (a sequence length, say)."""

    name: str  # of its stream: stages of one name and source go on with the same batches
    begin: float  # progress at which this stage begins
    source: Source
    objective: Objective
    flops: Callable[[Any], float] | None = None  # arithmetic of a step on one micro-batch
    weights: Mapping[str, float] = field(default_factory=dict)  # of parts of the loss that differ from the settings'


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    status: Status
    step: int
    held_out: dict[str, float]
    notes: tuple[str, ...]


class Loop:
    """A run. ``evaluate`` scores it on held-out text by way of ``Sums``; ``saver`` and ``watch`` keep and show it."""

    def __init__(
        self,
        network: Network,
        stages: Sequence[Stage],
        settings: TrainSettings,
        ranks: Ranks,
        *,
        saver: Saver,
        watch: Watch | None,
        evaluate: Callable[[Sums], Mapping[str, float]] | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.network, self.stages, self.settings, self.ranks = network, list(stages), settings, ranks
        self.saver, self.watch, self.evaluate, self.say = saver, watch, evaluate, say
        network.encoder.checkpointing = settings.checkpointing
        network.encoder.narrow_stream(settings.narrow)
        if settings.checkpointing and ranks.device.type == "cpu":
            return_large_blocks()  # or the heap keeps what checkpointing saves
        network.train()
        # One module is spread over the ranks; the stages' objectives take turns in it.
        self.learner: Learner = Learner(network, self.stages[0].objective)
        if settings.compiled:
            allow_graphs(len(self.stages))
            self.learner.compile()
        self.spread = parallel.spread(self.learner, network, ranks, settings.sharded)
        self.optimiser = build_optimiser(network, settings.optimiser)
        self.update: Callable[[torch.amp.GradScaler, float], Tensor] = self.optimiser.update
        if settings.recorded and ranks.world == 1:
            self.spread = passes = Recorded(self.learner, self.spread, say)
            self.update = RecordedUpdate(self.optimiser, passes, say)
        self.scaler = precision.scaler(settings.precision, ranks.device)
        self.guard = Guard()
        self.place = Place()
        self.weights = dict(settings.weights)
        self.held_out: dict[str, float] = {}
        self.notes: list[str] = []
        self.enough = ""  # why the run should end before its bound; whoever watches it may say so
        self.observe: Callable[[int, Mapping[str, float]], None] = lambda step, row: None
        self.pending: list[Lost] = []
        self.unigram: float | None = None  # the loss of word frequencies alone, where that means something
        self.scored = -1  # the step of the last held-out score
        self.scoring = 0.0  # seconds spent on held-out text
        self.begun: float | None = None  # the clock when the command was given; None: when the loop begins
        self.took = {"start": 0.0, "score": 0.0, "save": 0.0}  # the most seconds that one of them took
        self.peak = 0.0  # operations a second that this rank's device can reach, where known
        self.flops = 0.0  # arithmetic of this rank since the last line
        self.waited, self.shown_tokens, self.shown_at = 0.0, 0, time.monotonic()

    def run(self) -> Result:
        """Train to the end of the bound, or until told to stop; the state is saved either way."""
        if self.place.step == 0 and self.settings.save_ends:
            self._save()  # there is always something to go back to
        started = (time.monotonic() if self.begun is None else self.begun) - self.place.seconds
        self.took["start"] = time.monotonic() - started - self.place.seconds
        if self.settings.compiled:
            self._compile_stages()
        self.place.lead += time.monotonic() - started - self.place.seconds
        last_save, next_held_out = time.monotonic(), self._next_held_out(self._progress())
        status: Status = "finished"
        stream, stage, warm = None, None, False
        with StopSignal() as stop:
            while True:
                self.place.seconds = time.monotonic() - started
                progress, stopping, may_score = self._agree(self._reserve(), bool(stop))
                current = max((s for s in self.stages if s.begin <= progress), key=lambda s: s.begin)
                self.learner.objective = current.objective
                if progress >= 1.0 or stopping or self.enough:
                    status = "stopped" if stopping and progress < 1.0 and not self.enough else "finished"
                    break
                trouble = None
                if stage is not current:
                    trouble = self._flush()  # figures of two stages do not mix
                    stage, stream = current, self._stream(current)
                assert stream is not None
                trouble = trouble or self._step(stage, stream, progress)
                if not warm:  # the first step of a process compiles
                    warm = True
                    if self.ranks.device.type == "cuda":
                        torch.cuda.synchronize()
                    self.place.lead += time.monotonic() - started - self.place.seconds
                if trouble:
                    if not self._roll_back(trouble):
                        status = "diverged"
                        break
                    stage = None  # and the clock runs on: a rollback does not lengthen a budget
                    continue
                now = time.monotonic()
                if self._score_is_due(progress >= next_held_out and may_score):
                    self._score()
                    next_held_out = self._next_held_out(progress)
                if self._save_is_due(now - last_save):
                    self._save()
                    last_save = time.monotonic()
        self.place.seconds = time.monotonic() - started
        if status != "diverged":
            if status != "stopped" or not self.settings.score_steps:  # by steps a score out of turn would count, too
                self._score()
            if self.settings.save_ends or status == "stopped":
                self._save()
            else:
                self._flush()
        if self.watch:
            self.watch.close(status)
        return Result(status, self.place.step, self.held_out, tuple(self.notes))

    def _compile_stages(self) -> None:
        """Run what is still to come once, its gradients thrown away, so that no stage compiles while the clock runs."""
        devices = [self.ranks.device] if self.ranks.device.type == "cuda" else []
        progress = self._progress()
        for number, stage in enumerate(self.stages):
            if self.stages[number + 1 : number + 2] and self.stages[number + 1].begin <= progress:
                continue
            self.learner.objective = stage.objective
            with torch.random.fork_rng(devices), precision.cast(self.settings.precision, self.ranks.device):
                parts = self.spread(stage.objective.tensors(next(self._stream(stage)), self.ranks.device))
                sum(part for part, _ in parts.values()).backward()
            self.optimiser.zero_grad()
        if devices:
            torch.cuda.synchronize()

    def _reserve(self) -> float:
        """Seconds of a budget that the end will need: the last score and state, then the model and the picture."""
        picture = 0.25 * self.took["start"]  # mostly imports, as at the start; the share was seen on a CPU
        return self.took["score"] + 2 * self.took["save"] + min(picture, 0.02 * (self.settings.bound.seconds or 0.0))

    def _agree(self, reserve: float, stop: bool) -> tuple[float, bool, bool]:
        """Progress, the wish to stop and whether there is time to score, the same on every rank: the first's clock."""
        progress = self._progress(reserve)
        may_score = self.scoring <= SCORING_SHARE * self.place.seconds
        if self.ranks.world == 1:
            return progress, stop, may_score
        first = self.ranks.first
        agreed, stops, scores = self.ranks.total([first * progress, float(stop), float(first and may_score)])
        return agreed, stops > 0, scores > 0

    def _progress(self, reserve: float = 0.0) -> float:
        place = self.place
        return self.settings.bound.progress(place.step, place.tokens, place.seconds + reserve, place.lead)

    def _next_held_out(self, progress: float) -> float:
        every = self.settings.held_out_every
        return (math.floor(progress / every) + 1) * every if every else math.inf

    def _stream(self, stage: Stage) -> Iterator[Any]:
        start = self.place.positions.setdefault(stage.name, (0, 0))
        return iter(stage.source.stream(start, rank=self.ranks.rank, world=self.ranks.world, workers=1))

    def _step(self, stage: Stage, stream: Iterator[Any], progress: float) -> str | None:
        """One optimiser step; a sentence if the run has diverged."""
        settings, device = self.settings, self.ranks.device
        begun = time.monotonic()
        count = settings.micro_batches(progress)
        batches = [next(stream) for _ in range(count // self.ranks.world)]
        waited = time.monotonic() - begun
        counted = [stage.objective.counts(batch) for batch in batches]
        names = list(counted[0])
        local = [float(sum(count[name] for count in counted)) for name in names]
        *totals, tokens = self.ranks.total([*local, float(sum(batch.num_tokens for batch in batches))])
        counts = dict(zip(names, totals, strict=True))
        self.optimiser.set_rate(rate_factor(progress, settings.schedule) * self.place.rate_scale)
        sums: dict[str, list[Tensor]] = {}
        for number, batch in enumerate(batches):
            last = number == len(batches) - 1
            with parallel.synchronising(self.spread, last), precision.cast(settings.precision, device):
                parts = self.spread(stage.objective.tensors(batch, device))
                # Data parallelism averages gradients over ranks, where we want their sum.
                loss = self.ranks.world * sum(
                    self._weight(stage, name) * part / max(counts[name], 1.0) for name, (part, _) in parts.items()
                )
                self.scaler.scale(loss).backward()
            for name, (part, right) in parts.items():
                sums.setdefault(name, []).append(torch.stack([part.detach().float(), right.float()]))
        norm = self.update(self.scaler, settings.clip)
        self.place.step += 1
        self.place.tokens += int(tokens)
        position = self.place.positions[stage.name]
        self.place.positions[stage.name] = stage.source.advance(position, count)
        summed = {name: torch.stack(parts).sum(0) for name, parts in sums.items()}
        weights = {name: self._weight(stage, name) for name in summed}
        self.pending.append(Lost(self.place.step, self.stages.index(stage), counts, weights, summed, norm))
        self.waited += waited
        if stage.flops and self.peak:
            self.flops += sum(map(stage.flops, batches))
        due = self.place.step % settings.log_every == 0 or self.place.step <= 2
        return self._flush() if due else None

    def _flush(self) -> str | None:
        """Read what the last steps lost (the one place where the host waits for the device), show it, judge it."""
        if not self.pending:
            return None
        trouble = None
        rows = read_losses(self.pending, self.ranks.total)
        for step, row in zip(self.pending, rows, strict=True):
            self._begin_stage(step.stage)
            norm = row["gradient_norm"]
            skipped = self.scaler.is_enabled() and not math.isfinite(norm)  # by loss scaling, which is no divergence
            trouble = trouble or self.guard.observe(step.step, row["loss"], None if skipped else norm)
            self._say_if_stuck(row)
            self.observe(step.step, row)
        self.pending.clear()
        self._show(rows)
        return trouble

    def _weight(self, stage: Stage, name: str) -> float:
        """What a part of the loss counts for."""
        return stage.weights.get(name, self.weights.get(name, 1.0))

    def _begin_stage(self, number: int) -> None:
        """Where a stage begins the loss may jump, which is no divergence."""
        if number != self.place.stage:
            self.place.stage = number
            self.guard.reset()

    def _say_if_stuck(self, row: Mapping[str, float]) -> None:
        if self.unigram is None or "mlm_loss" not in row:
            return
        sentence = self.guard.stuck(row["mlm_loss"], self.unigram, self._progress())
        if sentence:
            self.notes.append(sentence)
            self.say(sentence)

    def whole_weights(self) -> dict[str, Tensor]:
        """All weights, unsharded, on the CPU; all ranks must ask."""
        return parallel.whole_weights(self.network)

    def _show(self, rows: list[dict[str, float]]) -> None:
        """One line for the steps since the last one."""
        now = time.monotonic()
        tokens, seconds = self.place.tokens - self.shown_tokens, max(now - self.shown_at, 1e-9)
        if self.watch:
            extra = {"rate": max(self.optimiser.rates().values()), "waiting": self.waited / seconds}
            if self.flops:
                extra["mfu"] = self.flops / seconds / self.peak
            self.watch.step(
                {
                    "step": self.place.step,
                    "tokens": self.place.tokens,
                    "seconds": self.place.seconds,
                    "progress": self._progress(),
                    **mean_row(rows),
                    "tokens_per_second": tokens / seconds,
                    **extra,
                }
            )
        self.waited, self.flops, self.shown_tokens, self.shown_at = 0.0, 0.0, self.place.tokens, now

    def _score(self) -> None:
        """Held-out figures, once a step."""
        if self.evaluate is None or self.scored == self.place.step:
            return
        self.scored = self.place.step
        begun = time.monotonic()
        self.network.eval()
        with torch.no_grad(), precision.cast(self.settings.precision, self.ranks.device):
            self.held_out = dict(self.evaluate(self._sums))
        self.network.train()
        if self.watch:
            self.watch.held_out({"step": self.place.step, "tokens": self.place.tokens, **self.held_out})
        self.took["score"] = max(self.took["score"], time.monotonic() - begun)
        self.scoring += time.monotonic() - begun

    def _sums(self, objective: Objective, tensors: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
        """What the network loses on a batch. Not compiled, which would cost more than it saves, but by the shards."""
        before, self.learner.objective = self.learner.objective, objective
        run = self.spread if self.settings.sharded and self.ranks.world > 1 else self.learner.forward
        try:
            return run(tensors)
        finally:
            self.learner.objective = before

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
        if self._flush() is None:  # a state that has diverged is not worth keeping
            begun = time.monotonic()
            self.saver.save(self)
            self.took["save"] = max(self.took["save"], time.monotonic() - begun)

    def _roll_back(self, trouble: str) -> bool:
        """Go back to the last good state with a lower rate; False when that was done often enough."""
        rollbacks, rate_scale = self.place.rollbacks, self.place.rate_scale  # restoring puts older ones back
        if rollbacks >= self.settings.rollbacks or not self.saver.restore(self):
            self.notes.append(f"{trouble}; gave up after {rollbacks} rollbacks")
            self.say(self.notes[-1])
            return False
        self.place.rollbacks = rollbacks + 1
        self.place.rate_scale = rate_scale * self.settings.rollback_factor
        self.pending.clear()
        self.notes.append(
            f"{trouble}; went back to step {self.place.step} with the rate times {self.place.rate_scale:g}"
        )
        self.say(self.notes[-1])
        return True
