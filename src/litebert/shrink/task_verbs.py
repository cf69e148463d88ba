"""``litebert shrink --tolerance`` and ``--compare``: what fine-tunes to see. Light at import, as the verb is."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from litebert.errors import InputError

if TYPE_CHECKING:
    from litebert.shrink.comparison import Comparison
    from litebert.shrink.for_task import TaskReport
    from litebert.shrink.strategies import Strategy
    from litebert.shrink.tuning import Way
    from litebert.tasks.examples import TaskData
    from litebert.tasks.finetune import FinetuneSettings

COMPARISON, PAGE = "comparison.json", "comparison.html"
FOUND = "found.html"


@dataclass(frozen=True, kw_only=True)
class TaskAsked:
    """What was asked for of a task."""

    model: str
    words: tuple[str, ...]
    task: str | None
    data: Path | None
    columns: str | None
    label: str | None
    output: Path
    strategy: str | None
    seeds: int
    when: str
    recover: bool
    resume: bool
    device: str

    def way(self) -> "Way":
        """When layers go, and how what is left recovers."""
        from litebert.distill.settings import DistillSettings
        from litebert.shrink.tuning import Way, parse_when

        return Way(when=parse_when(self.when), recover=DistillSettings() if self.recover else None)

    def strategies(self, usual: "tuple[Strategy, ...]") -> "tuple[Strategy, ...]":
        from litebert.shrink.strategies import parse_strategy

        if self.strategy is None:
            return usual
        return tuple(dict.fromkeys(parse_strategy(word) for word in self.strategy.split(",") if word))

    def read(self, task: str | None) -> "TaskData":
        from litebert.tasks.find import read_task

        return read_task(task, self.data, text=self.columns, label=self.label)

    def settings(self, data: "TaskData", words: tuple[str, ...] = ()) -> "FinetuneSettings":
        from litebert.tasks.finetune import FinetuneSettings
        from litebert.tasks.recipes import read_finetune_recipe

        return FinetuneSettings(
            model=self.model,
            out=self.output,
            recipe=read_finetune_recipe("budget", data.name, data.kind, [*words, *self.words]),
            resume=self.resume,
            device=self.device,
        )

    def check(self) -> None:
        """What is wrong before anything is read."""
        if self.seeds < 1:
            raise InputError(f"--seeds is {self.seeds} but must be 1 or more")
        from litebert.train.precision import usable_device

        usable_device(self.device)


def search(asked: TaskAsked, tolerance: str, as_json: bool) -> None:
    """As many layers as a task allows."""
    from litebert.config import parse_share

    allowed = parse_share(tolerance, "--tolerance")
    asked.check()
    from litebert.shrink.for_task import shrink_for_task
    from litebert.shrink.tuning import USUAL

    strategies, way = asked.strategies(USUAL), asked.way()
    data = asked.read(asked.task)
    report = shrink_for_task(
        asked.settings(data),
        data,
        tolerance=allowed,
        seeds=range(asked.seeds),
        strategies=strategies,
        way=way,
        say=_say,
    )
    from litebert.runs import write_atomically
    from litebert.shrink.found_page import make_page

    write_atomically(asked.output / FOUND, make_page(report))
    _tell(report, asked.output, as_json)


def compare_strategies(asked: TaskAsked, drop: str, as_json: bool) -> None:
    """The paper's tables."""
    drops = parse_drops(drop)
    asked.check()
    from litebert.shrink.compare import COMPARED, Grid, compare
    from litebert.shrink.compare_page import make_page

    grid = Grid(drops=drops, strategies=asked.strategies(COMPARED), seeds=tuple(range(asked.seeds)), way=asked.way())
    from dataclasses import replace

    names: list[str | None] = [name for name in asked.task.split(",") if name] if asked.task else [None]
    tasks = []
    for name in names:
        data = asked.read(name)
        settings = asked.settings(data, ("patience=0",))  # equally many steps, or times would not compare
        tasks.append((data, replace(settings, out=asked.output / data.name)))
    whole = asked.settings(tasks[0][0])
    found = compare(whole, tasks, grid, _say)
    import json

    from litebert.runs import write_atomically

    plain = json.dumps(found.as_plain(), indent=2)
    write_atomically(asked.output / COMPARISON, plain + "\n")
    write_atomically(asked.output / PAGE, make_page(found))
    if as_json:
        typer.echo(plain)
        return
    _print(found)
    typer.echo(f"wrote {asked.output / COMPARISON} and {asked.output / PAGE}")


def _print(found: "Comparison") -> None:
    """The tables on a terminal."""
    from litebert.shrink.comparison import average_rows, cost_rows, score_rows, tolerance_rows

    for table in found.tasks:
        typer.echo(f"{table.task}, {table.metric.replace('_', ' ')} ({table.steps:,} steps a run)")
        for note in table.notes:
            typer.echo(f"note: {note}")
        print_rows(score_rows(table))
        print_rows(cost_rows(table))
    if len(found.tasks) > 1:
        typer.echo("mean over the tasks")
        print_rows(average_rows(found))
    typer.echo("the most layers that may go, of the numbers tried")
    print_rows(tolerance_rows(found))
    for sentence in found.findings():
        typer.echo(sentence)


def print_rows(rows: list[list[str]]) -> None:
    """A table with its columns in line, and an empty line after it."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *rest = (
            cell.ljust(width) if not place else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        typer.echo("  ".join([first, *rest]).rstrip())
    typer.echo("")


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def _tell(report: "TaskReport", output: Path, as_json: bool) -> None:
    from litebert.shrink.found_page import standing_rows
    from litebert.shrink.strategies import layers_in_words, ranges

    if as_json:
        import json

        typer.echo(json.dumps(report.as_plain(), indent=2))
        return
    for sentence in report.sentences:
        typer.echo(sentence)
    if report.dropped:
        typer.echo(
            f"dropped: {ranges(report.dropped)}; kept: {ranges(report.kept)} of {layers_in_words(report.layers)}"
        )
    typer.echo("")
    print_rows(standing_rows(report))
    if report.dropped:
        typer.echo(f"the fine-tuned model is in {output / 'model'}")
    typer.echo(f"wrote {output / FOUND}, a page with all that was tried")


def parse_drops(text: str) -> tuple[int, ...]:
    """``2,4,6`` as numbers, each once, in order."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isdecimal() and int(word) for word in words):
        raise InputError(f"--drop is '{text}' but must be 1 or more; to compare, numbers such as 2,4,6")
    return tuple(sorted({int(word) for word in words}))
