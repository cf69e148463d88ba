"""``litebert predict``: reads texts as they arrive, predicts in growing batches and writes a row for each."""

import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from litebert.errors import InputError
from litebert.parameters import Param, PathLike, checked
from litebert.terminal import tell_typing

if TYPE_CHECKING:
    from litebert.tasks.examples import Item, ItemPrediction, TaskSpec

FORMATS = ("jsonl", "csv", "tsv")
MOST_AT_ONCE = 1024  # rows in a batch; fewer at first, so that the first predictions appear immediately


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
    device: Annotated[str, Param("auto (a GPU if there is one), cpu or cuda.")] = "auto",
) -> None:
    """Predict labels and probabilities: one row per text, in the order of the texts."""
    output, source = (None if path is None else Path(path) for path in (out, file))
    chosen = format or (output.suffix.removeprefix(".") if output else "jsonl")
    if chosen not in FORMATS:
        raise InputError(f"format is '{chosen}' but must be one of {', '.join(FORMATS)}", parameter="format")
    if output is not None and not output.absolute().parent.is_dir():
        raise InputError(f"there is no folder '{output.absolute().parent}' to write {output.name} to")
    from litebert.api import load
    from litebert.tasks.tables import read_inputs

    loaded = load(model, device=device, depth=depth)
    spec = loaded.required_task("predict")
    predict_items = partial(loaded.predict_items, exits=exits)
    if source is None:
        tell_typing()
    items = read_inputs(source, spec, text=text)
    if output is None:
        if not _write(sys.stdout, items, predict_items, spec, chosen):
            typer.echo(f"nothing was predicted: {source or 'standard input'} holds no texts", err=True)
        return
    from litebert.terminal import progress

    unfinished = output.with_name(f".{output.name}.part")
    try:
        with unfinished.open("w", encoding="utf-8", newline="") as handle, progress() as say:
            count = _write(handle, items, _watched(predict_items, say), spec, chosen)
        unfinished.replace(output)
    finally:
        unfinished.unlink(missing_ok=True)
    typer.echo(f"wrote {count:,} predictions to {output}", err=True)


def _watched(
    predict_items: "Callable[..., list[ItemPrediction]]", report: Callable[[str], None]
) -> "Callable[[list[Item]], list[ItemPrediction]]":
    """The same predictions, with the number of texts so far reported."""
    before = 0

    def predict_some(items: "list[Item]") -> "list[ItemPrediction]":
        nonlocal before
        found = predict_items(items, report=lambda done: report(f"{before + done:,} texts"))
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
    """Predict items as they arrive; returns their number."""
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
