"""The picture of a run: loss, accuracies and the rate over its steps, drawn from ``metrics.jsonl``."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from litebert.parameters import format_duration
from litebert.runs import Status
from litebert.train.callbacks import Callback
from litebert.train.metrics import HELD_OUT, Row, read_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from litebert.train.trainer import Trainer

log = logging.getLogger(__name__)

PICTURE = "loss.png"
COLOURS = ("#1f5fa8", "#c8553d", "#4f8a3c", "#7a5195")
OTHER_DEPTHS = ("depth_", "shallow_", "taught_")  # of elastic runs: a picture of all would show none
WORDS = {"mlm": "masked words", "order": "sentence order"}
Points = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


class Plot(Callback):
    """Draws the curves when a run ends; comes after the metrics file."""

    def __init__(self, run: Path, *, unigram: float | None = None) -> None:
        self.run, self.unigram = run, unigram

    def on_end(self, trainer: "Trainer", status: Status) -> None:
        try:
            draw_run(self.run, unigram=self.unigram)
        except OSError as error:  # the run is safe; a picture can be drawn again
            log.warning("could not draw %s: %s", self.run / PICTURE, error.strerror or error)


def draw_run(run: Path, *, unigram: float | None = None) -> Path | None:
    """Draw the curves of a run to RUN/loss.png; None where it has no figures yet.

    ``unigram`` is the loss of guessing by word frequency alone, which a model must get below.
    """
    # Not pyplot, which keeps figures and picks a window system.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    rows = read_metrics(run)
    training = [row for row in rows if row.get("split") != HELD_OUT]
    held_out = [row for row in rows if row.get("split") == HELD_OUT]
    losses = _names(rows, "_loss") or _names(rows, "loss")
    if not losses:
        return None
    accuracies, rates = _names(rows, "accuracy"), _points(training, "rate")
    heights = [3.0] + [2.0] * bool(accuracies) + [1.0] * bool(rates[0].size)
    figure = Figure(figsize=(9, 1.0 + 1.3 * sum(heights)), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    grid = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)
    axes: list[Axes] = list(grid[:, 0])
    figure.suptitle(_title(run, training or rows), fontsize=11, x=0.01, ha="left")
    _draw_losses(axes[0], training, held_out, losses, unigram)
    if accuracies:
        _draw_accuracies(axes[1], training, held_out, accuracies)
    if rates[0].size:
        axes[-1].plot(*rates, color="#555555", linewidth=1.4)
        axes[-1].set_ylabel("rate")
        axes[-1].set_ylim(bottom=0)
        axes[-1].ticklabel_format(axis="y", style="sci", scilimits=(-3, 3))
    for axis in axes:
        axis.grid(alpha=0.25, linewidth=0.6)
        axis.margins(x=0.01)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("step")
    axes[-1].xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}")
    axes[-1].xaxis.set_major_locator(MaxNLocator(nbins=9, integer=True))
    temporary = run / f".{PICTURE}"
    canvas.print_png(temporary)
    return temporary.replace(run / PICTURE)


def _draw_losses(
    axis: "Axes", training: Sequence[Row], held_out: Sequence[Row], names: Sequence[str], unigram: float | None
) -> None:
    """Each part's loss: raw in pale, smoothed over it, held-out as dots on a line."""
    shown: list[npt.NDArray[np.float64]] = []
    for name, colour in zip(names, COLOURS * len(names), strict=False):
        steps, values = _points(training, name)
        smooth = _smoothed(values)
        if values.size:
            axis.plot(steps, values, color=colour, alpha=0.3, linewidth=0.8)
            axis.plot(steps, smooth, color=colour, linewidth=1.6, label=f"{_words(name)}, training")
        scored = _points(held_out, name)
        _draw_held_out(axis, scored, colour, _words(name))
        shown += [smooth, scored[1]]
    if unigram is not None:
        label = f"word frequency alone ({unigram:.2f})"
        axis.axhline(unigram, color="#333333", linestyle="--", linewidth=1.0, label=label)
        shown.append(np.array([unigram]))
    # The explosion of a run would flatten everything else, so no more than twice what it began with is shown.
    begun = max(float(values[0]) for values in shown if values.size)
    top = min(float(np.max(np.concatenate(shown))), 2 * begun)
    axis.set_ylim(0, top * 1.06 if top > 0 else 1)
    axis.set_ylabel("loss (nats)")
    axis.legend(loc="best", fontsize=8, framealpha=0.85, edgecolor="none")


def _draw_accuracies(axis: "Axes", training: Sequence[Row], held_out: Sequence[Row], names: Sequence[str]) -> None:
    for name, colour in zip(names, COLOURS * len(names), strict=False):
        steps, values = _points(training, name)
        if values.size:
            axis.plot(steps, 100 * values, color=colour, alpha=0.25, linewidth=0.8)
            axis.plot(steps, 100 * _smoothed(values), color=colour, linewidth=1.4, label=f"{_words(name)}, training")
        steps, values = _points(held_out, name)
        _draw_held_out(axis, (steps, 100 * values), colour, _words(name), unit="%")
    axis.set_ylabel("right (%)")
    axis.set_ylim(0, 101)
    axis.legend(loc="best", fontsize=8, framealpha=0.85, edgecolor="none")


def _draw_held_out(axis: "Axes", points: Points, colour: str, words: str, unit: str = "") -> None:
    if points[0].size:
        axis.plot(
            *points,
            color=colour,
            linestyle=":",
            linewidth=1.4,
            marker="o",
            markersize=4.5,
            markerfacecolor="white",
            label=f"{words}, held-out ({points[1][-1]:.3g}{unit})",
        )


def _names(rows: Sequence[Row], ending: str) -> list[str]:
    """The figures of this kind that some row has, in the order they first occur."""
    return [
        name
        for name in dict.fromkeys(name for row in rows for name in row if name.endswith(ending))
        if _points(rows, name)[0].size and not name.startswith(OTHER_DEPTHS)
    ]


def _points(rows: Sequence[Row], name: str) -> Points:
    pairs = [(row.get("step"), row.get(name)) for row in rows]
    known = [(x, y) for x, y in pairs if isinstance(x, int | float) and isinstance(y, int | float)]
    return np.array([x for x, _ in known], dtype=np.float64), np.array([y for _, y in known], dtype=np.float64)


def _smoothed(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """A running mean over a fiftieth of the run, shorter at the ends, so that the curve does not lag."""
    reach = values.size // 100
    sums = np.concatenate([[0.0], np.cumsum(values)])
    places = np.arange(values.size)
    reaches = np.minimum(reach, np.minimum(places, values.size - 1 - places))
    return (sums[places + reaches + 1] - sums[places - reaches]) / (2 * reaches + 1)


def _words(name: str) -> str:
    part = name.removesuffix("loss").removesuffix("accuracy").removesuffix("_")
    return WORDS.get(part, part.replace("_", " ") or "all")


def _title(run: Path, rows: Sequence[Row]) -> str:
    """The run and how far it went."""
    last = rows[-1]
    parts = [run.resolve().name]
    for name, form in (("step", "{:,} steps"), ("tokens", "{} million tokens"), ("seconds", "{}")):
        value = last.get(name)
        if isinstance(value, int | float):
            parts.append(form.format(_figure(name, value)))
    return "  ·  ".join(parts)


def _figure(name: str, value: float) -> float | str:
    """A figure of the title: tokens in millions, time in words."""
    if name == "tokens":
        return f"{value / 1e6:,.0f}" if value >= 1e8 else f"{value / 1e6:.3g}"
    return format_duration(value) if name == "seconds" else value
