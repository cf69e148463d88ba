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
    device: Annotated[str, typer.Option(help="cpu or cuda; by default cuda where there is one.")] = "",
    precision: Annotated[str | None, typer.Option(help="bf16, fp16 or fp32.")] = None,
    compiled: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="torch.compile; on a GPU by default.")
    ] = None,
    micro_tokens: Annotated[int, typer.Option(help="Tokens of one forward pass; 0: what suits the device.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the rows and how long they take.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Rerun a table of the ALBERT paper (or our own: recipe, elastic) at your own scale, and say which findings hold.

    Give the same command again to go on with a study that was stopped: finished rows are not run again.

    Given in several terminals at once, the command shares the rows out.
    """
    import json

    from litebert.claims import Claim
    from litebert.runs import write_atomically
    from litebert_lab.study.page import make_page
    from litebert_lab.study.report import as_json as in_json
    from litebert_lab.study.report import as_text, report_of
    from litebert_lab.study.run import NOTE_CLAIM, StudySettings, in_words, plan_study, run_study, with_scores

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
        report = report_of(done)
        if as_json:
            typer.echo(json.dumps(in_json(done, report), indent=2, ensure_ascii=False))
            return
        for line in (line for line in report.lines if not line.row.model):
            fields = " ".join(line.row.words)
            start = f" --from {line.row.start}" if line.row.start else ""
            typer.echo(f"{line.row.label:36} {line.parameters / 1e6:8.2f}M  {fields}{start}")
        typer.echo(in_words(settings, done.study))
        return
    done = run_study(settings, lambda sentence: typer.echo(sentence, err=True))
    with Claim(out / NOTE_CLAIM, wait=True):  # or a process that stops early could write over a later report
        done = with_scores(done)
        report = report_of(done)
        described = json.dumps(in_json(done, report), indent=2, ensure_ascii=False)
        write_atomically(out / "study.json", described + "\n")
        write_atomically(out / "study.html", make_page(done, report))
    typer.echo(described if as_json else as_text(report))
    typer.echo(f"the page is {out / 'study.html'}", err=True)
