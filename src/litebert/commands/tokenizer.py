"""``litebert tokenizer try``: how a text is split; and how the figures of ``fertility`` are printed."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.commands.show import AsJson, show_json
from litebert.parameters import Param, PathLike, checked

if TYPE_CHECKING:
    from litebert.api import TokenizerFit


@checked
def try_tokenizer(
    folder: Annotated[PathLike, Param("A folder with a tokenizer, or a model folder.", positional=True)],
    text: Annotated[str, Param("What to encode.", positional=True)],
    *,
    pair: Annotated[str | None, Param("A second text, to see the two as one input.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show how a text is cut into pieces, with ids and segments as a model gets them."""
    from litebert.api import open_tokenizer

    tokenizer = open_tokenizer(folder)
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


def show_fertility(
    rows: "list[TokenizerFit]",
    *,
    as_json: AsJson = False,
) -> None:
    """How well each tokenizer fits the text, relative to the last."""
    if as_json:
        show_json([asdict(row) for row in rows])
        return
    typer.echo(f"{rows[0].documents:,} documents, {rows[0].words:,} words; relative to the last tokenizer")
    typer.echo("tokens/word  tokens/character  unknown   relative   pieces  tokenizer")
    for row in rows:
        typer.echo(
            f"{row.tokens_per_word:11.4f}  {row.tokens_per_character:16.4f}  {row.unknown_share:7.3%}  "
            f"{row.relative:9.4f}  {row.pieces:7,}  {row.tokenizer}"
        )
