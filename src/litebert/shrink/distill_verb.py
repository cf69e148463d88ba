"""``litebert distill``. It lives with dropping: a student may be some of its teacher's layers. Light at import."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.errors import InputError

if TYPE_CHECKING:
    from litebert.checkpoints.folder import Loaded
    from litebert.distill.teacher import Teacher
    from litebert.tasks.examples import TaskData
    from litebert.tasks.finetune import FinetuneSettings

OF_STUDENT = "student."  # words that begin so are fields of a preset, the others of the recipe


def distill(
    teacher: Annotated[str, typer.Argument(help="The folder of a model fine-tuned for the task.")],
    student: Annotated[
        str | None, typer.Argument(help="A preset, or a model folder; none for some of the teacher's layers (--keep).")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="FIELD=VALUE...", help="Of the recipe: epochs=4. Of a preset: student.num_layers=4."),
    ] = None,
    keep: Annotated[str | None, typer.Option(help="The student is these layers of the teacher: 1,3,5-7.")] = None,
    drop: Annotated[int | None, typer.Option(help="The student is the teacher without so many layers,")] = None,
    strategy: Annotated[
        str | None, typer.Option(help="chosen by: top, bottom, even, odd or symmetric (default: top).")
    ] = None,
    task: Annotated[str | None, typer.Option(help="The task, as for finetune; none for a file of your own.")] = None,
    data: Annotated[Path | None, typer.Option(help="The task's folder, or your own file.")] = None,
    text: Annotated[str | None, typer.Option(help="Text columns of your own file, if not the teacher's.")] = None,
    label: Annotated[str | None, typer.Option(help="Label column of your own file, if not the teacher's.")] = None,
    dev: Annotated[Path | None, typer.Option(help="A file to choose the best model with; else some rows are.")] = None,
    output: Annotated[
        Path | None, typer.Option("--out", "--output", "-o", help="The run folder; its model is in model/.")
    ] = None,
    temperature: Annotated[float, typer.Option(help="Softens the answers that are compared.")] = 2.0,
    hard: Annotated[
        float, typer.Option(help="Share of the labels in the loss; the teacher's answers have the rest.")
    ] = 0.5,
    states: Annotated[
        str, typer.Option(help="Also match states: none, final (cosine, DistilBERT) or depths (squared, TinyBERT).")
    ] = "none",
    states_weight: Annotated[float, typer.Option(help="What the states count for.")] = 1.0,
    seed: Annotated[int, typer.Option(help="For new weights, the order of examples and dropout.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda; by default cuda where there is one.")] = "",
    save_every: Annotated[str, typer.Option(help="How often the state is saved: 5m, or a number of steps.")] = "5m",
) -> None:
    """Train a small model to answer as a fine-tuned one does."""
    if output is None:
        raise InputError("say where the run goes with -o FOLDER")
    words = overrides or []
    if student is not None and "=" in student:
        words = [student, *words]
        student = None
    if (student is None) == (keep is None and drop is None):
        raise InputError("name a student (a preset or a folder), or say which of the teacher's layers it has (--keep)")
    from litebert.distill.settings import DistillSettings, parse_states

    how = DistillSettings(temperature=temperature, hard=hard, states=parse_states(states), states_weight=states_weight)
    from litebert.distill.run import distill as run
    from litebert.distill.teacher import load_teacher, read_for

    master = load_teacher(teacher, how)
    read = read_for(master.note, task, data, text, label, dev)
    for sentence in read.notes:
        typer.echo(sentence, err=True)
    fields = [word.removeprefix(OF_STUDENT) for word in words if word.startswith(OF_STUDENT)]
    pupil = _student(master, student, fields, keep, drop, strategy, seed)
    for sentence in pupil.notes:
        typer.echo(f"note: {sentence}", err=True)
    rest = [word for word in words if not word.startswith(OF_STUDENT)]
    settings = _settings(student or teacher, output, read, rest, seed, resume, device, save_every)
    result, near = run(settings, read, master, pupil)
    typer.echo(f"{result.status} after {result.steps:,} steps")
    if near is None:
        typer.echo("the same command with --resume goes on")
        return
    for sentence in near.sentences():
        typer.echo(sentence)
    typer.echo(f"the student is in {output / 'model'}")


def _student(
    teacher: "Teacher",
    student: str | None,
    fields: list[str],
    keep: str | None,
    drop: int | None,
    strategy: str | None,
    seed: int,
) -> "Loaded":
    """A preset, a folder, or layers of the teacher (as DistilBERT begins)."""
    from litebert.distill.student import load_student

    if student is not None:
        if strategy is not None:
            raise InputError("--strategy chooses among the teacher's layers: it goes with --drop, not with a student")
        return load_student(student, fields, teacher, seed)
    from litebert.checkpoints.folder import Loaded
    from litebert.shrink.choose import Asked, choose
    from litebert.shrink.drop import drop_layers
    from litebert.shrink.strategies import NEEDS_TEXT

    if fields:
        raise InputError(f"student.{fields[0]} changes a preset; this student is made of the teacher's layers")
    if strategy in NEEDS_TEXT:
        raise InputError(f"--strategy {strategy} goes by a text: use `litebert shrink`, and name its folder as student")
    whole = Loaded(teacher.network, teacher.tokenizer)
    asked = Asked(keep=keep, drop=drop, strategy=strategy)
    choice = choose(asked, teacher.network.config.encoder, lambda: whole, lambda _: None)
    return Loaded(drop_layers(teacher.network, choice.kept), teacher.tokenizer)


def _settings(
    model: str, out: Path, data: "TaskData", words: list[str], seed: int, resume: bool, device: str, save_every: str
) -> "FinetuneSettings":
    from litebert.durations import parse_duration
    from litebert.tasks.finetune import FinetuneSettings
    from litebert.tasks.recipes import read_finetune_recipe
    from litebert.train.precision import usable_device

    return FinetuneSettings(
        model=model,
        out=out,
        recipe=read_finetune_recipe("budget", data.name, data.kind, words),
        seed=seed,
        resume=resume,
        device=usable_device(device),
        save_seconds=0.0 if save_every.isdigit() else parse_duration(save_every),
        save_steps=int(save_every) if save_every.isdigit() else None,
    )
