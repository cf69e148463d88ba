"""What a search for a task found, for a person: a table of before and after, and a page that needs nothing else."""

import html
import statistics
from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes

from litebert.analyse.page import plot_part, table_part, whole_page
from litebert.analyse.panels import COLOURS, MARKERS, Panel
from litebert.shrink.search import Standing, TaskReport
from litebert.shrink.strategies import ranges

GREY = "#b8bec7"
BYTES = 4  # of a number, as models are written


def standing_rows(report: TaskReport) -> list[list[str]]:
    """Size, time and score: all layers, then what is left, and what that is of the whole."""
    before, after = report.before, report.after
    rows = [
        ["", "layers", "parameters", "size", "time an input", report.metric.replace("_", " ")],
        ["before", *_cells(before)],
    ]
    if report.dropped:
        lost = statistics.fmean(after.scores) - statistics.fmean(before.scores)
        rows += [
            ["after", *_cells(after)],
            [
                "of before",
                f"{after.layers / before.layers:.0%}",
                f"{after.parameters / before.parameters:.0%}",
                f"{after.parameters / before.parameters:.0%}",
                f"{after.milliseconds / before.milliseconds:.0%}",
                f"{100 * lost:+.2f}",
            ],
        ]
    return rows


def _cells(one: Standing) -> list[str]:
    return [
        str(one.layers),
        f"{one.parameters:,}",
        f"{BYTES * one.parameters / 1e6:.1f} MB",
        f"{one.milliseconds:.2f} ms",
        _points(one.scores),
    ]


def _points(scores: Sequence[float]) -> str:
    spread = f" ±{100 * statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
    return f"{100 * statistics.fmean(scores):.2f}{spread}"


def make_page(report: TaskReport) -> str:
    """The page."""
    title = f"The layers of {report.model} that {report.task} can spare"
    parts = [f"<h1>{html.escape(title)}</h1><p class=quiet>at a loss of {100 * report.tolerance:g}% or less</p>"]
    parts += [f"<p>{html.escape(sentence)}</p>" for sentence in report.sentences]
    if report.dropped:
        parts.append(f"<p>dropped: {ranges(report.dropped)}; kept: {ranges(report.kept)}</p>")
    seeds = len(report.before.scores)
    of_seeds = "one seed" if seeds == 1 else f"mean and standard deviation of {seeds} seeds"
    parts += [
        table_part(standing_rows(report)),
        f"<p class=quiet>Scores on dev, in points: {of_seeds}. Time: inference on this machine, in batches.</p>"
        "<div class=plots>",
        plot_part(
            Panel(
                f"{report.metric.replace('_', ' ')} by layers dropped",
                "Every candidate that was fine-tuned, mean over its seeds; filled: it may go. The dashed line is what "
                "the tolerance allows, the band what chance alone makes.",
                partial(_draw, report),
            )
        ),
        *([plot_part(_costs(report))] if report.dropped else []),
        "</div><h2>All that was tried</h2>",
        table_part(_tried(report)),
    ]
    return whole_page(title, parts)


def _tried(report: TaskReport) -> list[list[str]]:
    rows = [["strategy", "dropped", "layers kept", "seeds", "score", "lost", "verdict"]]
    for one in report.found.verdicts:
        rows.append(
            [
                one.strategy,
                str(one.dropped),
                ranges(one.kept),
                str(one.seeds),
                f"{100 * one.mean:.2f}",
                f"{100 * one.loss:.2f}",
                one.reason,
            ]
        )
    return rows


def _costs(report: TaskReport) -> Panel:
    before, after = report.before, report.after
    shares = {
        "layers": after.layers / before.layers,
        "parameters, size": after.parameters / before.parameters,
        "time an input": after.milliseconds / before.milliseconds,
    }
    score = statistics.fmean(before.scores)
    if score > 0:  # a correlation need not be
        shares[report.metric.replace("_", " ")] = max(0.0, statistics.fmean(after.scores) / score)
    reading = "Each as a share of what it was with all layers (the dashed line)."
    return Panel("What is left", reading, partial(_draw_costs, shares))


def _draw_costs(shares: dict[str, float], axes: Axes) -> None:
    bars = axes.barh(list(shares), [100 * share for share in shares.values()], color=COLOURS[0], height=0.55)
    axes.bar_label(bars, [f"{share:.0%}" for share in shares.values()], padding=3, fontsize=9)
    axes.axvline(100, color=GREY, linestyle="--", linewidth=1)
    axes.invert_yaxis()
    axes.set_xlim(0, 115)
    axes.set_xlabel("% of before")
    axes.spines[["top", "right"]].set_visible(False)


def _draw(report: TaskReport, axes: Axes) -> None:
    whole, noise = 100 * report.found.whole, 100 * report.found.noise
    axes.axhspan(whole - noise, whole, color=GREY, alpha=0.25, linewidth=0)
    axes.axhline(whole - 100 * report.tolerance, color=GREY, linestyle="--", linewidth=1)
    axes.plot([0], [whole], "*", color="black", markersize=9, label="all layers")
    names = list(dict.fromkeys(one.strategy for one in report.found.verdicts))
    for number, name in enumerate(names):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        aside = 0.08 * (number - (len(names) - 1) / 2)  # or one would hide the other
        for fits in (True, False):
            some = [one for one in report.found.verdicts if one.strategy == name and one.fits == fits]
            axes.plot(
                [one.dropped + aside for one in some],
                [100 * one.mean for one in some],
                marker,
                color=colour,
                markerfacecolor=colour if fits else "white",
                markersize=7,
            )
        axes.plot([], [], marker, color=colour, label=name)
    axes.set_xticks(range(report.layers))
    axes.set_xlabel("layers dropped")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="lower left")
