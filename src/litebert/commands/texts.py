"""``litebert fill``, ``order`` and ``predict``: texts from the command line, a file or standard input."""

import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from litebert.commands.show import AsJson, show_json
from litebert.errors import InputError
from litebert.parameters import DEVICE, Param, PathLike, checked, shown
from litebert.terminal import LINES, expect_silence, prompt_for_texts

if TYPE_CHECKING:
    from litebert.fill import Guess
    from litebert.model import Model
    from litebert.tasks.examples import Item, ItemPrediction, TaskSpec

Source = Annotated[PathLike, Param("A shipped name, or the folder of a pretrained model.", positional=True)]
Depth = Annotated[int | None, Param("Use only this many layers.", low=0)]
OnDevice = Annotated[str, Param("auto (a GPU if there is one), cpu or cuda.", form=DEVICE)]

FORMATS = ("jsonl", "csv", "tsv")
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
    from litebert.api import load

    if sum((bool(texts), file is not None, cloze is not None)) > 1:
        raise InputError("give only one of texts, file and cloze")
    if cloze is not None:
        _score(load(model, device=device), str(model), Path(cloze), top, depth, as_json)
        return
    lines = list(texts or _lines(file))
    loaded = load(model, device=device)
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
    from litebert.api import load

    if texts and (file is not None or len(texts) != 2):
        raise InputError("give two texts, or a file of lines with a tab between the two")
    pairs = [(texts[0], texts[1])] if texts else [_pair(line) for line in _lines(file)]
    found = list(zip(pairs, load(model, device=device).order(pairs, depth=depth), strict=True))
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
            raise InputError(f"there is no file '{file}'")
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
        Param("Texts: .txt (one per line), .jsonl, .csv, .tsv, .xlsx; default: standard input.", positional=True),
    ] = None,
    *,
    text: Annotated[str | None, Param("Columns with the text (default: those of the training data).")] = None,
    out: Annotated[PathLike | None, Param("Write here instead of standard output.", short="o")] = None,
    format: Annotated[
        Literal["jsonl", "csv", "tsv"] | None, Param("jsonl, csv or tsv (default: by the name of out, else jsonl).")
    ] = None,
    depth: Annotated[int | None, Param("Use only this many layers.", low=1)] = None,
    exits: Annotated[bool, Param("Exit early by the rule stored with the model (`litebert exits`).")] = False,
    windows: Annotated[bool, Param("Read long texts in overlapping windows instead of cutting them.")] = False,
    device: OnDevice = "auto",
) -> None:
    """Predict labels and probabilities: one row per text, in the order of the texts."""
    output, source = (None if path is None else Path(path) for path in (out, file))
    chosen = format or (output.suffix.removeprefix(".") if output else "jsonl")
    if chosen not in FORMATS:
        raise InputError(f"format is '{chosen}' but must be one of {', '.join(FORMATS)}", parameter="format")
    if output is not None and not output.absolute().parent.is_dir():
        raise InputError(f"there is no folder '{output.absolute().parent}' to write {output.name} to")
    from litebert.api import load
    from litebert.runs import new_file
    from litebert.tasks.tables import read_inputs
    from litebert.terminal import progress

    loaded = load(model, device=device, depth=depth)
    spec = loaded.required_task("predict")
    long = loaded.long_texts()

    def predict_items(some: "list[Item]", report: "Callable[[int], None]" = lambda _: None) -> "list[ItemPrediction]":
        found = loaded.predict_items(some, report=report, exits=exits, windows=windows)
        long.add(found)
        return found

    if source is None:
        prompt_for_texts()
    items = read_inputs(source, spec, text=text)
    if output is None:
        if not _write(sys.stdout, items, predict_items, spec, chosen):
            typer.echo(f"nothing was predicted: {source or 'standard input'} holds no texts", err=True)
        long.report()
        return
    count = 0
    with new_file(output) as handle, progress() as show:

        def predict_some(some: "list[Item]") -> "list[ItemPrediction]":
            nonlocal count
            found = predict_items(some, report=lambda done: show(f"{count + done:,} texts"))
            count += len(some)
            return found

        _write(handle, items, predict_some, spec, chosen)
    typer.echo(f"wrote {count:,} predictions to {output}", err=True)
    long.report()


def _write(
    handle: IO[str],
    items: "Iterator[Item]",
    predict_some: "Callable[[list[Item]], list[ItemPrediction]]",
    note: "TaskSpec",
    form: str,
) -> int:
    """Write predictions as items come; returns the number of items."""
    from litebert.tasks.kinds import KINDS

    writer = csv.writer(handle, delimiter="\t" if form == "tsv" else ",", lineterminator="\n")
    kind = KINDS[note.kind]
    names = kind.probability_names(note)
    if form != "jsonl":
        writer.writerow(["key", "label", *names])
    count = 0
    for some in _portions(items):
        for item, found in zip(some, predict_some(some), strict=True):
            label = kind.written(found.label, item, note.labels)
            if form == "jsonl":
                row: dict[str, Any] = {"key": found.key, "label": label}
                shares = [round(share, 6) for share in found.probabilities]
                if found.cut:
                    row["cut"] = True
                if found.windows > 1:
                    row["windows"] = found.windows
                if shares:
                    row["probabilities"] = dict(zip(names, shares, strict=False)) if names else shares
                handle.write(json.dumps(row, ensure_ascii=False) + "\n")
            else:
                shown = ";".join(label) if isinstance(label, list) else label
                writer.writerow([found.key, shown, *(f"{share:.6f}" for share in found.probabilities[: len(names)])])
        count += len(some)
        handle.flush()
        expect_silence(LINES)
    return count


def _portions(items: "Iterator[Item]") -> "Iterator[list[Item]]":
    size, portion = 1, []
    for item in items:
        portion.append(item)
        if len(portion) >= size:
            yield portion
            portion, size = [], min(2 * size, MOST_AT_ONCE)
    if portion:
        yield portion
