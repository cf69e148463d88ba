"""What a search for a task found, as a report: before and after side by side, and all that was tried."""

import dataclasses
import statistics
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from litebert.report import COLOURS, GREY, MARKERS, Plot, Report, Section, Table, note, notes
from litebert.shrinking.search import Standing, TaskReport
from litebert.shrinking.strategies import layers_in_words, ranges

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BYTES = 4  # of a number, as models are written


def standing_rows(report: TaskReport) -> list[list[str]]:
    """Size, time and score: all layers, then what is left, and what that is of the whole."""
    rows = [
        ["", "layers", "parameters", "size", "time an input", report.metric.replace("_", " ")],
        ["before", *_cells(report.before)],
    ]
    if report.dropped:
        lost = statistics.fmean(report.after.scores) - statistics.fmean(report.before.scores)
        layers, parameters, time = (f"{share:.0%}" for share in _shares(report))
        rows += [
            ["after", *_cells(report.after)],
            ["of before", layers, parameters, parameters, time, f"{100 * lost:+.2f}"],
        ]
    return rows


def _shares(report: TaskReport) -> tuple[float, float, float]:
    """Layers, parameters and time after, each as a share of before."""
    before, after = report.before, report.after
    return (
        after.layers / before.layers,
        after.parameters / before.parameters,
        after.milliseconds / before.milliseconds,
    )


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


def found_report(report: TaskReport) -> Report:
    """All of it."""
    seeds = len(report.before.scores)
    of_seeds = "one seed" if seeds == 1 else f"mean and standard deviation of {seeds} seeds"
    kept = f"dropped: {ranges(report.dropped)}; kept: {ranges(report.kept)} of {layers_in_words(report.layers)}"
    plot = Plot(
        title=f"{report.metric.replace('_', ' ')} by layers dropped",
        reading="Every candidate that was fine-tuned, mean over its seeds; filled: within the tolerance. The dashed "
        "line is what the tolerance allows, the band what chance alone makes.",
        draw=partial(_draw, report),
    )
    found = Section(
        items=[
            note(f"tolerance: a loss of {100 * report.tolerance:g}%", "quiet"),
            *notes(report.sentences),
            *([note(kept)] if report.dropped else []),
            Table(rows=standing_rows(report)),
            note(f"Scores on dev, in points: {of_seeds}. Time: inference on this machine, in batches.", "quiet"),
            plot,
            *([_costs(report)] if report.dropped else []),
        ]
    )
    return Report(
        title=f"The layers of {report.model} that {report.task} can spare",
        sections=[found, Section(title="All that was tried", items=[Table(rows=_tried(report), left=(0, 2, 6))])],
        data=dataclasses.asdict(report),
    )


def _tried(report: TaskReport) -> list[list[str]]:
    rows = [["strategy", "dropped", "layers kept", "seeds", "score", "lost", "verdict"]]
    for one in report.found.verdicts:
        points = (f"{100 * one.mean:.2f}", f"{100 * one.loss:.2f}")
        rows.append([one.strategy, str(one.dropped), ranges(one.kept), str(one.seeds), *points, one.reason])
    return rows


def _costs(report: TaskReport) -> Plot:
    shares = dict(zip(("layers", "parameters, size", "time an input"), _shares(report), strict=True))
    score = statistics.fmean(report.before.scores)
    if score > 0:  # a correlation need not be
        shares[report.metric.replace("_", " ")] = max(0.0, statistics.fmean(report.after.scores) / score)
    reading = "Each as a share of what it was with all layers (the dashed line)."
    return Plot(title="What is left", reading=reading, draw=partial(_draw_costs, shares))


def _draw_costs(shares: dict[str, float], axes: "Axes") -> None:
    bars = axes.barh(list(shares), [100 * share for share in shares.values()], color=COLOURS[0], height=0.55)
    axes.bar_label(bars, [f"{share:.0%}" for share in shares.values()], padding=3, fontsize=9)
    axes.axvline(100, color=GREY, linestyle="--", linewidth=1)
    axes.invert_yaxis()
    axes.set_xlim(0, 115)
    axes.set_xlabel("% of before")


def _draw(report: TaskReport, axes: "Axes") -> None:
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
    axes.legend(frameon=False, fontsize=8, loc="lower left")
