"""``litebert shrink``. Light at import: what the verb needs, it imports when it runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.errors import InputError
from litebert.shrink.task_verbs import TaskAsked, compare_strategies, search

if TYPE_CHECKING:
    from litebert.shrink.choose import DropRequest


Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="FIELD=VALUE...", help="Fields of the fine-tuning: epochs=3.")
]
Rule = Annotated[
    str | None,
    typer.Option(
        help="Which: top, bottom, even, odd, symmetric; by what layers do to --text: contribution, greedy "
        "(default: top; with --tolerance the best of several, with --compare all but greedy)."
    ),
]
Text = Annotated[
    list[str] | None, typer.Option(help="A text on each line, such as a development set; can be given again.")
]
Tolerance = Annotated[
    str | None, typer.Option(help="Drop as many as a task allows: 1% is a point of its score. Fine-tunes to see.")
]
Compare = Annotated[
    bool, typer.Option("--compare", help="Fine-tune with every strategy and number, and write tables and a page.")
]
Task = Annotated[
    str | None, typer.Option(help="The task to fine-tune for, as for finetune; with --compare several: rte,mrpc.")
]
Recover = Annotated[
    bool, typer.Option("--recover", help="What is left learns from the whole model, too (see distill).")
]


def shrink(
    model: Annotated[str, typer.Argument(help="A litebert folder, a Hugging Face folder or a preset.")],
    overrides: Overrides = None,
    drop: Annotated[str | None, typer.Option(help="How many layers to drop; with --compare several: 2,4,6.")] = None,
    strategy: Rule = None,
    keep: Annotated[str | None, typer.Option(help="The layers to keep instead, 1 at the bottom: 1,2,5-7.")] = None,
    output: Annotated[Path | None, typer.Option("--out", "--output", "-o", help="The folder to write.")] = None,
    text: Text = None,
    texts: Annotated[int | None, typer.Option(help="Use the first so many texts only.")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="A tokenizer other than the model's own.")] = None,
    tolerance: Tolerance = None,
    compare: Compare = False,
    task: Task = None,
    data: Annotated[Path | None, typer.Option(help="The task's folder, or your own file.")] = None,
    columns: Annotated[str | None, typer.Option(help="Text columns of your own file, as finetune's --text.")] = None,
    label: Annotated[str | None, typer.Option(help="Label column of your own file.")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds that a verdict may take; the noise is told by them.")] = 3,
    when: Annotated[str, typer.Option(help="Layers go before fine-tuning, after it, or in steps.")] = "before",
    recover: Recover = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the runs in the folder.")] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go and write nothing.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a model in the folder.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Drop layers from a model, by number, by strategy (Poor Man's BERT) or as many as a task allows."""
    if tolerance is None and not compare:
        if overrides or task or data or columns or label or resume or recover or when != "before":
            raise InputError(
                "fine-tuning comes in with --tolerance 1% or --compare, such as --compare --task rte --data FOLDER"
            )
        asked_for = (drop, keep, strategy, tuple(text or ()), texts, tokenizer, device)
        _by_number(model, *asked_for, None if dry_run else output, dry_run, overwrite, as_json)
        return
    if output is None:
        raise InputError("say where the runs and what they give go with -o FOLDER")
    if text:
        raise InputError("with a task, the task's own texts are looked at; columns of your file are named by --columns")
    asked = TaskAsked(
        model=model,
        words=tuple(overrides or ()),
        task=task,
        data=data,
        columns=columns,
        label=label,
        output=output,
        strategy=strategy,
        seeds=seeds,
        when=when,
        recover=recover,
        resume=resume,
        device=device,
    )
    _by_task(asked, tolerance, compare, drop, keep is not None or dry_run, as_json)


def _by_task(
    asked: TaskAsked, tolerance: str | None, compare: bool, drop: str | None, others: bool, as_json: bool
) -> None:
    """What goes by a task's score."""
    if compare:
        if tolerance is not None or others or drop is None:
            raise InputError("--compare goes with --drop 2,4,6 and without --tolerance, --keep and --dry-run")
        compare_strategies(asked, drop, as_json)
        return
    assert tolerance is not None
    if drop is not None or others:
        raise InputError("--tolerance finds the number itself; leave out --drop, --keep and --dry-run")
    search(asked, tolerance, as_json)


def _by_number(
    model: str,
    drop: str | None,
    keep: str | None,
    strategy: str | None,
    text: tuple[str, ...],
    texts: int | None,
    tokenizer: Path | None,
    device: str,
    output: Path | None,
    dry_run: bool,
    overwrite: bool,
    as_json: bool,
) -> None:
    """What goes by a number of layers, or by their numbers."""
    if output is None and not dry_run:
        raise InputError("say where the smaller model goes with -o FOLDER, or only look with --dry-run")
    if texts is not None and texts < 1:
        raise InputError(f"--texts is {texts} but must be 1 or more")
    from litebert.shrink.choose import DropRequest, check_request

    request = DropRequest(
        keep=keep,
        drop=None if drop is None else _one(drop),
        strategy=strategy,
        text=text,
        most_texts=texts,
        tokenizer=tokenizer,
        device=device,
    )
    check_request(request)
    _drop(model, request, output, overwrite, as_json)


def _one(drop: str) -> int:
    """The number of layers to drop, where there is one."""
    if not drop.lstrip("-").isdecimal():
        raise InputError(f"--drop is '{drop}' but must be a number; several go with --compare")
    return int(drop)


def _drop(model: str, request: "DropRequest", output: Path | None, overwrite: bool, as_json: bool) -> None:
    """Drop the requested layers and report."""
    from litebert.shrink.model import report_lines, shrink_model

    report = shrink_model(model, request, output, overwrite=overwrite)
    if as_json:
        import json

        typer.echo(json.dumps(report.as_plain() | {"output": None if output is None else str(output)}, indent=2))
        return
    for line in report_lines(report):
        typer.echo(line)
    if output is not None:
        readers = "and transformers load" if report.loads_in_transformers else "loads (`convert --to hf` for others)"
        typer.echo(f"wrote {output}, which litebert {readers}")
