"""``litebert-lab``: studies, benchmarks, comparisons and long cards. Light at import, as litebert's command line is."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.commands.from_signature import SignatureCommand
from litebert.commands.show import show_report
from litebert.errors import InputError
from litebert_lab.bench.commands import AsJson, Cores, Device, On
from litebert_lab.bench.commands import app as bench_app
from litebert_lab.study.catalogue import STUDIES
from litebert_lab.suite import suite

if TYPE_CHECKING:
    from litebert.report import Report

app = typer.Typer(
    name="litebert-lab",
    help="Studies, benchmarks and comparisons that show what litebert does.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(bench_app, name="bench")


def _write_report(report: "Report", folder: Path, name: str, as_json: bool) -> None:
    """A report in a folder, as JSON and as a page, and on the terminal."""
    from litebert.report import to_html, to_json
    from litebert.runs import write_atomically

    write_atomically(folder / f"{name}.json", to_json(report) + "\n")
    write_atomically(folder / f"{name}.html", to_html(report))
    show_report(report, as_json)
    typer.echo(f"wrote {folder / name}.json and {folder / name}.html", err=True)


@app.command(cls=SignatureCommand)
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
    device: Device = "auto",
    precision: Annotated[str | None, typer.Option(help="bf16, fp16 or fp32.")] = None,
    compiled: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="torch.compile; on a GPU by default.")
    ] = None,
    micro_tokens: Annotated[int, typer.Option(help="Tokens of one forward pass; 0: by device.")] = 0,
    blimp: Annotated[Path | None, typer.Option(help="Folder with BLiMP's .jsonl files, for figures of it.")] = None,
    pairs: Annotated[int, typer.Option(help="Pairs of each BLiMP paradigm; 0: all.")] = 20,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the rows and how long they take.")] = False,
    on: On = "here",
    cores: Cores = 0,
    as_json: AsJson = False,
) -> None:
    """Rerun a table of the ALBERT paper (or one of ours, from recipe on) at your own scale: which findings hold?

    Give the same command again to resume a study that was stopped: finished rows are not run again.
    """
    from litebert.cluster import place_runs
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
        blimp=blimp,
        pairs=pairs,
    )
    done = plan_study(settings) if dry_run else run_study(settings, place_runs(on, device, cores))
    report = study_report(done, outcome_of(done))
    if not dry_run:
        _write_report(report, out, "study", as_json)
    elif as_json:
        show_report(report, as_json)
    else:
        for row in done.study.trained:
            start = f" --from {row.start}" if row.start else ""
            typer.echo(f"{row.label:36} {done.parameters[row.name] / 1e6:8.2f}M  {' '.join(row.words)}{start}")
        typer.echo(in_words(settings, done.study))


@app.command(cls=SignatureCommand)
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
    resume: Annotated[bool, typer.Option("--resume", help="Resume the runs in the folder.")] = False,
    device: Device = "auto",
    on: On = "here",
    cores: Cores = 0,
    as_json: AsJson = False,
) -> None:
    """Fine-tune with every strategy and number of layers dropped: the tables of Poor Man's BERT for your model."""
    if out is None:
        raise InputError("out is missing; name a folder for the runs and their results with -o FOLDER")
    words = [word.strip() for word in drop.split(",") if word.strip()]
    if not words or not all(word.isdecimal() and int(word) for word in words):
        raise InputError(f"drop is '{drop}' but must be numbers such as 2,4,6, each 1 or more")
    if seeds < 1:
        raise InputError(f"seeds is {seeds} but must be 1 or more")
    from litebert.cluster import place_runs
    from litebert.distillation.objective import DistillSettings
    from litebert.shrinking.strategies import parse_strategy
    from litebert.shrinking.tuning import DropSchedule, parse_when
    from litebert.tasks.prepare import FinetuneSettings
    from litebert.tasks.recipes import read_finetune_recipe
    from litebert.tasks.sources import read_task
    from litebert_lab.compare import COMPARED, Grid, comparison_report
    from litebert_lab.compare import compare as compare_all

    place = place_runs(on, device, cores)
    named = [word for word in (strategy or "").split(",") if word]
    grid = Grid(
        drops=tuple(sorted({int(word) for word in words})),
        strategies=tuple(dict.fromkeys(map(parse_strategy, named))) if strategy is not None else COMPARED,
        seeds=tuple(range(seeds)),
        way=DropSchedule(when=parse_when(when), recover=DistillSettings() if recover else None),
    )
    names: list[str | None] = [name for name in task.split(",") if name] if task else [None]
    tasks = []
    for name in names:
        read = read_task(name, data, text=columns, label=label)
        # Without early stopping all runs take equally many steps, or times would not compare.
        tuned = read_finetune_recipe("budget", read.name, read.kind, ["patience=0", *(overrides or ())])
        settings = FinetuneSettings(model=model, out=out / read.name, recipe=tuned, resume=resume, device=place.device)
        tasks.append((read, settings))
    found = compare_all(replace(tasks[0][1], out=out), tasks, grid, place)
    _write_report(comparison_report(found), out, "comparison", as_json)


@app.command()
def card(
    run: Annotated[Path, typer.Argument(help="The folder of a pretraining run.")],
    output: Annotated[Path, typer.Option("--out", "--output", "-o", help="The Markdown file to write.")] = Path(
        "CARD.md"
    ),
    results: Annotated[
        list[Path] | None,
        typer.Option(
            help="Results: JSON of evaluate, of fill --cloze, of results.py, or a finetune run; may be repeated."
        ),
    ] = None,
    after: Annotated[
        list[Path] | None,
        typer.Option(help="An earlier run whose model this one started from; may be repeated, the first one first."),
    ] = None,
    corpus: Annotated[Path | None, typer.Option(help="The token store of the run, where it was moved.")] = None,
    model: Annotated[str | None, typer.Option(help="The model, where its weights are not in the run.")] = None,
    name: Annotated[str, typer.Option(help="Name of the model; default: the run's.")] = "",
    hardware: Annotated[str, typer.Option(help="The hardware, where the run did not record it: 'one H200'.")] = "",
    watts: Annotated[
        float | None, typer.Option(help="Power of the device, to compute the energy; marked as an assumption.")
    ] = None,
    text: Annotated[Path | None, typer.Option(help="A Markdown file about the text, for that section.")] = None,
    limits: Annotated[
        Path | None, typer.Option(help="A Markdown file about limits and biases, for that section.")
    ] = None,
    commands: Annotated[
        list[str] | None,
        typer.Option("--command", help="A command that made it, for the end of the card; may be repeated."),
    ] = None,
) -> None:
    """Write a model card from the files of a run and from results; what is not known is marked as missing."""
    from litebert_lab.card.page import CardSettings, make_card

    settings = CardSettings(
        run=run,
        output=output,
        earlier=tuple(after or ()),
        results=tuple(results or ()),
        corpus=corpus,
        model=model,
        name=name,
        hardware=hardware,
        watts=watts,
        data_text=text,
        limits=limits,
        commands=tuple(commands or ()),
    )
    for sentence in make_card(settings):
        typer.echo(sentence, err=True)
    typer.echo(f"wrote {output}")


@app.command()
def leaks(
    folder: Annotated[Path, typer.Argument(metavar="STORE", help="Folder of a token store.")],
    length: Annotated[int, typer.Option(help="Maximum tokens of an input.")] = 512,
    budget: Annotated[int, typer.Option(help="Maximum tokens of a batch.")] = 8192,
    order: Annotated[str, typer.Option(help="sop or nsp.")] = "sop",
    edges: Annotated[str, typer.Option(help="As for litebert corpus look: masking or pairs.")] = "masking",
    split: Annotated[str, typer.Option(help="train or held_out.")] = "train",
    seed: Annotated[int, typer.Option(help="Seed of the batches.")] = 0,
    epoch: Annotated[int, typer.Option(min=0, help="The first epoch to check.")] = 0,
    html: Annotated[Path | None, typer.Option(help="Write a page with plots to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check whether a bag of words can tell the order of sentence pairs: a shortcut that a model would learn."""
    from litebert.config import build
    from litebert.corpus.batches import Batches, BatchSettings
    from litebert.corpus.look import look
    from litebert.corpus.store import Store
    from litebert_lab.leak import check_leak, store_report

    if order not in ("sop", "nsp"):
        raise InputError(f"order is '{order}' but must be sop or nsp: without pairs there is nothing to check")
    fields = {"length": length, "budget": budget, "order": order, "edges": edges, "seed": seed}
    settings, store = build(BatchSettings, fields), Store.open(folder)
    found = check_leak(Batches(store, split, settings), epoch=epoch)
    if html is None and not as_json:
        typer.echo(str(found))
        return
    report = store_report(look(store, settings, split=split, epoch=epoch), found)
    show_report(report, as_json, None if html is None else str(html))


@app.command(cls=SignatureCommand)
def long(
    model: Annotated[str, typer.Argument(help="A pretrained model.")],
    longer: Annotated[str, typer.Argument(help="The same model, lengthened.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="FIELD=VALUE...", help="Fields of the fine-tuning: epochs=3.")
    ] = None,
    encyclopedia: Annotated[Path, typer.Option(help="A file of encyclopedia articles.")] = Path("en-wiki.txt.xz"),
    novels: Annotated[Path, typer.Option(help="A file of chapters of novels.")] = Path("en-books.txt.xz"),
    race: Annotated[Path, typer.Option(help="Folder of RACE.")] = Path("race"),
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the runs.")] = Path("long"),
    rows: Annotated[int, typer.Option(min=10, help="Texts to learn from.")] = 600,
    test: Annotated[int, typer.Option(min=10, help="Texts to score.")] = 500,
    seed: Annotated[int, typer.Option(help="Seed of the rows and of the fine-tuning.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Long texts cut, read in windows and read whole by a lengthened model: accuracy by fifth of length.

    Give the same command again to resume runs that were stopped.
    """
    from litebert_lab.long_texts import compare_readings, long_rows

    sources = encyclopedia, novels, race
    learnt, scored = (
        long_rows(*sources, count, split=split, seed=seed) for count, split in ((rows, "train"), (test, "dev"))
    )
    out.mkdir(parents=True, exist_ok=True)
    report = compare_readings(model, longer, learnt, scored, out, settings=overrides or (), seed=seed)
    _write_report(report, out, "long", as_json)


app.command()(suite)


def main() -> None:
    """Run a command; a user's mistake becomes one sentence on standard error and exit code 2."""
    from litebert.cli import run
    from litebert.terminal import log_to_terminal

    log_to_terminal(package="litebert_lab")
    run(_commands, "litebert-lab")


def _commands() -> None:
    try:
        app()
    except ModuleNotFoundError as error:
        if error.name not in ("scipy", "sklearn", "transformers", "accelerate", "PIL"):
            raise
        raise InputError(f"this needs {error.name}; install it with: pip install 'litebert[lab]'") from None
