"""``litebert-lab compare``. Light at import: what the command needs, it imports when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from litebert.errors import InputError
from litebert.shrink.task_verbs import TaskAsked

COMPARISON, PAGE = "comparison.json", "comparison.html"


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
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Fine-tune with every strategy and number of layers dropped: the tables of Poor Man's BERT for your model."""
    if out is None:
        raise InputError("say where the runs and what they give go with -o FOLDER")
    drops = parse_drops(drop)
    asked = TaskAsked(
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

    strategies, way = asked.strategies(run.COMPARED), asked.way()
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
