"""``litebert fill`` and ``litebert order``: texts from the command line, a file or standard input, answers printed."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.errors import InputError
from litebert.parameters import Param, PathLike, checked
from litebert.terminal import tell_typing

if TYPE_CHECKING:
    from litebert.fill import Guess
    from litebert.model import Model

Source = Annotated[PathLike, Param("A shipped name, or the folder of a pretrained model.", positional=True)]
Depth = Annotated[int | None, Param("Use only this many layers.", low=0)]
AsJson = Annotated[bool, Param("Print JSON.", option="json")]
OnDevice = Annotated[str, Param("auto (a GPU if there is one), cpu or cuda.")]


@checked
def fill(
    model: Source,
    texts: Annotated[
        Sequence[str] | None,
        Param("Texts with [MASK] in them; default: standard input.", positional=True, metavar="[TEXT]..."),
    ] = None,
    *,
    file: Annotated[PathLike | None, Param("A file with a text on each line.")] = None,
    cloze: Annotated[
        PathLike | None, Param("Score JSON lines of texts with accepted words, such as examples/cloze.jsonl.")
    ] = None,
    top: Annotated[int, Param("Number of guesses for each mask.", low=1, high=100_000)] = 5,
    depth: Depth = None,
    device: OnDevice = "auto",
    as_json: AsJson = False,
) -> None:
    """Predict the masked words in texts, or score a model on texts with known words."""
    from litebert.api import load

    if sum((bool(texts), file is not None, cloze is not None)) > 1:
        raise InputError("give only one of texts, file and cloze")
    if cloze is not None:
        _score(load(model, device=device), str(model), Path(cloze), top, depth, as_json)
        return
    lines = list(texts or _lines(file))
    loaded = load(model, device=device)
    found = loaded.fill(lines, top, depth=depth)
    if as_json:
        rows = [
            {"text": text, "masks": [[vars(guess) for guess in guesses] for guesses in masks]}
            for text, masks in zip(lines, found, strict=True)
        ]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for text, masks in zip(lines, found, strict=True):
        typer.echo(text)
        for number, guesses in enumerate(masks, 1):
            typer.echo(f"  {f'{number}: ' if len(masks) > 1 else ''}{_said(guesses)}")


@checked
def order(
    model: Source,
    texts: Annotated[
        Sequence[str] | None,
        Param("Two texts; default: lines with a tab between the two.", positional=True, metavar="[FIRST SECOND]"),
    ] = None,
    *,
    file: Annotated[PathLike | None, Param("A file with two texts and a tab between them on each line.")] = None,
    depth: Depth = None,
    device: OnDevice = "auto",
    as_json: AsJson = False,
) -> None:
    """Predict which of two neighbouring texts comes first, with the sentence-order head."""
    from litebert.api import load

    if texts and (file is not None or len(texts) != 2):
        raise InputError("give two texts, or a file of lines with a tab between the two")
    pairs = [(texts[0], texts[1])] if texts else [_pair(line) for line in _lines(file)]
    shares = load(model, device=device).order(pairs, depth=depth)
    if as_json:
        rows = [
            {"first": first, "second": second, "in_order": share}
            for (first, second), share in zip(pairs, shares, strict=True)
        ]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for (first, second), share in zip(pairs, shares, strict=True):
        likelier = (first, second) if share >= 0.5 else (second, first)
        verdict = "as given" if share >= 0.5 else "the other way round"
        typer.echo(f"{max(share, 1 - share):.1%} {verdict}: {likelier[0]} | {likelier[1]}")


def _lines(file: PathLike | None) -> list[str]:
    """The lines of a file or of standard input, without empty ones."""
    if file is not None and not Path(file).is_file():
        raise InputError(f"there is no file '{file}'")
    if file is None:
        tell_typing()
        content = sys.stdin.read()
    else:
        from litebert.data.files import read_text

        content = read_text(Path(file))
    lines = [line.strip("\r\n") for line in content.split("\n") if line.strip()]
    if not lines:
        raise InputError("there are no texts; give texts, a file, or lines on standard input")
    return lines


def _pair(line: str) -> tuple[str, str]:
    first, tab, second = line.partition("\t")
    if not tab or not first.strip() or not second.strip():
        raise InputError(f"'{line}' is not two texts separated by a tab")
    return first, second


def _said(guesses: "Sequence[Guess]") -> str:
    return "   ".join(f"{guess.word} {guess.probability:.1%}" for guess in guesses)


def _score(loaded: "Model", name: str, path: Path, top: int, depth: int | None, as_json: bool) -> None:
    """Score a list of texts with the words that fit."""
    from litebert.fill import as_plain, read_clozes, score_clozes, shares

    filled = score_clozes(loaded, read_clozes(path), top=top, depth=depth)
    scores = shares(filled)
    if as_json:
        facts = {"cloze": path.name, "model": name, "depth": depth or loaded.config.num_layers, "top": top}
        facts |= {"scores": {kind: vars(share) for kind, share in scores.items()}}
        typer.echo(json.dumps(facts | {"items": [as_plain(one) for one in filled]}, indent=2, ensure_ascii=False))
        return
    typer.echo(f"{'':12} {'texts':>6} {'first':>8} {f'top {top}':>8}")
    for kind, share in scores.items():
        typer.echo(f"{kind:12} {share.items:6} {share.first:8.1%} {share.top:8.1%}")
    missed = [one for one in filled if one.rank is None]
    if missed:
        typer.echo(f"\nno accepted word among the first {top}:")
    for one in missed:
        typer.echo(f"{one.cloze.text}  ({one.cloze.accept[0]})\n  {_said(one.guesses)}")
