"""``litebert evaluate``. Light at import: what it needs, it imports when it runs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.errors import InputError

if TYPE_CHECKING:
    from litebert.tasks.evaluate import Evaluation, Predict
    from litebert.tasks.examples import Item, ItemPrediction, TaskData, TaskSpec


def evaluate(
    model: Annotated[
        Path | None,
        typer.Argument(help="A fine-tuned model folder, or with --corpus a pretrained one; not with --predictions."),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, ax, squad1, squad2, race, race-middle or "
            "race-high; none for a file of your own."
        ),
    ] = None,
    data: Annotated[str | None, typer.Option(help="The task's folder, or your own file.")] = None,
    text: Annotated[
        str | None, typer.Option(help="Columns of the text: one, a pair (subject,body), or joined (subject+body).")
    ] = None,
    label: Annotated[str | None, typer.Option(help="Column of the label.")] = None,
    kind: Annotated[
        str | None, typer.Option(help="classify, multilabel, regress, choice or span, where the guess is wrong.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="What to score: dev (as it is), test, train, or a part such as matched.")
    ] = None,
    predictions: Annotated[
        Path | None, typer.Option(help="Score this file instead of a model: TSV, JSON lines or SQuAD's JSON.")
    ] = None,
    corpus: Annotated[
        Path | None,
        typer.Option(
            help="Score how a pretrained model fills masks and tells order on this token store's held-out text."
        ),
    ] = None,
    length: Annotated[
        int | None, typer.Option(help="With --corpus: the longest input; 0 (as it is): the model's longest.", min=0)
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(help="With --corpus: what pairs ask, sop (which is first, as it is) or nsp (do they follow)."),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(help="With --corpus: how much text; unless given 65,536, or a million on a GPU.", min=1),
    ] = None,
    depths: Annotated[
        str | None, typer.Option(help="Scores at these depths, too: 2,4,6 or all.", metavar="N,N,...")
    ] = None,
    from_hub: Annotated[bool, typer.Option("--from-hub", help="Read the task through the datasets library.")] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda; by default cuda where there is one.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page with everything to this file.")] = None,
) -> None:
    """Score a model, or a file of predictions, on a task, on data of your own, or on the held-out text of a store."""
    if (model is None) == (predictions is None):
        raise InputError("give a model folder to evaluate, or a file of predictions with --predictions, one of the two")
    if corpus is not None:
        if model is None or task or data or html:
            raise InputError("with --corpus give a model and nothing of tasks: litebert evaluate MODEL --corpus STORE")
        from litebert.pretrain.verb import score_on_text

        chosen = _chosen_depths(model, depths)
        score_on_text(str(model), corpus, length or 0, chosen, order or "sop", tokens or 0, device, as_json)
        return
    if not (length is None and order is None and tokens is None):
        raise InputError("--length, --order and --tokens are of the text that a model is scored on; add --corpus STORE")
    if predictions is not None and depths:
        raise InputError("--depths needs a model; a file of predictions has only one depth")
    if model is not None and not model.is_dir():
        raise InputError(f"there is no folder '{model}'; name a model that `litebert finetune` made")
    if html is not None and not html.absolute().parent.is_dir():
        raise InputError(f"there is no folder '{html.absolute().parent}' to write {html.name} to")

    read = _read(model, task, data, text, label, kind, from_hub)
    _show(_evaluated(read, model, predictions, split, depths, device), as_json, html)


def _evaluated(
    read: "TaskData", model: Path | None, predictions: Path | None, split: str | None, depths: str | None, device: str
) -> "Evaluation":
    """The scores of a file of predictions or else of the model."""
    from litebert.tasks.evaluate import evaluate_file, evaluate_model

    if predictions is not None:
        return evaluate_file(read, predictions, split=split)
    assert model is not None
    from litebert.terminal import progress

    with progress() as say:
        return evaluate_model(
            read,
            str(model),
            _predictor(model, read, device, say),
            split=split,
            depths=_chosen_depths(model, depths),
            seen=_note(model).seen,
        )


def _read(
    model: Path | None,
    task: str | None,
    data: str | None,
    text: str | None,
    label: str | None,
    kind: str | None,
    from_hub: bool,
) -> "TaskData":
    """The data to score; a file of one's own is read as the model's was, unless something else is said."""
    from litebert.tasks.sources import read_task

    if from_hub:
        return read_task(task, data, text=text, label=label, kind=kind, from_hub=True)
    note = _note(model) if model is not None and task is None else None
    return read_task(
        task,
        data,
        text=text or (note.text if note else None),
        label=label or (note.label if note else None),
        kind=kind or (note.kind if note else None),
        labels=note.labels if note else None,
        whole=True,
    )


def _show(found: "Evaluation", as_json: bool, html: Path | None) -> None:
    from litebert.report import print_report, to_html, to_json
    from litebert.runs import write_atomically
    from litebert.tasks.report import evaluation_report

    report = evaluation_report(found)
    if html is not None:
        write_atomically(html, to_html(report))
        typer.echo(f"wrote {html}", err=True)
    if as_json:
        typer.echo(to_json(report))
    else:
        print_report(report)


def _note(model: Path) -> "TaskSpec":
    """What a model was fine-tuned for."""
    from litebert.checkpoints.folder import model_config
    from litebert.tasks.predicting import read_spec

    return read_spec(model, model_config(model))


def _predictor(model: Path, data: "TaskData", device: str, say: "Callable[[str], None]") -> "Predict":
    """What asks the model, loaded once, at its full depth or at another, and says how far it is."""
    from dataclasses import replace

    from litebert.tasks.evaluate import in_order_of
    from litebert.tasks.predicting import check_fits, load_predictor

    predictor = load_predictor(model, device=device)
    check_fits(predictor.note, data, model)

    def predict(items: "Sequence[Item]", depth: int | None) -> "list[ItemPrediction]":
        at = "" if depth is None else f"depth {depth}: "
        found = replace(predictor, depth=depth).predict(
            items, lambda done: say(f"{at}{done:,} of {len(items):,} items")
        )
        return in_order_of(found, predictor.note.labels, data.labels)

    return predict


def _chosen_depths(model: Path, depths: str | None) -> list[int]:
    """The depths that ``--depths`` names."""
    if not depths:
        return []
    from litebert.checkpoints.folder import model_config

    most = len(model_config(model).encoder.plan)
    if depths == "all":
        return list(range(1, most + 1))
    try:
        chosen = sorted({int(word) for word in depths.split(",")})
    except ValueError:
        raise InputError(f"--depths is '{depths}' but must be numbers such as 2,4,6, or all") from None
    if not chosen or chosen[0] < 1 or chosen[-1] > most:
        raise InputError(f"--depths is '{depths}' but the model has depths 1 to {most}")
    return chosen
