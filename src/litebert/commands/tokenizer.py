"""``litebert tokenizer try`` and ``fertility``: how a text is split, and how well several tokenizers fit a text."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from litebert.commands.show import AsJson, show_json
from litebert.errors import InputError
from litebert.parameters import Param, PathLike, checked

if TYPE_CHECKING:
    from litebert.text.tokenizer import Tokenizer


@checked
def try_tokenizer(
    folder: Annotated[PathLike, Param("A folder with a tokenizer, or a model folder.", positional=True)],
    text: Annotated[str, Param("What to encode.", positional=True)],
    *,
    pair: Annotated[str | None, Param("A second text, to see the two as one input.")] = None,
    as_json: AsJson = False,
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
    for row in [("id", "segment", "piece"), *zip(encoded.ids, encoded.segments, pieces, strict=True)]:
        typer.echo("{:>7} {:>8}  {}".format(*row))
    unknown = plain.count(tokenizer.unk_id) if tokenizer.unk_id is not None else 0
    typer.echo(f"{len(plain)} tokens for {words} words, {unknown} unknown; read back: {decoded}")


@checked
def fertility(
    folders: Annotated[
        Sequence[str],
        Param("Tokenizer folders; figures are relative to the last.", positional=True, metavar="FOLDER..."),
    ],
    *,
    on: Annotated[Sequence[str] | None, Param("Text to measure on: a file, folder or glob; may be repeated.")] = None,
    held_out: Annotated[
        float, Param("Measure on this share of documents, which train left out.", low=0, high=0.9)
    ] = 0.0,
    field: Annotated[str, Param("Field or column with the text.")] = "text",
    errors: Annotated[Literal["strict", "replace"], Param("Bytes that are not UTF-8: strict or replace.")] = "strict",
    as_json: AsJson = False,
) -> None:
    """Tokens per word of several tokenizers on the same text."""
    if not on:
        raise InputError("on is missing; name text to measure on", parameter="on")
    from litebert.text.documents import documents, is_held_out
    from litebert.text.train import measure_fertility

    tokenizers = [_read(folder) for folder in folders]
    texts = (
        document.text
        for document in documents(on, field=field, errors=errors)
        if not held_out or is_held_out(document.text, held_out)
    )
    results = measure_fertility(tokenizers, texts)
    if not results[0].tokens:
        raise InputError("no document was held out, so there is nothing to measure; raise held_out or give more text")
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
        show_json(rows)
        return
    typer.echo(f"{results[0].documents:,} documents, {results[0].words:,} words; relative to the last tokenizer")
    typer.echo("tokens/word  tokens/character  unknown   relative   pieces  tokenizer")
    for row in rows:
        typer.echo(
            f"{row['tokens_per_word']:11.4f}  {row['tokens_per_character']:16.4f}  {row['unknown_share']:7.3%}  "
            f"{row['relative']:9.4f}  {row['pieces']:7,}  {row['tokenizer']}"
        )


def _read(path: PathLike) -> "Tokenizer":
    """The tokenizer of a folder, with the input layout of the model in it, if any."""
    from litebert.text.tokenizer_files import read_tokenizer

    folder, family = Path(path), None
    config = folder / "config.json"
    if config.is_file():
        try:
            family = json.loads(config.read_text(encoding="utf-8")).get("model_type")
        except (ValueError, AttributeError):
            raise InputError(f"{config} is not a valid model configuration") from None
    return read_tokenizer(folder, family)
