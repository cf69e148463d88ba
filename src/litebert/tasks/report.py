"""An evaluation for people at a terminal, and as JSON for programs."""

import dataclasses
import json
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from litebert.tasks.evaluate import Evaluation
from litebert.tasks.kinds import KINDS
from litebert.tasks.metrics import IN_UNITS
from litebert.tasks.score import Hard, Scores
from litebert.terminal import text_width

MOST_LABELS = 12  # a larger matrix does not fit a terminal; the page has it
TITLES = {
    "f1": "F1",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "exact_match": "exact match",
    "matthews": "Matthews",
    "answerable_f1": "F1 where there is an answer",
    "answerable_exact_match": "exact match where there is an answer",
    "unanswerable_accuracy": "accuracy where there is none",
    "root_mean_squared_error": "root mean squared error",
}


def title(metric: str) -> str:
    """A metric's name for people."""
    return TITLES.get(metric, metric.replace("_", " "))


def figure(metric: str, value: float) -> str:
    """A metric for people: a share as a percentage without its sign, an error in its units."""
    return f"{value:.4g}" if metric in IN_UNITS else f"{100 * value:.2f}"


def to_json(evaluation: Evaluation) -> str:
    """Everything, as one JSON object; shares stay shares."""
    return json.dumps(dataclasses.asdict(evaluation), indent=2, ensure_ascii=False)


def print_evaluation(evaluation: Evaluation, console: Console | None = None) -> None:
    """Everything that fits a terminal."""
    console = console or Console(width=text_width(), highlight=False)
    console.print(f"[bold]{evaluation.task}[/bold]  {evaluation.source}", soft_wrap=True)
    for note in evaluation.notes:
        console.print(Text(f"note: {note}", style="yellow"))
    console.print(metrics_table(evaluation.parts))
    if evaluation.depths:
        console.print(depths_table(evaluation))
    for scores in evaluation.parts if len(evaluation.parts) == 1 else evaluation.parts[-1:]:
        _print_part(scores, console)


def metrics_table(parts: Sequence[Scores]) -> Table:
    """A row a part, a column a metric."""
    names = list(dict.fromkeys(name for scores in parts for name in scores.metrics))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column("items", justify="right")
    for name in names:
        table.add_column(title(name), justify="right")
    for scores in parts:
        cells = [figure(name, scores.metrics[name]) if name in scores.metrics else "" for name in names]
        table.add_row(scores.part, f"{scores.count:,}", *cells)
    return table


def depths_table(evaluation: Evaluation) -> Table:
    """A row a depth."""
    names = list(evaluation.depths[0].metrics)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("depth", justify="right")
    for name in names:
        table.add_column(title(name), justify="right")
    for row in evaluation.depths:
        table.add_row(str(row.depth), *(figure(name, row.metrics[name]) for name in names))
    return table


def _print_part(scores: Scores, console: Console) -> None:
    if scores.by_label:
        console.print()
        console.print(_labels_table(scores))
    if 1 < len(scores.confusion) <= MOST_LABELS:
        console.print("\n[bold]confusion matrix (rows: true label, columns: prediction)[/bold]")
        console.print(_confusion_table(scores))
    console.print()
    console.print(_lengths_table(scores))
    if scores.hardest:
        console.print("\n[bold]hardest[/bold]")
    for hard in scores.hardest[:5]:
        console.print(_hard_text(hard))


def _labels_table(scores: Scores) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("label")
    for name in ("precision", "recall", "F1", "items"):
        table.add_column(name, justify="right")
    for label in scores.by_label:
        shares = (f"{100 * value:.2f}" for value in (label.precision, label.recall, label.f1))
        table.add_row(Text(label.name), *shares, f"{label.count:,}")
    return table


def _confusion_table(scores: Scores) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in scores.labels:
        table.add_column(Text(name), justify="right")
    for index, (name, row) in enumerate(zip(scores.labels, scores.confusion, strict=True)):
        cells = [Text(f"{count:,}", style="bold" if column == index else "") for column, count in enumerate(row)]
        table.add_row(Text(name), *cells)
    return table


def _lengths_table(scores: Scores) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("characters")
    table.add_column("items", justify="right")
    table.add_column(scores.length_measure, justify="right")
    in_units = KINDS[scores.kind].in_units
    for row in scores.by_length:
        score = f"{row.score:.4g}" if in_units else f"{100 * row.score:.2f}"
        table.add_row(f"{row.shortest:,} to {row.longest:,}", f"{row.count:,}", score)
    return table


def _hard_text(hard: Hard) -> Text:
    sure = "" if hard.probability is None else f" (gave it {hard.probability:.1%})"
    text = Text()
    text.append(f"{hard.key}  ", style="bold")
    text.append(f"true {hard.expected}{sure}, predicted {hard.predicted}: ")
    shown = " ".join(hard.text.split())
    text.append(shown[:200] + (" …" if len(shown) > 200 else ""), style="dim")
    return text
