"""``litebert shrink --tolerance``: what fine-tunes to see. Light at import, as the verb is."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from litebert.errors import InputError

if TYPE_CHECKING:
    from litebert.shrink.for_task import TaskReport
    from litebert.shrink.strategies import Strategy
    from litebert.shrink.tuning import Way
    from litebert.tasks.examples import TaskData
    from litebert.tasks.finetuning import FinetuneSettings

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
        from litebert.tasks.finetuning import FinetuneSettings
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
        from litebert.train.device import usable_device

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
