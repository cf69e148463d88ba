"""Plots as SVG that stands inside our pages, so that a page needs no other file."""

import io
from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure


def plot(draw: Callable[[Axes], None], *, size: tuple[float, float], title_size: float) -> str:
    """One small plot: ``draw`` fills the axes and names them."""
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    draw(axes)
    axes.set_title(axes.get_title(), fontsize=title_size)
    return svg_of(figure)


def svg_of(figure: Figure, *, tight: bool = False) -> str:
    """A figure as an ``<svg>`` element, the same every time; ``tight`` cuts what is empty around it."""
    file = io.StringIO()
    cut = "tight" if tight else None
    figure.savefig(file, format="svg", transparent=True, bbox_inches=cut, metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :]
