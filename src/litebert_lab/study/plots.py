"""The plots of a study: what was measured here, what the paper has, and the loss along the way."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from litebert.report import BLUE, COLOURS, GREY, ORANGE, Plot
from litebert.train.metrics import HELD_OUT, read_metrics
from litebert_lab.study.elastic import WITHIN

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from litebert_lab.study.report import Line, Outcome
    from litebert_lab.study.run import Done

METRICS = {"mlm_loss": "MLM loss", "mlm_accuracy": "MLM", "nsp_accuracy": "NSP", "sop_accuracy": "SOP"}
ORDERS_READING = "Black lines: the paper. Grey line: chance."


def plots(done: "Done", outcome: "Outcome") -> list[Plot]:
    """Those that this study has figures for."""
    found: list[Plot] = []
    lines = outcome.lines
    if any("mlm_loss" in line.figures for line in lines):
        draw = partial(_draw_figures, outcome, "mlm_loss")
        found.append(Plot(title="here: held-out MLM loss (less is better)", reading="Bars: 95% interval.", draw=draw))
    if "nsp_accuracy" in outcome.study.metrics:
        found.append(Plot(title="order: accuracy, %", reading=ORDERS_READING, draw=partial(_draw_orders, outcome)))
    if any(line.difference is not None for line in lines):
        title = f"elastic against trained at this depth: loss, %; dashed: {WITHIN:.0%}"
        found.append(Plot(title=title, draw=partial(_draw_differences, outcome)))
    if any("average" in line.row.paper for line in lines):
        title = "the paper: average of tasks (more is better)"
        found.append(Plot(title=title, draw=partial(_draw_paper, outcome)))
    title = "held-out MLM loss during training; dashed: word frequencies"
    return [*found, Plot(title=title, draw=partial(_draw_curves, done, outcome))]


def _draw_figures(outcome: "Outcome", metric: str, axes: "Axes") -> None:
    """A metric with 95% of its noise: lines where the study has an axis, bars elsewhere."""
    found = [(line, line.figures[metric]) for line in outcome.lines if metric in line.figures]
    errors = {line.row.name: 1.96 * (figure.error or 0.0) for line, figure in found}
    values = {line.row.name: figure.value for line, figure in found}
    _draw_values(axes, outcome, [line for line, _ in found], values, errors)


def _draw_differences(outcome: "Outcome", axes: "Axes") -> None:
    """How much more each row loses than the one beside it, with the interval of its verdict and the limit."""
    beside = {line.row.name: line.figures["mlm_loss"].value for line in outcome.lines if "mlm_loss" in line.figures}
    reach = {name: 100 * (found.interval or 0.0) for finding, found in outcome.verdicts for name in finding.weights}
    lines = [line for line in outcome.lines if line.difference is not None]
    axes.errorbar(
        [f"{line.row.place:,.0f}" for line in lines],
        [100 * (line.difference or 0.0) for line in lines],
        yerr=[reach[line.row.name] / beside[line.row.beside] for line in lines],
        fmt="o",
        capsize=3,
        color=ORANGE,
    )
    axes.axhline(0, color=GREY, linewidth=1)
    axes.axhline(100 * WITHIN, color="#b0413e", linestyle="--", linewidth=1)
    axes.margins(x=0.15, y=0.15)
    axes.set_xlabel(outcome.study.axis)


def _draw_paper(outcome: "Outcome", axes: "Axes") -> None:
    """The paper's averages in the same arrangement."""
    lines = [line for line in outcome.lines if "average" in line.row.paper]
    _draw_values(axes, outcome, lines, {line.row.name: float(line.row.paper["average"]) for line in lines}, {})


def _draw_values(
    axes: "Axes", outcome: "Outcome", lines: Sequence["Line"], values: Mapping[str, float], errors: Mapping[str, float]
) -> None:
    if not outcome.study.axis:
        names = [line.row.label for line in lines]
        reach = [errors.get(line.row.name, 0.0) for line in lines] if errors else None
        axes.errorbar([values[line.row.name] for line in lines], names, xerr=reach, fmt="o", capsize=3, color=BLUE)
        axes.invert_yaxis()
        axes.grid(axis="y", alpha=0.3)
        axes.margins(x=0.15, y=0.15)
        return
    for number, name in enumerate(dict.fromkeys(line.row.line for line in lines)):
        some = [line for line in lines if line.row.line == name]
        axes.errorbar(
            [line.row.place or 0.0 for line in some],
            [values[line.row.name] for line in some],
            yerr=[errors.get(line.row.name, 0.0) for line in some] if errors else None,
            marker="o",
            capsize=3,
            color=COLOURS[number],
            label=name or None,
        )
    axes.set_xscale("log")
    places = sorted({line.row.place or 0.0 for line in lines})
    axes.set_xticks(places, [f"{place:,.0f}" for place in places])
    axes.minorticks_off()
    axes.set_xlabel(outcome.study.axis)


def _draw_orders(outcome: "Outcome", axes: "Axes") -> None:
    """What each model knows of both questions, with the paper's answers as short lines."""
    lines = [line for line in outcome.lines if "sop_accuracy" in line.figures]
    for offset, (metric, colour) in zip((-0.2, 0.2), (("nsp_accuracy", BLUE), ("sop_accuracy", ORANGE)), strict=True):
        places = [number + offset for number in range(len(lines))]
        figures = [line.figures[metric] for line in lines]
        reach = [196 * (figure.error or 0) for figure in figures]
        heights = [100 * figure.value for figure in figures]
        axes.bar(places, heights, 0.36, yerr=reach, color=colour, capsize=3, label=f"asked {METRICS[metric]}")
        published = [float(line.row.paper[METRICS[metric]]) for line in lines]
        label = "the paper" if offset > 0 else ""
        axes.hlines(published, [p - 0.18 for p in places], [p + 0.18 for p in places], color="#1c2430", label=label)
    axes.axhline(50, color=GREY, linewidth=1)
    axes.set_xticks(range(len(lines)), [f"trained on {line.row.label}" for line in lines])
    axes.set_ylim(0, 116)  # room for the legend
    axes.set_yticks(range(0, 101, 20))
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper center")


def _draw_curves(done: "Done", outcome: "Outcome", axes: "Axes") -> None:
    """Held-out loss over the run, of the first seed."""
    for number, line in enumerate(line for line in outcome.lines if not line.row.model):
        rows = read_metrics(done.folder(line.row, 0))
        points = [
            (float(row["tokens"] or 0) / 1e6, float(row["mlm_loss"] or 0))
            for row in rows
            if row.get("split") == HELD_OUT and "mlm_loss" in row
        ]
        if points:
            colour = COLOURS[number % len(COLOURS)]
            axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.4, label=line.row.label)
    axes.axhline(outcome.unigram, color=GREY, linestyle="--", linewidth=1)
    axes.set_xlabel("million tokens")
