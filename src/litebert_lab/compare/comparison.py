"""What a comparison of strategies found: tables as numbers, and what follows from them. No torch."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from litebert.shrink.strategies import Layers

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
