"""``litebert shrink --tolerance``: what fine-tunes to see. Light at import, as the verb is."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from litebert.errors import InputError

if TYPE_CHECKING:
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
    from litebert.report import print_report, to_html, to_json
    from litebert.runs import write_atomically
    from litebert.shrink.found_report import found_report

    shown = found_report(report)
    write_atomically(asked.output / FOUND, to_html(shown))
    if as_json:
        typer.echo(to_json(shown))
        return
    print_report(shown)
    if report.dropped:
        typer.echo(f"the fine-tuned model is in {asked.output / 'model'}")
    typer.echo(f"wrote {asked.output / FOUND}, a page with all that was tried")


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
