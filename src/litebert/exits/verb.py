"""``litebert exits``. Light at import: what the verb needs, it imports when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from litebert.errors import InputError

REPORT, PAGE, HEADS = "exits.json", "exits.html", "heads.safetensors"


def exits(
    model: Annotated[str, typer.Argument(help="A fine-tuned model folder.")],
    task: Annotated[str | None, typer.Option(help="The task, as for finetune; none for a file of your own.")] = None,
    data: Annotated[Path | None, typer.Option(help="The task's folder, or your own file.")] = None,
    text: Annotated[str | None, typer.Option(help="Text columns of your own file, if not the model's.")] = None,
    label: Annotated[str | None, typer.Option(help="Label column of your own file, if not the model's.")] = None,
    dev: Annotated[Path | None, typer.Option(help="A file to score with; else some rows are set apart.")] = None,
    output: Annotated[
        Path | None, typer.Option("--out", "--output", "-o", help="The folder to write the report to.")
    ] = None,
    items: Annotated[int, typer.Option(help="The most training items that the heads learn from.")] = 10_000,
    device: Annotated[str, typer.Option(help="cpu or cuda; by default cuda where there is one.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score a fine-tuned model at every depth with small heads, and by rules that leave early."""
    if output is None:
        raise InputError("say where the report goes with -o FOLDER")
    if output.exists() and not output.is_dir():
        raise InputError(f"{output} is a file; name a folder for the report")
    if items < 2:
        raise InputError(f"--items is {items} but heads need 2 or more")
    from litebert.distill.teacher import read_for
    from litebert.exits.run import measure_exits
    from litebert.model import load

    loaded = load(model, device=device or "auto")
    if loaded.task is None:
        raise InputError(f"{model} has no head for a task; make one with `litebert finetune {model} ...`")
    read = read_for(loaded.task, task, data, text, label, dev)
    report, heads = measure_exits(loaded, read, most=items)

    from safetensors.torch import save_file

    from litebert.exits.report import exit_report
    from litebert.report import print_report, to_html, to_json
    from litebert.runs import parent_of, write_atomically, write_run

    output.mkdir(parents=True, exist_ok=True)
    shown = exit_report(report)
    write_atomically(output / REPORT, to_json(shown) + "\n")
    write_atomically(output / PAGE, to_html(shown))
    tensors = {
        f"{depth}.{name}": getattr(head, name) for depth, head in enumerate(heads, 1) for name in ("weight", "bias")
    }
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, output / HEADS)
    asked = {"model": model, "task": read.name, "items": items}
    write_run(output, "exits", asked, parents=[parent_of("source", Path(model))], result=report.full.metrics)
    if as_json:
        typer.echo(to_json(shown))
        return
    print_report(shown)
    typer.echo(f"wrote {output / PAGE}, {REPORT} and the heads ({HEADS})")
