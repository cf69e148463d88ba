"""``litebert finetune``. Light at import: what it needs, it imports when it runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from litebert.errors import InputError

if TYPE_CHECKING:
    from litebert.tasks.examples import TaskData
    from litebert.tasks.finetune import FinetuneResult, FinetuneSettings


def finetune(
    model: Annotated[str, typer.Argument(help="The folder of a pretrained model, ours or Hugging Face's.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="FIELD=VALUE...", help="Fields of the recipe: rate=2e-5 epochs=4.")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, squad1, squad2, race, race-middle or race-high; "
            "none for a file of your own."
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(help="The task's folder, or your own file.")] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The run folder to make; its model will be in model/.")
    ] = Path("run"),
    text: Annotated[
        str | None, typer.Option(help="Columns of the text: one, a pair (subject,body), or joined (subject+body).")
    ] = None,
    label: Annotated[str | None, typer.Option(help="Column of the label; several, parted by commas.")] = None,
    kind: Annotated[
        str | None, typer.Option(help="classify, multilabel, regress, choice or span, where the guess is wrong.")
    ] = None,
    dev: Annotated[Path | None, typer.Option(help="A file to choose the best model with; else some rows are.")] = None,
    settings: Annotated[
        str | None, typer.Option(help="paper or budget; by default paper for large models on a GPU.")
    ] = None,
    budget: Annotated[str | None, typer.Option(help="The most wall-clock time: 20m, 2h.")] = None,
    seed: Annotated[int, typer.Option(help="For new weights, the order of examples and dropout.")] = 0,
    seeds: Annotated[int, typer.Option(help="Train so often; median and spread are told, the best is kept.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    from_hub: Annotated[bool, typer.Option("--from-hub", help="Read the task through the datasets library.")] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda; by default cuda where there is one.")] = "",
    precision: Annotated[str | None, typer.Option(help="bf16, fp16 or fp32.")] = None,
    compiled: Annotated[bool, typer.Option("--compile", help="torch.compile; pays on long runs.")] = False,
    save_every: Annotated[str, typer.Option(help="How often the state is saved: 5m, or a number of steps.")] = "5m",
) -> None:
    """Fine-tune a model on a task, or on data of your own."""
    from litebert.tasks.look import look_at

    if seeds < 1:
        raise InputError(f"--seeds is {seeds} but must be 1 or more")
    read = _read(task, data, text, label, kind, dev, from_hub)
    for sentence in read.notes:
        typer.echo(sentence, err=True)
    for sentence in look_at(read):
        typer.echo(f"warning: {sentence}", err=True)
    asked = _asked(
        model, overrides or [], read, out, settings, budget, seed, resume, device, precision, compiled, save_every
    )

    if seeds > 1:
        from litebert.tasks.finetune import finetune_seeds

        summary, _ = finetune_seeds(asked, read, seeds)
        typer.echo(summary.describe())
        typer.echo(f"the best model is in {out / 'model'}")
        return
    from litebert.tasks.finetune import finetune as run

    _tell(run(asked, read), out)


def _tell(result: "FinetuneResult", out: Path) -> None:
    figures = ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in result.figures.items())
    reached = f"; dev at step {result.best_step:,}: {figures}" if figures else ""
    typer.echo(f"{result.status} after {result.steps:,} steps{reached}")
    for attempt in result.attempts:
        typer.echo(f"an attempt with seed {attempt['seed']} and rate {attempt['rate']:g} {attempt['verdict']}")
    if result.status == "stopped":
        typer.echo("the same command with --resume goes on")
    if result.figures:
        typer.echo(f"the model is in {out / 'model'}")


def _read(
    task: str | None,
    data: str | None,
    text: str | None,
    label: str | None,
    kind: str | None,
    dev: Path | None,
    from_hub: bool,
) -> "TaskData":
    from litebert.tasks.find import known_kind, read_task

    if from_hub:
        from litebert.tasks.hub import read_hub

        return read_hub(task, data, text=text, label=label, kind=known_kind(kind))
    return read_task(task, Path(data) if data else None, text=text, label=label, kind=kind, dev=dev)


def _asked(
    model: str,
    words: list[str],
    data: "TaskData",
    out: Path,
    settings: str | None,
    budget: str | None,
    seed: int,
    resume: bool,
    device: str,
    precision: str | None,
    compiled: bool,
    save_every: str,
) -> "FinetuneSettings":
    """The settings of a run, checked."""
    from litebert.durations import parse_duration
    from litebert.tasks.finetune import FinetuneSettings, check_folder
    from litebert.tasks.recipes import SettingsName, read_finetune_recipe
    from litebert.train.precision import usable_device
    from litebert.train.settings import Precision

    check_folder(out, resume)
    where = usable_device(device)
    if precision not in (None, "bf16", "fp16", "fp32"):
        raise InputError(f"--precision is '{precision}' but must be bf16, fp16 or fp32")
    if settings not in (None, "paper", "budget"):
        raise InputError(f"--settings is '{settings}' but must be paper or budget")
    chosen = settings or _usual_settings(model, data.name, where)
    return FinetuneSettings(
        model=model,
        out=out,
        recipe=read_finetune_recipe(cast(SettingsName, chosen), data.name, data.kind, words),
        seed=seed,
        resume=resume,
        device=where,
        precision=cast(Precision | None, precision),
        budget=None if budget is None else parse_duration(budget),
        compiled=compiled,
        save_seconds=0.0 if save_every.isdigit() else parse_duration(save_every),
        save_steps=int(save_every) if save_every.isdigit() else None,
    )


PAPER_WIDTH = 768  # the narrowest model of the paper


def _usual_settings(model: str, task: str, device: str) -> str:
    """The paper's on a GPU, for the paper's tasks and models as wide as its own."""
    from litebert.checkpoints.folder import model_config
    from litebert.config import preset_names
    from litebert.tasks.recipes import SHARED

    if device != "cuda" or SHARED.get(task, task) not in preset_names("finetune/paper"):
        return "budget"
    return "paper" if model_config(model).encoder.width >= PAPER_WIDTH else "budget"
