"""``litebert-lab compare``. Light at import: what the command needs, it imports when it runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.errors import InputError

if TYPE_CHECKING:
    from litebert.shrinking.strategies import Strategy
    from litebert.shrinking.tuning import DropSchedule
    from litebert.tasks.examples import TaskData
    from litebert.tasks.prepare import FinetuneSettings

COMPARISON, PAGE = "comparison.json", "comparison.html"


@dataclass(frozen=True, kw_only=True)
class ComparisonRequest:
    """What to compare, on which tasks, and how the runs are made."""

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

    def schedule(self) -> "DropSchedule":
        """When layers are dropped, and how the rest recovers."""
        from litebert.distillation.objective import DistillSettings
        from litebert.shrinking.tuning import DropSchedule, parse_when

        return DropSchedule(when=parse_when(self.when), recover=DistillSettings() if self.recover else None)

    def strategies(self, usual: "tuple[Strategy, ...]") -> "tuple[Strategy, ...]":
        from litebert.shrinking.strategies import parse_strategy

        if self.strategy is None:
            return usual
        return tuple(dict.fromkeys(parse_strategy(word) for word in self.strategy.split(",") if word))

    def read(self, task: str | None) -> "TaskData":
        from litebert.tasks.sources import read_task

        return read_task(task, self.data, text=self.columns, label=self.label)

    def settings(self, data: "TaskData", words: tuple[str, ...] = ()) -> "FinetuneSettings":
        from litebert.tasks.prepare import FinetuneSettings
        from litebert.tasks.recipes import read_finetune_recipe
        from litebert.train.precision import usable_device

        return FinetuneSettings(
            model=self.model,
            out=self.output,
            recipe=read_finetune_recipe("budget", data.name, data.kind, [*words, *self.words]),
            resume=self.resume,
            device=usable_device(self.device),
        )

    def check(self) -> None:
        """What is wrong before anything is read."""
        if self.seeds < 1:
            raise InputError(f"seeds is {self.seeds} but must be 1 or more")
        from litebert.train.precision import usable_device

        usable_device(self.device)


def compare(
    model: Annotated[str, typer.Argument(help="A litebert folder, a Hugging Face folder or a preset.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="FIELD=VALUE...", help="Fields of the fine-tuning: epochs=3.")
    ] = None,
    drop: Annotated[str, typer.Option(help="Numbers of layers to drop.")] = "2,4,6",
    strategy: Annotated[
        str | None, typer.Option(help="top, bottom, even, odd, symmetric, contribution: some of them; default: all.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="Tasks to fine-tune for, as for finetune: rte,mrpc.")] = None,
    data: Annotated[Path | None, typer.Option(help="The tasks' folder, or your own file.")] = None,
    columns: Annotated[str | None, typer.Option(help="Text columns of your own file, as finetune's --text.")] = None,
    label: Annotated[str | None, typer.Option(help="Label column of your own file.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "--output", "-o", help="The folder of the runs.")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds of each candidate; several measure the noise.")] = 3,
    when: Annotated[str, typer.Option(help="Layers are dropped before fine-tuning, after it, or in steps.")] = "before",
    recover: Annotated[
        bool, typer.Option("--recover", help="What is left learns from the whole model, too (see distill).")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the runs in the folder.")] = False,
    device: Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu or cuda.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Fine-tune with every strategy and number of layers dropped: the tables of Poor Man's BERT for your model."""
    if out is None:
        raise InputError("say where the runs and what they give go with -o FOLDER")
    drops = parse_drops(drop)
    asked = ComparisonRequest(
        model=model,
        words=tuple(overrides or ()),
        task=task,
        data=data,
        columns=columns,
        label=label,
        output=out,
        strategy=strategy,
        seeds=seeds,
        when=when,
        recover=recover,
        resume=resume,
        device=device,
    )
    asked.check()
    from dataclasses import replace

    from litebert.report import print_report, to_html, to_json
    from litebert.runs import write_atomically
    from litebert_lab.compare import run
    from litebert_lab.compare.comparison import comparison_report

    strategies, way = asked.strategies(run.COMPARED), asked.schedule()
    grid = run.Grid(drops=drops, strategies=strategies, seeds=tuple(range(seeds)), way=way)
    names: list[str | None] = [name for name in task.split(",") if name] if task else [None]
    tasks = []
    for name in names:
        read = asked.read(name)
        settings = asked.settings(read, ("patience=0",))  # equally many steps, or times would not compare
        tasks.append((read, replace(settings, out=out / read.name)))
    found = run.compare(asked.settings(tasks[0][0]), tasks, grid)
    report = comparison_report(found)
    write_atomically(out / COMPARISON, to_json(report) + "\n")
    write_atomically(out / PAGE, to_html(report))
    if as_json:
        typer.echo(to_json(report))
        return
    print_report(report)
    typer.echo(f"wrote {out / COMPARISON} and {out / PAGE}")


def parse_drops(text: str) -> tuple[int, ...]:
    """``2,4,6`` as numbers, each once, in order."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isdecimal() and int(word) for word in words):
        raise InputError(f"drop is '{text}' but must be numbers such as 2,4,6, each 1 or more")
    return tuple(sorted({int(word) for word in words}))
