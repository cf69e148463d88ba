"""The tables of Poor Man's BERT for a model and tasks: every strategy by every number of layers, over several seeds.

Each task has a folder of its own in which every run is recorded as it ends, so a comparison that was stopped resumes.
Times are of the machine at hand. No run ends early, so that those of one task take equally many steps.
"""

import dataclasses
import logging
import math
import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from litebert.cluster import IN_TURN, Placement
from litebert.parameters import format_duration
from litebert.report import COLOURS, GREY, MARKERS, Item, Plot, Report, Section, Table, note, notes
from litebert.runs import RunLock, update_run
from litebert.shrinking.drop import count_parameters, kept_plan, sharing
from litebert.shrinking.search import Trial, Trials
from litebert.shrinking.strategies import FIXED, Layers, Strategy, check_count, kept_of
from litebert.shrinking.tuning import (
    TRIALS_FILE,
    TRIALS_FOLDER,
    DropSchedule,
    Tuning,
    check_metric,
    comparable,
    device_here,
    inference_seconds,
    keeping_rules,
    note_runs,
    with_head,
)
from litebert.tasks.examples import TaskData
from litebert.tasks.finetune import FinetuneSettings, Prepared, check_folder, prepare
from litebert.train.clock import StopSignal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TOLERANCES = (0.01, 0.02, 0.03)
CERTAIN = 2.0  # standard errors: about 95%


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The scores of some layers, one for each seed."""

    kept: Layers
    scores: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.scores)

    @property
    def deviation(self) -> float | None:
        """What seeds alone make; not known of one."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else None


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a model without so many layers costs on the machine at hand."""

    dropped: int
    parameters: int
    finetune_seconds: float  # of the fastest run: others may use the machine, too
    inference_milliseconds: float  # for one input, in batches


@dataclass(frozen=True, kw_only=True)
class TaskTable:
    """One task: the whole model, and strategy by number of layers dropped."""

    task: str
    metric: str
    layers: int
    steps: int
    whole: Cell
    cells: Mapping[str, Mapping[int, Cell]]
    costs: list[Cost]
    notes: list[str]

    @property
    def drops(self) -> list[int]:
        return sorted(next(iter(self.cells.values())))

    def loss(self, strategy: str, count: int) -> float:
        return self.whole.mean - self.cells[strategy][count].mean

    def noise(self) -> float | None:
        """Losses below this cannot be told from chance: two standard errors of a difference, by the whole model."""
        deviation, seeds = self.whole.deviation, len(self.whole.scores)
        return None if deviation is None else CERTAIN * deviation * math.sqrt(2 / seeds)

    def shares(self) -> list[tuple[float, float, float]]:
        """Fine-tuning time, inference time and parameters of each number of layers, as shares of the whole model's."""
        whole = self.costs[0]
        return [
            (
                cost.finetune_seconds / whole.finetune_seconds,
                cost.inference_milliseconds / whole.inference_milliseconds,
                cost.parameters / whole.parameters,
            )
            for cost in self.costs
        ]

    def most(self, tolerance: float) -> tuple[int, str]:
        """The most layers (of the numbers tried) that may go within a tolerance, and the strategy that loses least."""
        for count in reversed(self.drops):
            best = min(self.cells, key=lambda name: self.loss(name, count))
            if self.loss(best, count) <= tolerance:
                return count, best
        return 0, ""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All tasks."""

    model: str
    device: str
    way: dict[str, Any]
    tasks: list[TaskTable]

    @property
    def strategies(self) -> list[str]:
        return list(self.tasks[0].cells)

    @property
    def drops(self) -> list[int]:
        return self.tasks[0].drops

    def average(self, strategy: str, count: int) -> float:
        """The mean score over the tasks."""
        return statistics.fmean(table.cells[strategy][count].mean for table in self.tasks)

    def findings(self) -> list[str]:
        """Which strategy is best and worst at each number, and what time and parameters do, in sentences."""
        found = []
        over = "" if len(self.tasks) == 1 else f" over {len(self.tasks)} tasks"
        for count in self.drops if len(self.strategies) > 1 else ():
            ranked = sorted(self.strategies, key=lambda name: self.average(name, count), reverse=True)
            best, worst = ranked[0], ranked[-1]
            found.append(
                f"{count} dropped: best {best} ({100 * self.average(best, count):.2f}), worst {worst} "
                f"({100 * self.average(worst, count):.2f}), mean{over}"
            )
        for table in self.tasks:
            tuning, inference, parameters = table.shares()[-1]
            found.append(
                f"{table.task}: without {table.costs[-1].dropped} of {table.layers} layers, fine-tuning takes "
                f"{tuning:.0%} of the time, inference {inference:.0%}, and {parameters:.0%} of the parameters are left"
            )
        return found

    def as_plain(self) -> dict[str, Any]:
        """As JSON has it, with what follows from the scores."""
        plain = dataclasses.asdict(self)
        for one, table in zip(plain["tasks"], self.tasks, strict=True):
            one["noise"] = table.noise()
            one["tolerance"] = {
                f"{tolerance:.0%}": {"dropped": count, "strategy": name}
                for tolerance in TOLERANCES
                for count, name in [table.most(tolerance)]
            }
            one["losses"] = {name: {count: table.loss(name, count) for count in table.drops} for name in table.cells}
        plain["findings"] = self.findings()
        return plain


def comparison_report(found: Comparison) -> Report:
    """Findings, what each tolerance allows, curves, and the tables of each task."""
    first = found.tasks[0]
    seeds = len(first.whole.scores)
    way = {"before": "before fine-tuning", "after": "after fine-tuning", "steps": "in steps, fine-tuned after each"}[
        found.way["when"]
    ]
    if found.way["recover"]:
        way = "in steps" if found.way["when"] == "steps" else "after fine-tuning"
        way += ", then recovered by distilling from the whole model"
    described = f"{first.layers} layers, {seeds} seed{'' if seeds == 1 else 's'}, on {found.device}; dropped {way}"
    most: list[Item] = [
        Table(rows=tolerance_rows(found)),
        note(
            "Of the numbers tried, by the mean score; in brackets the strategy that loses least. Losses below what "
            "chance alone makes (the last column, in points) prove nothing.",
            "quiet",
        ),
    ]
    curves = [
        Plot(
            title=f"{table.task}: {table.metric.replace('_', ' ')} by layers dropped",
            reading="Mean over the seeds, bars: one standard deviation. Grey: 1, 2 and 3 points below the whole model.",
            draw=partial(_draw_curves, table),
        )
        for table in found.tasks
    ]
    curves += [
        Plot(
            title=f"{table.task}: cost relative to the whole model",
            reading="Time and parameters as a share of the whole model's; grey: the share of layers that is left.",
            draw=partial(_draw_times, table),
        )
        for table in found.tasks
    ]
    sections = [
        Section(items=[note(described, "quiet")]),
        Section(title="Findings", items=notes(found.findings())),
        Section(title="Maximum number of layers that can go", items=most),
        Section(title="Curves", items=curves),
    ]
    if len(found.tasks) > 1:
        sections.append(Section(title="Mean over the tasks", items=[Table(rows=average_rows(found))]))
    for table in found.tasks:
        items: list[Item] = [*notes(table.notes, "warning"), Table(rows=score_rows(table))]
        items += [note(f"{table.steps:,} steps a run", "quiet"), Table(rows=cost_rows(table))]
        sections.append(Section(title=f"{table.task}, {table.metric.replace('_', ' ')}", items=items))
    return Report(title=f"Layers dropped from {found.model}", sections=sections, data=found.as_plain())


def score_rows(table: TaskTable) -> list[list[str]]:
    """Strategy by number of layers: mean and deviation, in points; the whole model first."""
    rows = [["", "0 dropped", *(f"{count} dropped" for count in table.drops)]]
    return rows + [
        [name, *(_points(cell) for cell in (table.whole, *(row[count] for count in table.drops)))]
        for name, row in table.cells.items()
    ]


def average_rows(found: Comparison) -> list[list[str]]:
    """The same as means over the tasks."""
    whole = statistics.fmean(table.whole.mean for table in found.tasks)
    rows = [["", "0 dropped", *(f"{count} dropped" for count in found.drops)]]
    for name in found.strategies:
        means = [whole, *(found.average(name, count) for count in found.drops)]
        rows.append([name, *(f"{100 * mean:.2f}" for mean in means)])
    return rows


def tolerance_rows(found: Comparison) -> list[list[str]]:
    """For each task the most layers that may go."""
    rows = [["", *(f"within {tolerance:.0%}" for tolerance in TOLERANCES), "chance alone makes"]]
    for table in found.tasks:
        answers = [table.most(tolerance) for tolerance in TOLERANCES]
        noise = table.noise()
        told = "not known of one seed" if noise is None else f"{100 * noise:.2f}"
        rows.append([table.task, *(f"{count} ({name})" if count else "none of these" for count, name in answers), told])
    return rows


def cost_rows(table: TaskTable) -> list[list[str]]:
    """Parameters and times by number of layers."""
    rows = [["", "parameters", "fine-tuning", "of whole", "inference", "of whole"]]
    for cost, (tuning, inference, _) in zip(table.costs, table.shares(), strict=True):
        times = [f"{cost.finetune_seconds:.1f} s", f"{tuning:.0%}", f"{cost.inference_milliseconds:.3f} ms"]
        rows.append([f"{cost.dropped} dropped", f"{cost.parameters:,}", *times, f"{inference:.0%}"])
    return rows


def _points(cell: Cell) -> str:
    spread = "" if cell.deviation is None else f" ±{100 * cell.deviation:.2f}"
    return f"{100 * cell.mean:.2f}{spread}"


def _draw_curves(table: TaskTable, axes: "Axes") -> None:
    places = [0, *table.drops]
    for tolerance in TOLERANCES:
        axes.axhline(100 * (table.whole.mean - tolerance), color=GREY, linewidth=0.8, linestyle="--")
    for number, (name, row) in enumerate(table.cells.items()):
        cells = [table.whole, *(row[count] for count in table.drops)]
        aside = 0.06 * (number - (len(table.cells) - 1) / 2)  # or bars would hide each other
        axes.errorbar(
            [place + (aside if place else 0) for place in places],
            [100 * cell.mean for cell in cells],
            yerr=[100 * (cell.deviation or 0) for cell in cells],
            color=COLOURS[number % len(COLOURS)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=5,
            capsize=2,
            linewidth=1.4,
            label=name,
        )
    axes.set_xticks(places)
    axes.set_xlabel("layers dropped")


def _draw_times(table: TaskTable, axes: "Axes") -> None:
    places, shares = [cost.dropped for cost in table.costs], list(zip(*table.shares(), strict=True))
    for number, label in enumerate(("fine-tuning", "inference", "parameters")):
        heights = [100 * share for share in shares[number]]
        axes.plot(places, heights, MARKERS[number] + "-", color=COLOURS[number], label=label)
    axes.plot(places, [100 * (1 - place / table.layers) for place in places], "--", color=GREY, label="layers")
    axes.set_ylim(0, None)
    axes.set_xticks(places)
    axes.set(xlabel="layers dropped", ylabel="% of the whole model")
    axes.legend(frameon=False, fontsize=8, loc="lower left")


COMPARED: tuple[Strategy, ...] = ("top", "bottom", "even", "odd", "symmetric", "contribution")

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """What is compared."""

    drops: tuple[int, ...]
    strategies: tuple[Strategy, ...]
    seeds: tuple[int, ...]
    way: DropSchedule


def compare(
    settings: FinetuneSettings,
    tasks: Sequence[tuple[TaskData, FinetuneSettings]],
    grid: Grid,
    place: Placement = IN_TURN,
) -> Comparison:
    """Measure everything that is not known yet. Every task comes with settings whose recipe is for it."""
    if not settings.resume or settings.out.is_file():  # with resume, a comparison may also begin
        check_folder(settings.out, settings.resume)
    for data, _ in tasks:
        check_metric(data)
    with RunLock(settings.out):
        asked = {"tasks": [data.name for data, _ in tasks], "drops": list(grid.drops), "seeds": list(grid.seeds)}
        note_runs(settings, {"model": settings.model}, asked | {"strategies": list(grid.strategies)})
        tables = [_compare_task(one, data, grid, place) for data, one in tasks]
        found = Comparison(model=settings.model, device=settings.device, way=grid.way.as_plain(), tasks=tables)
        update_run(settings.out, status="finished", result={"tasks": {one.task: one.whole.mean for one in tables}})
    return found


def _compare_task(settings: FinetuneSettings, data: TaskData, grid: Grid, place: Placement) -> TaskTable:
    """The table of one task."""
    settings.out.mkdir(parents=True, exist_ok=True)
    prepared = prepare(settings, data)
    network = prepared.source.network
    plan = network.config.encoder.plan
    for count in grid.drops:
        check_count(len(plan), count)
    settings = replace(settings, resume=(settings.out / "run.json").is_file())
    note_runs(settings, comparable(settings, prepared, grid.way), {"seeds": list(grid.seeds)})
    rules = keeping_rules(grid.strategies, prepared, device_here(settings.device))
    everything = tuple(range(1, len(plan) + 1))
    layers = dict.fromkeys([everything, *(rules[name](count) for count in grid.drops for name in grid.strategies)])
    work = [(kept, seed) for kept in layers for seed in grid.seeds]
    tuning = Tuning(settings, prepared, grid.way)
    with StopSignal() as tuning.stop:
        trials = Trials(
            tuning.score,
            file=settings.out / TRIALS_FILE,
            same=lambda kept: (len(kept), kept_plan(plan, kept)),
            is_begun=tuning.is_begun,
            measured=lambda trial: _measured(trial, work, trials, tuning),
            place=place,
            stop=tuning.stop,
        )
        trials.measure_all(work, _needs(work, everything, grid.way))
    scored = {kept: Cell(kept=kept, scores=tuple(trials.of_seeds(kept, grid.seeds))) for kept in layers}
    whole = scored[everything]
    notes = []
    if sharing(plan) == "all":
        notes.append("all layers are one shared block, so every strategy leaves the same model")
    if grid.way.when == "after" and grid.way.recover is None:
        notes.append("layers go after fine-tuning and nothing follows: the time of fewer layers is that of scoring")
    shutil.rmtree(settings.out / TRIALS_FOLDER, ignore_errors=True)
    costs = _costs(prepared, device_here(settings.device), (0, *grid.drops), trials)
    update_run(settings.out, status="finished", result={"score": whole.mean})
    return TaskTable(
        task=data.name,
        metric=data.metrics[0],
        layers=len(plan),
        steps=prepared.recipe.steps or 0,
        whole=whole,
        cells={str(name): {count: scored[rules[name](count)] for count in grid.drops} for name in grid.strategies},
        costs=costs,
        notes=notes,
    )


def _needs(work: Sequence[tuple[Layers, int]], everything: Layers, way: DropSchedule) -> dict[int, list[int]]:
    """For each run those that must end first: it begins with, or learns from, models that others make."""
    if way == DropSchedule():
        return {}
    needs, last = {}, dict[int, int]()
    for index, (kept, seed) in enumerate(work):
        if seed in last:
            needs[index] = [last[seed]]
        if way.when == "steps" or kept == everything:
            last[seed] = index
    return needs


def _measured(trial: Trial, work: Sequence[tuple[Layers, int]], trials: Trials, tuning: Tuning) -> None:
    """Report a run's score and what is left, and delete its model unless others need it."""
    data, folder = tuning.prepared.data, tuning.folder(trial.kept, trial.seed)
    if not tuning.is_needed(folder):
        shutil.rmtree(folder, ignore_errors=True)
    left = sum(trials.seconds(len(other)) for other, number in work if not trials.knows(other, number))
    log.info(
        f"{data.name}: {len(trial.kept)} layers kept, seed {trial.seed}: {data.metrics[0]} {trial.score:.4f}; about "
        f"{format_duration(left / trials.place.at_once)} left for this task"
    )


def _costs(prepared: Prepared, device: str, drops: Sequence[int], trials: Trials) -> list[Cost]:
    """What each number of layers costs here."""
    depth = prepared.source.network.config.encoder.num_layers
    networks = [with_head(prepared, kept_of(depth, FIXED["top"](depth, count))) for count in drops]
    seconds = inference_seconds(networks, prepared, device)
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
