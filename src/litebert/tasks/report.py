"""An evaluation as a report: scores, labels, the confusion matrix, scores by length and depth, the hardest items."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from litebert.report import BLUE, Item, Note, Plot, Report, Section, Table, notes
from litebert.tasks.kinds import KINDS
from litebert.tasks.metrics import IN_UNITS
from litebert.tasks.score import TOGETHER, Evaluation, Hard, Scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LABELS = 40  # a larger matrix cannot be read; its most frequent confusions are listed instead
MOST_CONFUSIONS = 20
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


def evaluation_report(evaluation: Evaluation) -> Report:
    """All of it."""
    parts = evaluation.parts
    first: list[Item] = [Note(((evaluation.source, ""),), "quiet"), *notes(evaluation.notes, "warning")]
    sections = [Section(items=[*first, Table(rows=metric_rows(parts))])]
    if evaluation.depths:
        sections.append(Section(title="By depth", items=_depths(evaluation)))
    for scores in parts:
        if len(parts) == 1 or scores.part != TOGETHER:
            sections += _sections(scores, prefix=f"{scores.part}: " if len(parts) > 1 else "")
    return Report(title=evaluation.task, sections=sections, data=dataclasses.asdict(evaluation))


def metric_rows(parts: Sequence[Scores]) -> list[list[str]]:
    """A row for each split, a column for each metric."""
    names = list(dict.fromkeys(name for scores in parts for name in scores.metrics))
    rows = [["", "items", *map(title, names)]]
    for scores in parts:
        cells = [figure(name, scores.metrics[name]) if name in scores.metrics else "" for name in names]
        rows.append([scores.part, f"{scores.count:,}", *cells])
    return rows


def _sections(scores: Scores, prefix: str) -> list[Section]:
    """What is shown of one split."""
    labels = [["label", "precision", "recall", "F1", "items"]]
    for label in scores.by_label:
        shares = (f"{100 * value:.2f}" for value in (label.precision, label.recall, label.f1))
        labels.append([label.name, *shares, f"{label.count:,}"])
    sections = [
        Section(title=f"{prefix}Labels", items=[Table(rows=labels)] if scores.by_label else []),
        Section(title=f"{prefix}Confusion matrix", items=_confusion(scores) if len(scores.confusion) > 1 else []),
        Section(title=f"{prefix}By length", items=_lengths(scores)),
        Section(title=f"{prefix}Hardest items", items=[_hard(one) for one in scores.hardest], brief=5),
    ]
    return [section for section in sections if section.items]


def _confusion(scores: Scores) -> list[Item]:
    """A matrix coloured by the share of its row, or the most frequent confusions where it would be too large."""
    if len(scores.labels) > MOST_LABELS:
        worst = sorted(
            (
                (count, scores.labels[row], scores.labels[column])
                for row, counts in enumerate(scores.confusion)
                for column, count in enumerate(counts)
                if count and row != column
            ),
            reverse=True,
        )[:MOST_CONFUSIONS]
        rows = [
            ["true label", "predicted", "items"],
            *([true, predicted, f"{count:,}"] for count, true, predicted in worst),
        ]
        return [Table(rows=rows, left=(0, 1))]
    body = [
        [name, *(f"{count:,}" if count else "·" for count in counts)]
        for name, counts in zip(scores.labels, scores.confusion, strict=True)
    ]
    shades = [
        [count / max(1, sum(counts)) * (1 if row == column else -1) for column, count in enumerate(counts)]
        for row, counts in enumerate(scores.confusion)
    ]
    table = Table(rows=[["", *scores.labels], *body], shades=shades)
    return [Note((("rows: true label, columns: prediction", ""),), "quiet"), table]


def _lengths(scores: Scores) -> list[Item]:
    scale, form = (1, "{:.4g}") if KINDS[scores.kind].in_units else (100, "{:.2f}")
    rows = [["characters", "items", scores.length_measure]]
    for row in scores.by_length:
        rows.append([f"{row.shortest:,} to {row.longest:,}", f"{row.count:,}", form.format(scale * row.score)])
    plot = Plot(title=f"{scores.length_measure}, by characters", draw=partial(_draw_lengths, scores, scale))
    return [Table(rows=rows), plot]


def _draw_lengths(scores: Scores, scale: int, axes: "Axes") -> None:
    names = [f"{row.shortest:,}\nto {row.longest:,}" for row in scores.by_length]
    bars = axes.bar(range(len(names)), [scale * row.score for row in scores.by_length], color=BLUE)
    axes.bar_label(bars, fmt="%.1f" if scale == 100 else "%.3g", fontsize=8)
    axes.set_xticks(range(len(names)), names, fontsize=8)
    if scale == 100:
        axes.set_ylim(0, 109)


def _depths(evaluation: Evaluation) -> list[Item]:
    names = list(evaluation.depths[0].metrics)
    rows = [["depth", *map(title, names)]]
    rows += [[str(row.depth), *(figure(name, row.metrics[name]) for name in names)] for row in evaluation.depths]

    def draw(axes: "Axes") -> None:
        depths = [row.depth for row in evaluation.depths]
        axes.plot(depths, [100 * row.metrics[names[0]] for row in evaluation.depths], "o-", color=BLUE)
        axes.set_xticks(depths)

    return [Table(rows=rows), Plot(title=f"{title(names[0])}, by depth", draw=draw)]


def _hard(hard: Hard) -> Note:
    """An item with its label, the probability it was given, what was predicted, and its text."""
    sure = "" if hard.probability is None else f" ({hard.probability:.1%})"
    return Note(
        (
            (f"{hard.key}  ", "strong"),
            ("true ", "quiet"),
            (hard.expected, "good"),
            (f"{sure}, predicted ", "quiet"),
            (hard.predicted, "bad"),
            (f"\n{hard.text}", ""),
        ),
        "example",
    )
