"""``litebert layers``. Light at import: what the verb needs, it imports when it runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.errors import InputError

if TYPE_CHECKING:
    from litebert.analyse.measure import ModelFigures


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
    from litebert.analyse.measure import LayersRequest, analyse

    request = LayersRequest(
        models=tuple(models),
        text=tuple(text),
        against=against,
        untrained=untrained,
        most_texts=texts,
        max_length=max_length,
        tokenizer=tokenizer,
        device=device,
    )
    found = analyse(request)
    _write(found, html, png)
    if as_json:
        import dataclasses
        import json

        typer.echo(json.dumps({"models": [dataclasses.asdict(one) for one in found]}, indent=2, ensure_ascii=False))
        return
    from litebert.analyse.page import layer_rows, order_in_words

    for one in found:
        typer.echo(f"{one.model}: {one.family}, {one.texts:,} texts, {one.tokens:,} tokens")
        rows = layer_rows(one)
        widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        for row in rows:
            typer.echo("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
        typer.echo(f"{order_in_words(one)}\n")
    for path in (html, png):
        if path is not None:
            typer.echo(f"wrote {path}")


def _write(found: "list[ModelFigures]", html: Path | None, png: Path | None) -> None:
    if html is None and png is None:
        return
    from litebert.analyse.measure import short_names
    from litebert.analyse.page import make_page, write_picture
    from litebert.runs import write_atomically

    labels = short_names([one.model for one in found])
    if html is not None:
        write_atomically(html, make_page(found, labels))
    if png is not None:
        write_picture(png, found, labels)
