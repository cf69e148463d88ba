"""``litebert fill``, ``order`` and ``predict``: texts from the command line, a file or standard input."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from litebert import api
from litebert.api import On, ShardRows, Workers
from litebert.commands.show import AsJson, show_json
from litebert.errors import InputError
from litebert.parameters import DEVICE, Param, PathLike, checked, shown
from litebert.terminal import LINES, expect_silence, prompt_for_texts

if TYPE_CHECKING:
    from litebert.batch_inference import Written
    from litebert.fill import Guess
    from litebert.model import Model
    from litebert.tasks.examples import Item

Source = Annotated[PathLike, Param("A shipped name, or the folder of a pretrained model.", positional=True)]
Depth = Annotated[int | None, Param("Use only this many layers.", low=0)]
OnDevice = Annotated[str, Param("auto (a GPU if there is one), cpu or cuda.", form=DEVICE)]

MOST_AT_ONCE = 1024  # rows predicted together; fewer at first, so that the first answers come immediately


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
    if sum((bool(texts), file is not None, cloze is not None)) > 1:
        raise InputError("give only one of texts, file and cloze")
    if cloze is not None:
        _score(api.load(model, device=device), str(model), Path(cloze), top, depth, as_json)
        return
    lines = list(texts or _lines(file))
    loaded = api.load(model, device=device)
    mask = loaded.tokenizer.mask_token if loaded.tokenizer else None
    without = next((line for line in lines if mask and mask not in line), None)
    if without is not None:
        raise InputError(f"there is no {mask} in {shown(without)}; put one where a word is missing")
    found = list(zip(lines, loaded.fill(lines, top, depth=depth), strict=True))
    if as_json:
        show_json([{"text": text, "masks": [[vars(g) for g in guesses] for guesses in masks]} for text, masks in found])
        return
    for text, masks in found:
        typer.echo(text)
        for number, guesses in enumerate(masks, 1):
            typer.echo(f"  {f'{number}: ' if len(masks) > 1 else ''}{_in_words(guesses)}")


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
    if texts and file is not None:
        raise InputError(f"{file} cannot be combined with texts on the command line; leave one of them out")
    if texts and len(texts) != 2:
        raise InputError(
            f"give two texts, or a file of lines with a tab between the two; there are {len(texts)}, the last is "
            f"'{texts[-1][:60]}'"
        )
    pairs = [(texts[0], texts[1])] if texts else [_pair(line) for line in _lines(file)]
    found = list(zip(pairs, api.load(model, device=device).order(pairs, depth=depth), strict=True))
    if as_json:
        show_json([{"first": first, "second": second, "in_order": share} for (first, second), share in found])
        return
    for pair, share in found:
        likelier = pair if share >= 0.5 else pair[::-1]
        verdict = "as given" if share >= 0.5 else "the other way round"
        typer.echo(f"{max(share, 1 - share):.1%} {verdict}: {likelier[0]} | {likelier[1]}")


def _lines(file: PathLike | None) -> list[str]:
    """The lines of a file or of standard input, without empty ones."""
    if file is None:
        prompt_for_texts()
        content = sys.stdin.read()
    else:
        from litebert.data.files import read_text

        if not Path(file).is_file():
            raise InputError(f"there is no file '{file}'; check the name")
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


def _in_words(guesses: "Sequence[Guess]") -> str:
    return "   ".join(f"{guess.word} {guess.probability:.1%}" for guess in guesses)


def _score(loaded: "Model", name: str, path: Path, top: int, depth: int | None, as_json: bool) -> None:
    """Score a list of texts with the words that fit."""
    from litebert.fill import as_plain, read_clozes, score_clozes, shares

    filled = score_clozes(loaded, read_clozes(path), top=top, depth=depth)
    scores = shares(filled)
    if as_json:
        facts = {"cloze": path.name, "model": name, "depth": depth or loaded.num_layers, "top": top}
        facts |= {"scores": {kind: vars(share) for kind, share in scores.items()}}
        show_json(facts | {"items": [as_plain(one) for one in filled]})
        return
    typer.echo(f"{'':12} {'texts':>6} {'first':>8} {f'top {top}':>8}")
    for kind, share in scores.items():
        typer.echo(f"{kind:12} {share.items:6} {share.first:8.1%} {share.top:8.1%}")
    missed = [one for one in filled if one.rank is None]
    if missed:
        typer.echo(f"\nno correct word among the first {top}:")
    for one in missed:
        typer.echo(f"{one.cloze.text}  ({one.cloze.accept[0]})\n  {_in_words(one.guesses)}")


@checked
def predict(
    model: Annotated[PathLike, Param("A fine-tuned model or run folder.", positional=True)],
    file: Annotated[
        PathLike | None,
        Param(
            "Texts: a file, folder, glob or URL of .txt (one per line), .jsonl, .csv, .tsv, .parquet or .xlsx; "
            "default: standard input.",
            positional=True,
        ),
    ] = None,
    *,
    text: Annotated[str | None, Param("Columns with the text (default: those of the training data).")] = None,
    out: Annotated[
        PathLike | None,
        Param(
            "Write to this file, or (without a suffix) to a folder of shards, which the same command resumes.",
            short="o",
        ),
    ] = None,
    format: Annotated[
        Literal["jsonl", "csv", "tsv", "parquet"] | None,
        Param("jsonl, csv, tsv or parquet (default: by the name of out; in a folder that of the texts; else jsonl)."),
    ] = None,
    shard_rows: ShardRows = None,
    depth: Annotated[int | None, Param("Use only this many layers.", low=1)] = None,
    exits: Annotated[bool, Param("Exit early by the rule stored with the model (`litebert exits`).")] = False,
    windows: Annotated[bool, Param("Read long texts in overlapping windows instead of cutting them.")] = False,
    device: OnDevice = "auto",
    workers: Workers = 0,
    on: On = "here",
) -> None:
    """Predict labels and probabilities: one row per text, in the order of the texts."""
    if file is None:
        prompt_for_texts()
    source = file or "-"
    if out is not None:
        show_written(
            api.predict(
                model,
                source,
                out,
                text=text,
                format=format,
                shard_rows=shard_rows,
                depth=depth,
                exits=exits,
                windows=windows,
                device=device,
                workers=workers,
                on=on,
            )
        )
        return
    if format == "parquet" or shard_rows or workers or on != "here":
        raise InputError("parquet, shard_rows, workers and on need out; name a file or a folder")
    from litebert.batch_inference import label_head, label_lines
    from litebert.tasks.tables import read_inputs

    loaded = api.load(model, device=device, depth=depth)
    spec, form, long = loaded.required_task("predict"), format or "jsonl", loaded.long_texts()
    sys.stdout.write(label_head(spec, form))
    for items in _portions(read_inputs(source, spec, text=text)):
        found = loaded.predict_items(items, exits=exits, windows=windows)
        sys.stdout.write(label_lines(items, found, spec, form))
        sys.stdout.flush()
        expect_silence(LINES)
        long.add(found)
    long.report()
    if not long.count:
        typer.echo(f"nothing was predicted: {file or 'standard input'} holds no texts", err=True)


def show_written(written: "Written") -> None:
    """What was written, on standard error: standard output is for answers."""
    files = "" if written.files == 1 else f" ({written.files:,} shards)"
    there = f"; {written.skipped:,} of them were there already" if written.skipped else ""
    typer.echo(f"wrote {written.rows:,} {written.what} to {written.out}{files}{there}", err=True)


def _portions(items: "Iterator[Item]") -> "Iterator[list[Item]]":
    size, portion = 1, []
    for item in items:
        portion.append(item)
        if len(portion) >= size:
            yield portion
            portion, size = [], min(2 * size, MOST_AT_ONCE)
    if portion:
        yield portion
