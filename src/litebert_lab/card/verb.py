"""``litebert card``. Light at import: what it needs, it imports when it runs."""

from pathlib import Path
from typing import Annotated

import typer

Hardware = Annotated[str, typer.Option(help="What it ran on, where the run did not record it: 'one H200'.")]
Watts = Annotated[
    float | None, typer.Option(help="Power of the device that the energy is reckoned with; said to be an assumption.")
]
Text = Annotated[Path | None, typer.Option(help="A Markdown file about the text, for that section.")]
Limits = Annotated[Path | None, typer.Option(help="A Markdown file about limits and biases, for that section.")]
Commands = Annotated[
    list[str] | None, typer.Option("--command", help="A command that made it, for the end of the card; again for more.")
]


def card(
    run: Annotated[Path, typer.Argument(help="The folder of a pretraining run.")],
    output: Annotated[Path, typer.Option("--out", "--output", "-o", help="The Markdown file to write.")] = Path(
        "CARD.md"
    ),
    results: Annotated[
        list[Path] | None,
        typer.Option(
            help="Results: JSON of evaluate, of fill --cloze, of results.py, or a finetune run; again for more."
        ),
    ] = None,
    after: Annotated[
        list[Path] | None,
        typer.Option(help="An earlier run whose model this one started from; again for more, the first one first."),
    ] = None,
    corpus: Annotated[Path | None, typer.Option(help="The token store of the run, where it was moved.")] = None,
    model: Annotated[str | None, typer.Option(help="The model, where its weights are not in the run.")] = None,
    name: Annotated[str, typer.Option(help="What the model is called; the run's name unless said.")] = "",
    hardware: Hardware = "",
    watts: Watts = None,
    text: Text = None,
    limits: Limits = None,
    commands: Commands = None,
) -> None:
    """Write a model card from the files of a run and from results; what is not known is said to be missing."""
    from litebert_lab.card.run import CardSettings, make_card

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
