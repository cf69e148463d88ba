"""``litebert study``."""

from pathlib import Path
from typing import Annotated

import typer

from litebert_lab.study.plans import STUDIES


def study(
    name: Annotated[str, typer.Argument(metavar="STUDY", help=" ".join(STUDIES))],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="FIELD=VALUE...", help="Fields of the model or recipe, for all rows.")
    ] = None,
    corpus: Annotated[Path, typer.Option(help="A token store with held-out text.")] = Path("store"),
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the study.")] = Path("study"),
    budget: Annotated[str | None, typer.Option(help="Time to train each row for: 5m, 2h.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of each row, instead of time.")] = None,
    flops: Annotated[
        float | None, typer.Option(help="Arithmetic of each row, instead of time: fair where rows share a device.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each row; more than one measures the noise of training.")] = 1,
    preset: Annotated[str, typer.Option(help="The model that rows are made from.")] = "albert-base",
    recipe: Annotated[str, typer.Option(help="budget or paper.")] = "budget",
    device: Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu or cuda.")] = "auto",
    precision: Annotated[str | None, typer.Option(help="bf16, fp16 or fp32.")] = None,
    compiled: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="torch.compile; on a GPU by default.")
    ] = None,
    micro_tokens: Annotated[int, typer.Option(help="Tokens of one forward pass; 0: what suits the device.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the rows and how long they take.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Rerun a table of the ALBERT paper (or our own: recipe, elastic) at your own scale, and say which findings hold.

    Give the same command again to resume a study that was stopped: finished rows are not run again.
    """
    from litebert.report import print_report, to_html, to_json
    from litebert.runs import write_atomically
    from litebert_lab.study.report import outcome_of, study_report
    from litebert_lab.study.run import StudySettings, in_words, plan_study, run_study

    settings = StudySettings(
        study=name,
        preset=preset,
        corpus=corpus,
        out=out,
        budget=budget,
        steps=steps,
        flops=flops,
        seeds=seeds,
        recipe=recipe,
        words=tuple(overrides or ()),
        device=device,
        precision=precision,
        compiled=compiled,
        micro_tokens=micro_tokens,
    )
    if dry_run:
        done = plan_study(settings)
        outcome = outcome_of(done)
        if as_json:
            typer.echo(to_json(study_report(done, outcome)))
            return
        for line in (line for line in outcome.lines if not line.row.model):
            fields = " ".join(line.row.words)
            start = f" --from {line.row.start}" if line.row.start else ""
            typer.echo(f"{line.row.label:36} {line.parameters / 1e6:8.2f}M  {fields}{start}")
        typer.echo(in_words(settings, done.study))
        return
    done = run_study(settings)
    report = study_report(done, outcome_of(done))
    write_atomically(out / "study.json", to_json(report) + "\n")
    write_atomically(out / "study.html", to_html(report))
    if as_json:
        typer.echo(to_json(report))
    else:
        print_report(report)
    typer.echo(f"the page is {out / 'study.html'}", err=True)
