"""``litebert tokenizer``: train one, try one, and see how well several fit a text."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.errors import InputError

if TYPE_CHECKING:
    from litebert.text.tokenizer import Tokenizer

app = typer.Typer(help="Train a tokenizer, try one, compare some.", no_args_is_help=True)

Corpus = Annotated[
    list[str],
    typer.Argument(
        metavar="CORPUS...", help="Files (.txt, .jsonl, .parquet; .gz, .xz, .zst too), folders, globs, or - for stdin."
    ),
]
Field = Annotated[str, typer.Option(help="The field of .jsonl, or the column of .parquet, that holds the text.")]
Errors = Annotated[str, typer.Option(help="Text that is not UTF-8: strict stops and says where, replace goes on.")]
HoldOut = Annotated[
    float, typer.Option(min=0.0, max=0.9, help="The share of documents kept out of training, for measuring.")
]


@app.command("try")
def try_(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with a tokenizer, or a model folder.")],
    text: Annotated[str, typer.Argument(help="What to encode.")],
    pair: Annotated[str | None, typer.Option(help="A second text, to see the two as one input.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Show how a text is cut into pieces, with ids and segments as a model gets them."""
    tokenizer = _read(folder)
    encoded = tokenizer.encode(text, pair)
    pieces = [tokenizer.piece(index) for index in encoded.ids]
    plain = tokenizer.ids(text) + ([] if pair is None else tokenizer.ids(pair))
    words = len(f"{text} {pair or ''}".split())
    decoded = tokenizer.decode(encoded.ids)
    if as_json:
        answer = {"pieces": pieces, "ids": encoded.ids, "segments": encoded.segments, "decoded": decoded}
        typer.echo(json.dumps(answer, ensure_ascii=False))
        return
    columns = [("piece", *pieces), ("id", *map(str, encoded.ids)), ("segment", *map(str, encoded.segments))]
    for row in zip(*columns, strict=True):
        typer.echo(f"{row[1]:>7} {row[2]:>8}  {row[0]}")
    unknown = plain.count(tokenizer.unk_id) if tokenizer.unk_id is not None else 0
    typer.echo(f"{len(plain)} tokens for {words} words, {unknown} unknown; read back: {decoded}")


@app.command()
def fertility(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Tokenizers, the first compared with the rest.")
    ],
    on: Annotated[list[str], typer.Option(help="Text to measure on: a file, folder or glob; may be repeated.")],
    hold_out: HoldOut = 0.0,
    field: Field = "text",
    errors: Errors = "strict",
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of JSON objects.")] = False,
) -> None:
    """Tokens per word of several tokenizers on the same text; with --hold-out, on what `train` left out only."""
    from litebert.text.documents import documents, is_held_out
    from litebert.text.train import measure_fertility

    tokenizers = [_read(folder) for folder in folders]
    texts = (
        document.text
        for document in documents(on, field=field, errors=errors)  # type: ignore[arg-type]
        if not hold_out or is_held_out(document.text, hold_out)
    )
    results = measure_fertility(tokenizers, texts)
    if not results[0].tokens:
        raise InputError("there is nothing to measure on: no document was held out; raise --hold-out or give more text")
    rows = [
        {
            "tokenizer": str(folder),
            "pieces": tokenizer.vocab_size,
            "documents": result.documents,
            "words": result.words,
            "tokens": result.tokens,
            "tokens_per_word": round(result.per_word, 5),
            "tokens_per_character": round(result.per_character, 5),
            "unknown_share": round(result.unknown_share, 7),
            "relative": round(result.tokens / results[-1].tokens, 5),
        }
        for folder, tokenizer, result in zip(folders, tokenizers, results, strict=True)
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    typer.echo(f"{results[0].documents:,} documents, {results[0].words:,} words; relative to the last tokenizer")
    typer.echo("tokens/word  tokens/character  unknown   relative   pieces  tokenizer")
    for row in rows:
        typer.echo(
            f"{row['tokens_per_word']:11.4f}  {row['tokens_per_character']:16.4f}  {row['unknown_share']:7.3%}  "
            f"{row['relative']:9.4f}  {row['pieces']:7,}  {row['tokenizer']}"
        )


def _read(folder: Path) -> "Tokenizer":
    """The tokenizer of a folder, in the layout of the model beside it if there is one."""
    from litebert.text.tokenizer_files import read_tokenizer

    family = None
    config = folder / "config.json"
    if config.is_file():
        try:
            family = json.loads(config.read_text(encoding="utf-8")).get("model_type")
        except (ValueError, AttributeError):
            raise InputError(f"{config} is not a model configuration that can be read") from None
    return read_tokenizer(folder, family)
