"""A study as one HTML page that needs nothing else: verdicts, the table beside the paper's, plots."""

import html
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from litebert.corpus.look_page import BLUE, GREY, ORANGE, STYLE
from litebert.drawing import plot
from litebert.train.metrics import HELD_OUT, read_metrics
from litebert_lab.study.elastic import WITHIN
from litebert_lab.study.noise import Judged
from litebert_lab.study.plans import Finding
from litebert_lab.study.report import JUDGED_BY, METRICS, Line, Report, explained, table_of, verdict_of
from litebert_lab.study.run import row_folder

_svg = partial(plot, size=(4.6, 3.1), title_size=10)

if TYPE_CHECKING:
    from litebert_lab.study.run import Done

COLOURS = (BLUE, ORANGE, "#4f8a3c", "#7a5195", "#8c564b", "#17808a", "#b0413e", "#5b6675")
VERDICT_COLOURS = {"reproduced": "#cdebd0", "not reproduced": "#ffc2b8", "too small to tell": "#e6e9ee"}
MORE_STYLE = """
.wide { overflow-x: auto; } td, th { white-space: nowrap; } .finding { margin: .8rem 0; }
.finding p { margin: .1rem 0; }
.verdict { border-radius: 3px; padding: .1em .5em; font-weight: 600; }
.plots { grid-template-columns: repeat(auto-fit, minmax(min(100%, 320px), 1fr)); }
"""
Draw = Callable[[Axes], None]


def make_page(done: "Done", report: Report) -> str:
    """The page."""
    study, settings = report.study, done.settings
    title = f"Study: {study.about}"
    described = f"{settings.preset} with the {settings.recipe} recipe, {settings.length} a row, seeds: {settings.seeds}"
    if settings.words:
        described += f", {' '.join(settings.words)}"
    if study.table:
        described += f"; beside the paper's table of {study.table}"
    parts = [
        f"<h1>{html.escape(title)}</h1><p class=quiet>{html.escape(described)}</p>",
        *(
            f"<p class=note>{html.escape(line.row.label)}: {html.escape(line.remark)}</p>"
            for line in report.lines
            if line.remark
        ),
        "<h2>Findings</h2>",
        *([f"<p>The least loss first: <b>{html.escape(report.ranking)}</b></p>"] if report.ranking else []),
        *(_finding(finding, found) for finding, found in report.verdicts),
        f"<p class=quiet>{html.escape(JUDGED_BY)}</p>",
        "<h2>Rows</h2><div class=wide>",
        _table(table_of(report)),
        "</div>",
        *(f"<p class=quiet>{html.escape(note)}</p>" for note in report.notes),
        "<h2>Plots</h2><div class=plots>",
        *(_svg(draw) for draw in _plots(done, report)),
        "</div>",
    ]
    head = "<meta charset=utf-8><meta name=viewport content='width=device-width, initial-scale=1'>"
    return (
        f"<!doctype html><html lang=en>{head}<title>{html.escape(title)}</title><style>{STYLE}{MORE_STYLE}</style>"
        f"{''.join(parts)}</html>\n"
    )


def _finding(finding: Finding, found: Judged) -> str:
    colour, verdict = VERDICT_COLOURS[found.verdict], verdict_of(finding, found)
    mark = f"<span class=verdict style='background:{colour}'>{html.escape(verdict)}</span>"
    why = html.escape(explained(finding, found))
    return f"<div class=finding><p>{mark} {html.escape(finding.text)}</p><p class=quiet>{why}</p></div>"


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    heading = "".join(f"<th>{html.escape(cell)}</th>" for cell in rows[0])
    body = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows[1:]]
    return f"<table><tr>{heading}</tr>{''.join(f'<tr>{row}</tr>' for row in body)}</table>"


def _plots(done: "Done", report: Report) -> list[Draw]:
    plots: list[Draw] = []
    if any("mlm_loss" in line.figures for line in report.lines):
        plots.append(lambda axes: _draw_figures(axes, report, "mlm_loss", "here: held-out MLM loss (less is better)"))
    if "nsp_accuracy" in report.study.metrics:
        plots.append(lambda axes: _draw_orders(axes, report))
    if any(line.difference is not None for line in report.lines):
        plots.append(lambda axes: _draw_differences(axes, report))
    if any("average" in line.row.paper for line in report.lines):
        plots.append(lambda axes: _draw_paper(axes, report))
    plots.append(lambda axes: _draw_curves(axes, done, report))
    return plots


def _draw_figures(axes: Axes, report: Report, metric: str, title: str) -> None:
    """A metric with 95% of its noise: lines where the study has an axis, bars elsewhere."""
    found = [(line, line.figures[metric]) for line in report.lines if metric in line.figures]
    errors = {line.row.name: 1.96 * (figure.error or 0.0) for line, figure in found}
    values = {line.row.name: figure.value for line, figure in found}
    _draw_values(axes, report, [line for line, _ in found], values, errors)
    axes.set_title(title)


def _draw_differences(axes: Axes, report: Report) -> None:
    """How much more each row loses than the one beside it, with the interval of its verdict and the limit."""
    beside = {line.row.name: line.figures["mlm_loss"].value for line in report.lines if "mlm_loss" in line.figures}
    reach = {name: 100 * (found.interval or 0.0) for finding, found in report.verdicts for name in finding.weights}
    lines = [line for line in report.lines if line.difference is not None]
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
    axes.set(title=f"elastic against trained so: loss, %; dashed: {WITHIN:.0%}", xlabel=report.study.axis)


def _draw_paper(axes: Axes, report: Report) -> None:
    """The paper's averages in the same arrangement."""
    lines = [line for line in report.lines if "average" in line.row.paper]
    values = {line.row.name: float(line.row.paper["average"]) for line in lines}
    _draw_values(axes, report, lines, values, {})
    axes.set_title("the paper: average of tasks (more is better)")


def _draw_values(
    axes: Axes, report: Report, lines: Sequence[Line], values: dict[str, float], errors: dict[str, float]
) -> None:
    if not report.study.axis:
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
    axes.set_xlabel(report.study.axis)
    if any(line.row.line for line in lines):
        axes.legend(frameon=False)


def _draw_orders(axes: Axes, report: Report) -> None:
    """What each model knows of both questions, with the paper's answers as short lines."""
    lines = [line for line in report.lines if "sop_accuracy" in line.figures]
    for offset, (metric, colour) in zip((-0.2, 0.2), (("nsp_accuracy", BLUE), ("sop_accuracy", ORANGE)), strict=True):
        places = [number + offset for number in range(len(lines))]
        figures = [line.figures[metric] for line in lines]
        heights = [100 * figure.value for figure in figures]
        axes.bar(
            places,
            heights,
            0.36,
            yerr=[196 * (figure.error or 0) for figure in figures],
            color=colour,
            capsize=3,
            label=f"asked {METRICS[metric]}",
        )
        published = [float(line.row.paper[METRICS[metric]]) for line in lines]
        label = "the paper" if offset > 0 else ""
        axes.hlines(published, [p - 0.18 for p in places], [p + 0.18 for p in places], color="#1c2430", label=label)
    axes.axhline(50, color=GREY, linewidth=1)
    axes.set_xticks(range(len(lines)), [f"trained on {line.row.label}" for line in lines])
    axes.set_ylim(0, 116)  # room for the legend
    axes.set_yticks(range(0, 101, 20))
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper center")
    axes.set(title="order: right answers, %")


def _draw_curves(axes: Axes, done: "Done", report: Report) -> None:
    """Held-out loss over the run, of the first seed."""
    for number, line in enumerate(line for line in report.lines if not line.row.model):
        rows = read_metrics(row_folder(done.settings, line.row, 0))
        points = [
            (row["tokens"], row["mlm_loss"]) for row in rows if row.get("split") == HELD_OUT and "mlm_loss" in row
        ]
        if points:
            numbers = [(float(tokens or 0) / 1e6, float(loss or 0)) for tokens, loss in points]
            axes.plot(
                *zip(*numbers, strict=True), color=COLOURS[number % len(COLOURS)], linewidth=1.4, label=line.row.label
            )
    axes.axhline(report.unigram, color=GREY, linestyle="--", linewidth=1)
    if axes.get_lines()[:-1]:
        axes.legend(frameon=False, fontsize=7)
    axes.set(title="held-out MLM loss along the way; dashed: frequencies", xlabel="million tokens")
