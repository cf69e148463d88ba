"""The tables of Poor Man's BERT for a model and tasks: every strategy by every number of layers, over several seeds.

Each task has a folder of its own in which every run is noted as it ends, so a comparison that was stopped resumes.
Times are of the machine at hand. No run ends early, so that those of one task take equally many steps.
"""

import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace

from litebert.durations import format_duration
from litebert.runs import RunLock, update_run
from litebert.shrinking.drop import count_parameters, kept_plan, sharing
from litebert.shrinking.search import Trials
from litebert.shrinking.strategies import FIXED, Layers, Strategy, check_count, kept_of
from litebert.shrinking.tuning import (
    TRIALS_FILE,
    TRIALS_FOLDER,
    DropSchedule,
    Tuning,
    check_metric,
    comparable,
    inference_seconds,
    keeping_rules,
    note_runs,
    with_head,
)
from litebert.tasks.examples import TaskData
from litebert.tasks.finetune import FinetuneSettings, Prepared, check_folder, prepare
from litebert.train.clock import StopSignal
from litebert_lab.compare.comparison import Cell, Comparison, Cost, TaskTable

COMPARED: tuple[Strategy, ...] = ("top", "bottom", "even", "odd", "symmetric", "contribution")

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """What is compared."""

    drops: tuple[int, ...]
    strategies: tuple[Strategy, ...]
    seeds: tuple[int, ...]
    way: DropSchedule


def compare(settings: FinetuneSettings, tasks: Sequence[tuple[TaskData, FinetuneSettings]], grid: Grid) -> Comparison:
    """Measure everything that is not known yet. Every task comes with settings whose recipe is for it."""
    if not settings.resume or settings.out.is_file():  # with resume, a comparison may also begin
        check_folder(settings.out, settings.resume)
    for data, _ in tasks:
        check_metric(data)
    with RunLock(settings.out):
        asked = {"tasks": [data.name for data, _ in tasks], "drops": list(grid.drops), "seeds": list(grid.seeds)}
        note_runs(settings, {"model": settings.model}, asked | {"strategies": list(grid.strategies)})
        tables = [_compare_task(one, data, grid) for data, one in tasks]
        found = Comparison(model=settings.model, device=settings.device, way=grid.way.as_plain(), tasks=tables)
        update_run(settings.out, status="finished", result={"tasks": {one.task: one.whole.mean for one in tables}})
    return found


def _compare_task(settings: FinetuneSettings, data: TaskData, grid: Grid) -> TaskTable:
    """The table of one task."""
    settings.out.mkdir(parents=True, exist_ok=True)
    prepared = prepare(settings, data)
    network = prepared.source.network
    plan = network.config.encoder.plan
    for count in grid.drops:
        check_count(len(plan), count)
    settings = replace(settings, resume=(settings.out / "run.json").is_file())
    note_runs(settings, comparable(settings, prepared, grid.way), {"seeds": list(grid.seeds)})
    tuning = Tuning(settings, prepared, grid.way)
    trials = Trials(
        tuning.score,
        file=settings.out / TRIALS_FILE,
        same=lambda kept: (len(kept), kept_plan(plan, kept)),
        is_begun=tuning.is_begun,
    )
    rules = keeping_rules(grid.strategies, prepared, settings.device)
    everything = tuple(range(1, len(plan) + 1))
    layers = dict.fromkeys([everything, *(rules[name](count) for count in grid.drops for name in grid.strategies)])
    with StopSignal() as tuning.stop:
        _measure([(kept, seed) for kept in layers for seed in grid.seeds], trials, tuning)
    whole = Cell.of(everything, trials.of_seeds(everything, grid.seeds))
    cells = {
        name: {
            count: Cell.of(rules[name](count), trials.of_seeds(rules[name](count), grid.seeds)) for count in grid.drops
        }
        for name in grid.strategies
    }
    notes = []
    if sharing(plan) == "all":
        notes.append("all layers are one shared block, so every strategy leaves the same model")
    if grid.way.when == "after" and grid.way.recover is None:
        notes.append("layers go after fine-tuning and nothing follows: the time of fewer layers is that of scoring")
    shutil.rmtree(settings.out / TRIALS_FOLDER, ignore_errors=True)
    costs = _costs(prepared, settings, (0, *grid.drops), trials)
    update_run(settings.out, status="finished", result={"score": whole.mean})
    return TaskTable(
        task=data.name,
        metric=data.metrics[0],
        layers=len(plan),
        steps=prepared.recipe.steps or 0,
        whole=whole,
        cells={str(name): row for name, row in cells.items()},
        costs=costs,
        notes=notes,
    )


def _measure(work: Sequence[tuple[Layers, int]], trials: Trials, tuning: Tuning) -> None:
    """Run what is not known yet, one after another, and report progress."""
    data = tuning.prepared.data
    for kept, seed in work:
        if trials.knows(kept, seed):
            continue
        score = trials.measure(kept, seed)
        folder = tuning.folder(kept, seed)
        if not tuning.is_needed(folder):
            shutil.rmtree(folder, ignore_errors=True)
        left = sum(trials.seconds(len(other)) for other, number in work if not trials.knows(other, number))
        log.info(
            f"{data.name}: {len(kept)} layers kept, seed {seed}: {data.metrics[0]} {score:.4f}; about "
            f"{format_duration(left)} left for this task"
        )


def _costs(prepared: Prepared, settings: FinetuneSettings, drops: Sequence[int], trials: Trials) -> list[Cost]:
    """What each number of layers costs here."""
    depth = prepared.source.network.config.encoder.num_layers
    networks = [with_head(prepared, kept_of(depth, FIXED["top"](depth, count))) for count in drops]
    seconds = inference_seconds(networks, prepared, settings.device)
    fastest = [trials.fastest(depth - count) for count in drops]
    return [
        Cost(
            dropped=count,
            parameters=count_parameters(small.config),
            finetune_seconds=trial.seconds,
            inference_milliseconds=1000 * each,
        )
        for count, small, trial, each in zip(drops, networks, fastest, seconds, strict=True)
    ]
