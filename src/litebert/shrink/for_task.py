"""The fewest layers for a task: candidates are dropped from the pretrained model, fine-tuned and scored on dev.

The search is ``tolerance``'s; here is what a score costs: a fine-tuning run. Every run is noted as it ends, so a search
that was stopped goes on where it was, down to the step of the run that was under way.
"""

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from litebert.durations import format_duration
from litebert.runs import MODEL_FOLDER, RunLock, update_run
from litebert.shrink.costs import inference_seconds, with_head
from litebert.shrink.drop import count_parameters, kept_plan, sharing
from litebert.shrink.strategies import Layers, Strategy, kept_of, ranges
from litebert.shrink.tolerance import Found, Progress, Search
from litebert.shrink.trials import Trials
from litebert.shrink.tuning import (
    TRIALS_FILE,
    TRIALS_FOLDER,
    USUAL,
    Tuning,
    Way,
    check_metric,
    comparable,
    keeping_rules,
    note_runs,
)
from litebert.tasks.examples import TaskData
from litebert.tasks.finetune import FinetuneSettings, Prepared, check_folder, prepare
from litebert.train.clock import StopSignal

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A fine-tuned model: what it costs on the machine at hand, and its scores, one for each seed."""

    layers: int
    parameters: int
    milliseconds: float  # of inference for one input, in batches
    scores: list[float]


@dataclass(frozen=True, kw_only=True)
class TaskReport:
    """What a search for a task found."""

    model: str
    task: str
    metric: str
    tolerance: float
    layers: int
    dropped: list[int]
    kept: list[int]
    before: Standing
    after: Standing
    found: Found
    sentences: list[str]

    def as_plain(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def shrink_for_task(
    settings: FinetuneSettings,
    data: TaskData,
    *,
    tolerance: float,
    seeds: Sequence[int],
    strategies: Sequence[Strategy] = USUAL,
    way: Way | None = None,
    say: Say = lambda _: None,
) -> TaskReport:
    """Search, leave the smallest fine-tuned model that is good enough in OUT/model, and say what was found."""
    check_metric(data)
    way = way or Way()
    check_folder(settings.out, settings.resume)
    prepared = prepare(settings, data)
    plan = prepared.source.network.config.encoder.plan
    settings.out.mkdir(parents=True, exist_ok=True)
    with RunLock(settings.out):
        note_runs(settings, comparable(settings, prepared, way), {"tolerance": tolerance, "seeds": list(seeds)})
        tuning = Tuning(settings, prepared, way)
        told = _Teller(data.metrics[0], tuning, say)
        trials = Trials(
            told.score, file=settings.out / TRIALS_FILE, same=lambda kept: (len(kept), kept_plan(plan, kept))
        )
        names = strategies if sharing(plan) != "all" else ("top",)  # all strategies are one
        keeping = keeping_rules(names, prepared, settings.device)
        search = Search(len(plan), keeping, trials, tolerance=tolerance, seeds=seeds, report=told)
        with StopSignal() as tuning.stop:
            found = search.run()
        kept = found.best.kept if found.best else tuple(range(1, len(plan) + 1))
        if found.best is not None:
            tuning.put_best(kept, seeds, settings.out / MODEL_FOLDER)
        shutil.rmtree(settings.out / TRIALS_FOLDER, ignore_errors=True)
        before, after = _standings(prepared, kept, trials, seeds, settings.device)
        report = TaskReport(
            model=settings.model,
            task=data.name,
            metric=data.metrics[0],
            tolerance=tolerance,
            layers=len(plan),
            dropped=list(kept_of(len(plan), kept)),
            kept=list(kept),
            before=before,
            after=after,
            found=found,
            sentences=found.sentences(tolerance),
        )
        update_run(settings.out, status="finished", result=report.as_plain())
    return report


def _standings(
    prepared: Prepared, kept: Layers, trials: Trials, seeds: Sequence[int], device: str
) -> tuple[Standing, Standing]:
    """All layers and those kept, side by side."""
    everything = tuple(range(1, prepared.source.network.config.encoder.num_layers + 1))
    networks = [with_head(prepared, layers) for layers in (everything, kept)]
    seconds = inference_seconds(networks, prepared, device)
    before, after = (
        Standing(
            layers=len(layers),
            parameters=count_parameters(network.config),
            milliseconds=1000 * each,
            scores=trials.of_seeds(layers, seeds),
        )
        for layers, network, each in zip((everything, kept), networks, seconds, strict=True)
    )
    return before, after


class _Teller:
    """Says each score and verdict, and throws away the models of candidates that cannot win any more."""

    def __init__(self, metric: str, tuning: Tuning, say: Say) -> None:
        self._metric, self._tuning, self._say = metric, tuning, say
        self._best = 0

    def score(self, kept: Layers, seed: int) -> float:
        score = self._tuning.score(kept, seed)
        self._say(f"layers {ranges(kept)}, seed {seed}: {self._metric} {score:.4f}")
        return score

    def __call__(self, progress: Progress) -> None:
        last = progress.last
        if last.fits:
            self._best = max(self._best, last.dropped)
        self._say(
            f"{last.strategy}, {last.dropped} dropped: {self._metric} {last.mean:.4f} ({last.seeds} "
            f"seed{'' if last.seeds == 1 else 's'}), a loss of {last.loss:.4f}: {last.reason}; at most {progress.left} "
            f"more to try, about {format_duration(progress.seconds_left)}"
        )
        depth = last.dropped + len(last.kept)
        for folder in (self._tuning.settings.out / TRIALS_FOLDER).glob("*/"):
            dropped = depth - len(folder.name.split("-seed-")[0].split("-"))
            lost = folder.name.startswith(f"{'-'.join(map(str, last.kept))}-seed-") and not last.fits
            if (lost or dropped < self._best) and not self._tuning.is_needed(folder):
                shutil.rmtree(folder)
