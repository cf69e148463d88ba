"""``litebert shrink``. Light at import: what the verb needs, it imports when it runs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.errors import InputError

if TYPE_CHECKING:
    from litebert.shrink.choose import Asked
    from litebert.shrink.for_task import TaskReport


def shrink(
    model: Annotated[str, typer.Argument(help="A litebert folder, a Hugging Face folder or a preset.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="FIELD=VALUE...", help="With --tolerance: fields of the fine-tuning.")
    ] = None,
    drop: Annotated[int | None, typer.Option(help="How many layers to drop.")] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            help="Which: top, bottom, even, odd, symmetric; by what layers do to --text: contribution, greedy.  "
            "[default: top; with --tolerance the best of several]"
        ),
    ] = None,
    keep: Annotated[str | None, typer.Option(help="The layers to keep instead, 1 at the bottom: 1,2,5-7.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The folder to write.")] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="A text on each line, such as a development set; can be given again.")
    ] = None,
    texts: Annotated[int | None, typer.Option(help="Use the first so many texts only.")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="A tokenizer other than the model's own.")] = None,
    tolerance: Annotated[
        str | None, typer.Option(help="Drop as many as a task allows: 1% is a point of its score. Fine-tunes to see.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="With --tolerance: the task, as for finetune.")] = None,
    data: Annotated[Path | None, typer.Option(help="The task's folder, or your own file.")] = None,
    columns: Annotated[str | None, typer.Option(help="Text columns of your own file, as finetune's --text.")] = None,
    label: Annotated[str | None, typer.Option(help="Label column of your own file.")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds that a verdict may take; the noise is told by them.")] = 3,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the search in the folder.")] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go and write nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Drop layers from a model, by number, by strategy (Poor Man's BERT) or as many as a task allows."""
    if tolerance is not None:
        if drop is not None or keep is not None or dry_run:
            raise InputError("--tolerance finds the number itself; leave out --drop, --keep and --dry-run")
        if output is None:
            raise InputError("say where the search and its model go with -o FOLDER")
        read = (task, data, columns, label)
        found = _search(model, overrides or [], read, output, tolerance, strategy, seeds, resume, device)
        _tell(found, output, as_json)
        return
    if overrides or task or data or columns or label or resume:
        raise InputError("fine-tuning comes in with --tolerance, such as --tolerance 1% --task rte --data FOLDER")
    if output is None and not dry_run:
        raise InputError("say where the smaller model goes with -o FOLDER, or only look with --dry-run")
    if texts is not None and texts < 1:
        raise InputError(f"--texts is {texts} but must be 1 or more")
    from litebert.shrink.choose import Asked, check_asked

    asked = Asked(
        keep=keep,
        drop=drop,
        strategy=strategy,
        text=tuple(text or ()),
        most_texts=texts,
        tokenizer=tokenizer,
        device=device,
    )
    check_asked(asked)
    _drop(model, asked, None if dry_run else output, as_json)


def _drop(model: str, asked: "Asked", output: Path | None, as_json: bool) -> None:
    """Drop what was asked for and say so."""
    from litebert.analyse.progress import progress
    from litebert.shrink.report import sentences
    from litebert.shrink.run import shrink_model

    with progress() as say:
        report = shrink_model(model, asked, output, say)
    if as_json:
        import json

        typer.echo(json.dumps(report.as_plain() | {"output": None if output is None else str(output)}, indent=2))
        return
    for line in sentences(report):
        typer.echo(line)
    if output is not None:
        readers = "and transformers load" if report.loads_in_transformers else "loads (`convert --to hf` for others)"
        typer.echo(f"wrote {output}, which litebert {readers}")


def _search(
    model: str,
    words: list[str],
    read: tuple[str | None, Path | None, str | None, str | None],
    output: Path,
    tolerance: str,
    strategy: str | None,
    seeds: int,
    resume: bool,
    device: str,
) -> "TaskReport":
    """Search for what a task allows."""
    if seeds < 1:
        raise InputError(f"--seeds is {seeds} but must be 1 or more")
    allowed = parse_tolerance(tolerance)
    from litebert.shrink.strategies import parse_strategy

    chosen = None if strategy is None else parse_strategy(strategy)
    from litebert.analyse.inputs import check_device
    from litebert.shrink.for_task import USUAL, shrink_for_task
    from litebert.tasks.find import read_task
    from litebert.tasks.finetuning import FinetuneSettings
    from litebert.tasks.recipes import read_finetune_recipe

    check_device(device)
    task, data, columns, label = read
    found = read_task(task, data, text=columns, label=label)
    settings = FinetuneSettings(
        model=model,
        out=output,
        recipe=read_finetune_recipe("budget", found.name, found.kind, words),
        resume=resume,
        device=device,
    )
    return shrink_for_task(
        settings,
        found,
        tolerance=allowed,
        seeds=range(seeds),
        strategies=USUAL if chosen is None else (chosen,),
        say=lambda sentence: print(sentence, file=sys.stderr, flush=True),
    )


def _tell(report: "TaskReport", output: Path, as_json: bool) -> None:
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
        typer.echo(f"parameters: {report.parameters_before:,} before, {report.parameters_after:,} after")
        typer.echo(f"the fine-tuned model is in {output / 'model'}")


def parse_tolerance(text: str) -> float:
    """``1%`` or ``0.01`` as a number."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise InputError(f"--tolerance is '{text}' but must be a share such as 1% or 0.01") from None
    if not 0 <= share < 1:
        raise InputError(f"--tolerance is '{text}' but must be from 0 to below 100%")
    return share
