"""``litebert layers``. Light at import: what the verb needs, it imports when it runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.errors import InputError

if TYPE_CHECKING:
    pass


def layers(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Model folders or presets, side by side.")],
    text: Annotated[
        list[str] | None, typer.Option(help="A text on each line, such as a development set; can be given again.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="The model they came from, such as the pretrained one of a fine-tuned one.")
    ] = None,
    untrained: Annotated[
        bool, typer.Option("--untrained", help="Also show the first model's shape with new weights.")
    ] = False,
    texts: Annotated[int | None, typer.Option(help="Use the first so many texts only.")] = None,
    max_length: Annotated[int, typer.Option(help="Cut longer texts to so many tokens.")] = 512,
    tokenizer: Annotated[Path | None, typer.Option(help="A tokenizer other than the models' own.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page with plots to this file.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write the plots to this file.")] = None,
) -> None:
    """Say what each layer of a model does to a text: distance, angle, contribution, likeness, attention."""
    if not text:
        raise InputError("layers are looked at by what they do to a text; name one with --text FILE")
    if texts is not None and texts < 1:
        raise InputError(f"--texts is {texts} but must be 1 or more")
    if max_length < 4:
        raise InputError(f"--max-length is {max_length} but must be 4 or more")
    for path in (html, png):
        if path is not None and not path.parent.is_dir():
            raise InputError(f"{path.parent} is not a folder, so {path.name} cannot be written there")
    from litebert.analyse.run import Asked, analyse
    from litebert.terminal import progress

    asked = Asked(
        models=tuple(models),
        text=tuple(text),
        against=against,
        untrained=untrained,
        most_texts=texts,
        max_length=max_length,
        tokenizer=tokenizer,
        device=device,
    )
    with progress() as say:
        found = analyse(asked, say, lambda note: typer.echo(f"note: {note}", err=True))
    from litebert.analyse.report import layers_report
    from litebert.analyse.run import short_names
    from litebert.report import print_report, to_html, to_json, write_png
    from litebert.runs import write_atomically

    report = layers_report(found, short_names([one.model for one in found]))
    if html is not None:
        write_atomically(html, to_html(report))
    if png is not None:
        write_png(report, png)
    if as_json:
        typer.echo(to_json(report))
        return
    print_report(report)
    for path in (html, png):
        if path is not None:
            typer.echo(f"wrote {path}")
