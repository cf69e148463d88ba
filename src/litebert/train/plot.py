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
from litebert.train.metrics import HELD_OUT, Row, number, read_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from litebert.train.trainer import Trainer

log = logging.getLogger(__name__)

PICTURE = "loss.png"
COLOURS = ("#1f5fa8", "#c8553d", "#4f8a3c", "#7a5195")
LEFT_OUT = ("depth_", "shallow_", "taught_", "averaged_")  # other depths, averages: a picture of all would show none
WORDS = {"mlm": "masked words", "order": "sentence order"}
Values = npt.NDArray[np.float64]


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
    axes: list[Axes] = list(figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0])
    figure.suptitle(_title(run, (training or rows)[-1]), fontsize=11, x=0.01, ha="left")
    shown = _draw(axes[0], training, held_out, losses)
    if unigram is not None:
        label = f"word frequency alone ({unigram:.2f})"
        axes[0].axhline(unigram, color="#333333", linestyle="--", linewidth=1.0, label=label)
        shown.append(np.array([unigram]))
    # The explosion of a run would flatten everything else, so no more than twice what it began with is shown.
    top = min(float(np.max(np.concatenate(shown))), 2 * max(float(values[0]) for values in shown if values.size))
    axes[0].set_ylim(0, top * 1.06 if top > 0 else 1)
    axes[0].set_ylabel("loss (nats)")
    if accuracies:
        _draw(axes[1], training, held_out, accuracies, 100, "%")
        axes[1].set_ylim(0, 101)
        axes[1].set_ylabel("accuracy (%)")
    for axis in axes[: 1 + bool(accuracies)]:
        axis.legend(loc="best", fontsize=8, framealpha=0.85, edgecolor="none")
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


def _draw(
    axis: "Axes", training: Sequence[Row], held_out: Sequence[Row], names: Sequence[str], scale: int = 1, unit: str = ""
) -> list[Values]:
    """Each figure: raw in pale, smoothed over it, held-out as dots on a line; gives the values of the last two."""
    shown: list[Values] = []
    for name, colour in zip(names, COLOURS * len(names), strict=False):
        part = name.removesuffix("loss").removesuffix("accuracy").removesuffix("_")
        words = WORDS.get(part, part.replace("_", " ") or "all")
        steps, values = _points(training, name, scale)
        smooth = _smoothed(values)
        if values.size:
            axis.plot(steps, values, color=colour, alpha=0.3, linewidth=0.8)
            axis.plot(steps, smooth, color=colour, linewidth=1.6, label=f"{words}, training")
        steps, scored = _points(held_out, name, scale)
        if scored.size:
            label = f"{words}, held-out ({scored[-1]:.3g}{unit})"
            axis.plot(steps, scored, "o:", color=colour, label=label, linewidth=1.4, markersize=4.5, mfc="white")
        shown += [smooth, scored]
    return shown


def _names(rows: Sequence[Row], ending: str) -> list[str]:
    """The figures of this kind that some row has, in the order they first occur."""
    return [
        name
        for name in dict.fromkeys(name for row in rows for name in row if name.endswith(ending))
        if _points(rows, name)[0].size and not name.startswith(LEFT_OUT)
    ]


def _points(rows: Sequence[Row], name: str, scale: int = 1) -> tuple[Values, Values]:
    """Steps and values of a figure, from the rows that have both."""
    pairs = [(number(row, "step"), number(row, name)) for row in rows]
    known = np.array([pair for pair in pairs if None not in pair], dtype=np.float64).reshape(-1, 2)
    return known[:, 0], scale * known[:, 1]


def _smoothed(values: Values) -> Values:
    """A running mean over a fiftieth of the run, shorter at the ends, so that the curve does not lag."""
    sums, places = np.concatenate([[0.0], np.cumsum(values)]), np.arange(values.size)
    reach = np.minimum(values.size // 100, np.minimum(places, places[::-1]))
    return (sums[places + reach + 1] - sums[places - reach]) / (2 * reach + 1)


def _title(run: Path, last: Row) -> str:
    """The run and how far it went."""
    step, tokens, seconds = (number(last, name) for name in ("step", "tokens", "seconds"))
    parts = [run.resolve().name]
    if step is not None:
        parts.append(f"{step:,} steps")
    if tokens is not None:
        parts.append(f"{tokens / 1e6:{',.0f' if tokens >= 1e8 else '.3g'}} million tokens")
    if seconds is not None:
        parts.append(format_duration(seconds))
    return "  ·  ".join(parts)
