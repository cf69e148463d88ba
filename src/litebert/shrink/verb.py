"""``litebert shrink``. Light at import: what the verb needs, it imports when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from litebert.errors import InputError


def shrink(
    model: Annotated[str, typer.Argument(help="A litebert folder, a Hugging Face folder or a preset.")],
    drop: Annotated[int | None, typer.Option(help="How many layers to drop.")] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            help="Which: top, bottom, even, odd, symmetric; by what layers do to --text: contribution, greedy.  "
            "[default: top]"
        ),
    ] = None,
    keep: Annotated[str | None, typer.Option(help="The layers to keep instead, 1 at the bottom: 1,2,5-7.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The model folder to write.")] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="A text on each line, such as a development set; can be given again.")
    ] = None,
    texts: Annotated[int | None, typer.Option(help="Use the first so many texts only.")] = None,
    tokenizer: Annotated[Path | None, typer.Option(help="A tokenizer other than the model's own.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda, to look at the text with.")] = "cpu",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go and write nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Drop layers from a model, by number or by strategy (Poor Man's BERT), and write what is left."""
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
    from litebert.analyse.progress import progress
    from litebert.shrink.report import sentences
    from litebert.shrink.run import shrink_model

    with progress() as say:
        report = shrink_model(model, asked, None if dry_run else output, say)
    if as_json:
        import json

        typer.echo(json.dumps(report.as_plain() | {"output": None if dry_run else str(output)}, indent=2))
        return
    for line in sentences(report):
        typer.echo(line)
    if not dry_run:
        readers = "and transformers load" if report.loads_in_transformers else "loads (`convert --to hf` for others)"
        typer.echo(f"wrote {output}, which litebert {readers}")
