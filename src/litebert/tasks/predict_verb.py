"""``litebert predict``. Light at import: what it needs, it imports when it runs."""

import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from litebert.errors import InputError
from litebert.terminal import tell_typing

if TYPE_CHECKING:
    from litebert.tasks.examples import Item, ItemPrediction, TaskSpec
    from litebert.tasks.predicting import Predictor

FORMATS = ("jsonl", "csv", "tsv")
MOST_AT_ONCE = 1024  # rows answered together; fewer at first, so that answers come at once


def predict(
    model: Annotated[Path, typer.Argument(help="A model or run folder that `litebert finetune` made.")],
    file: Annotated[
        Path | None, typer.Argument(help="Texts: .txt (one a line), .jsonl, .csv, .tsv; standard input without it.")
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="Columns of the text, as for finetune; those of the training file unless said.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--out", "-o", help="Write here instead of standard output.")] = None,
    kind: Annotated[
        str | None, typer.Option("--format", help="jsonl, csv or tsv; by default from --out, else jsonl.")
    ] = None,
    depth: Annotated[int | None, typer.Option(help="Use only so many layers.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda; by default cuda where there is one.")] = "",
) -> None:
    """Labels and probabilities for texts, a row for each, in their order."""
    chosen = kind or (output.suffix.removeprefix(".") if output else "jsonl")
    if chosen not in FORMATS:
        raise InputError(f"--format is '{chosen}' but must be one of {', '.join(FORMATS)}")
    if output is not None and not output.absolute().parent.is_dir():
        raise InputError(f"there is no folder '{output.absolute().parent}' to write {output.name} to")
    from litebert.tasks.inputs import read_inputs
    from litebert.tasks.predicting import load_predictor

    predictor = load_predictor(model, device=device, depth=depth)
    if file is None:
        tell_typing()
    items = read_inputs(file, predictor.note, text=text)
    if output is None:
        if not _write(sys.stdout, items, predictor.predict, predictor.note, chosen):
            typer.echo(f"nothing was predicted: {file or 'standard input'} holds no texts", err=True)
        return
    from litebert.terminal import progress

    partial = output.with_name(f".{output.name}.part")
    try:
        with partial.open("w", encoding="utf-8", newline="") as handle, progress() as say:
            count = _write(handle, items, _watched(predictor, say), predictor.note, chosen)
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)
    typer.echo(f"wrote {count:,} predictions to {output}", err=True)


def _watched(predictor: "Predictor", say: Callable[[str], None]) -> "Callable[[list[Item]], list[ItemPrediction]]":
    """The predictor, saying how many texts it has done so far."""
    before = 0

    def predict_some(items: "list[Item]") -> "list[ItemPrediction]":
        nonlocal before
        found = predictor.predict(items, lambda done: say(f"{before + done:,} texts"))
        before += len(items)
        return found

    return predict_some


def _write(
    handle: IO[str],
    items: "Iterator[Item]",
    predict_some: "Callable[[list[Item]], list[ItemPrediction]]",
    note: "TaskSpec",
    form: str,
) -> int:
    """Answer items as they come; how many there were."""
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
                handle.write(json.dumps(_object(found, label, names), ensure_ascii=False) + "\n")
            else:
                shown = ";".join(label) if isinstance(label, list) else label
                shares = [f"{share:.6f}" for share in found.probabilities[: len(names)]]
                writer.writerow([found.key, shown, *shares])
            count += 1
        handle.flush()
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


def _object(found: "ItemPrediction", label: Any, names: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {"key": found.key, "label": label}
    shares = [round(share, 6) for share in found.probabilities]
    if shares:
        row["probabilities"] = dict(zip(names, shares, strict=False)) if names else shares
    return row
