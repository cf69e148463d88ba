"""What a comparison of strategies found: tables as numbers, what follows from them, and all of it as a report."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from litebert.report import COLOURS, GREY, MARKERS, Item, Plot, Report, Section, Table, note, notes
from litebert.shrinking.strategies import Layers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TOLERANCES = (0.01, 0.02, 0.03)
CERTAIN = 2.0  # standard errors: about 95%


@dataclass(frozen=True, kw_only=True)
class Cell:
    """The scores of some layers, one for each seed."""

    kept: Layers
    scores: tuple[float, ...]

    @classmethod
    def of(cls, kept: Layers, scores: Sequence[float]) -> "Cell":
        return cls(kept=kept, scores=tuple(scores))

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
            whole, last = table.costs[0], table.costs[-1]
            found.append(
                f"{table.task}: without {last.dropped} of {table.layers} layers, fine-tuning takes "
                f"{last.finetune_seconds / whole.finetune_seconds:.0%} of the time, inference "
                f"{last.inference_milliseconds / whole.inference_milliseconds:.0%}, and "
                f"{last.parameters / whole.parameters:.0%} of the parameters are left"
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
    sections = [
        Section(items=[note(described, "quiet")]),
        Section(title="Findings", items=notes(found.findings())),
        Section(title="Maximum number of layers that can go", items=most),
        Section(title="Curves", items=[*map(_curves, found.tasks), *map(_times, found.tasks)]),
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
    for name, row in table.cells.items():
        rows.append([name, _points(table.whole), *(_points(row[count]) for count in table.drops)])
    return rows


def average_rows(found: Comparison) -> list[list[str]]:
    """The same as means over the tasks."""
    whole = statistics.fmean(table.whole.mean for table in found.tasks)
    rows = [["", "0 dropped", *(f"{count} dropped" for count in found.drops)]]
    for name in found.strategies:
        means = [found.average(name, count) for count in found.drops]
        rows.append([name, f"{100 * whole:.2f}", *(f"{100 * mean:.2f}" for mean in means)])
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
    whole = table.costs[0]
    for cost in table.costs:
        rows.append(
            [
                f"{cost.dropped} dropped",
                f"{cost.parameters:,}",
                f"{cost.finetune_seconds:.1f} s",
                f"{cost.finetune_seconds / whole.finetune_seconds:.0%}",
                f"{cost.inference_milliseconds:.3f} ms",
                f"{cost.inference_milliseconds / whole.inference_milliseconds:.0%}",
            ]
        )
    return rows


def _points(cell: Cell) -> str:
    spread = "" if cell.deviation is None else f" ±{100 * cell.deviation:.2f}"
    return f"{100 * cell.mean:.2f}{spread}"


def _curves(table: TaskTable) -> Plot:
    return Plot(
        title=f"{table.task}: {table.metric.replace('_', ' ')} by layers dropped",
        reading="Mean over the seeds, bars: one standard deviation. Grey: 1, 2 and 3 points below the whole model.",
        draw=partial(_draw_curves, table),
    )


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


def _times(table: TaskTable) -> Plot:
    return Plot(
        title=f"{table.task}: cost relative to the whole model",
        reading="Time and parameters as a share of the whole model's; grey: the share of layers that is left.",
        draw=partial(_draw_times, table),
    )


def _draw_times(table: TaskTable, axes: "Axes") -> None:
    whole, places = table.costs[0], [cost.dropped for cost in table.costs]
    for number, (label, shares) in enumerate(
        (
            ("fine-tuning", [cost.finetune_seconds / whole.finetune_seconds for cost in table.costs]),
            ("inference", [cost.inference_milliseconds / whole.inference_milliseconds for cost in table.costs]),
            ("parameters", [cost.parameters / whole.parameters for cost in table.costs]),
        )
    ):
        axes.plot(places, [100 * share for share in shares], MARKERS[number] + "-", color=COLOURS[number], label=label)
    axes.plot(places, [100 * (1 - place / table.layers) for place in places], "--", color=GREY, label="layers")
    axes.set_ylim(0, None)
    axes.set_xticks(places)
    axes.set(xlabel="layers dropped", ylabel="% of the whole model")
    axes.legend(frameon=False, fontsize=8, loc="lower left")
