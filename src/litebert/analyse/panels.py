"""The plots of what layers do, each with a sentence on how to read it. They are drawn on axes that the caller makes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from litebert.analyse.measure import LayerFigures, ModelFigures

COLOURS = ("#2563a8", "#d9822b", "#3f8f4f", "#8a4fa3", "#b8434e", "#5b6675")
MARKERS = ("o", "s", "^", "D", "v", "P")


@dataclass(frozen=True)
class Panel:
    """One plot: a title, how to read it, and how to draw it. ``square`` ones are maps, the others curves."""

    title: str
    reading: str
    draw: Callable[[Axes], None]
    square: bool = False


def panels(models: Sequence[ModelFigures], labels: Sequence[str]) -> list[Panel]:
    """All plots; each shows all models."""
    named = list(zip(labels, models, strict=True))
    curves: list[Panel] = [
        Panel(
            "Distance a layer moves a token",
            "L2 distance between a token's state before the layer and after it (ALBERT, figure 1). A smooth curve "
            "means that layers have similar effects; a layer at 0 would do nothing.",
            partial(_curves, named, lambda one: one.distance, "L2 distance", 0.0),
        ),
        Panel(
            "Angle a layer turns a token",
            "Degrees between a token's state before the layer and after it (ALBERT, figure 1).",
            partial(_curves, named, lambda one: one.angle, "degrees", 0.0),
        ),
        Panel(
            "[CLS] before and after a layer",
            "Cosine between the state of [CLS] (the token that represents the whole text) before the layer and after "
            "it. Layers with the highest values change it least: `shrink --strategy contribution` drops them first.",
            partial(_curves, named, lambda one: one.cls_cosine, "cosine", None),
        ),
        Panel(
            "Attention entropy",
            "Entropy of attention as a share of its maximum: 1 attends to all tokens of the text equally, 0 to one "
            "only. Lines are the mean of all heads, small dots are single heads.",
            partial(_entropies, named),
        ),
    ]
    compared = [(label, model) for label, model in named if model.against is not None]
    if compared:
        curves += _against(compared)
    return curves + [
        Panel(
            f"Similarity of depths: {label}",
            "Linear CKA between the states of two depths (0 is the embeddings): 1 means that both place the same "
            "tokens near each other. Bright squares are consecutive layers with similar states.",
            partial(_similarity, model.similarity),
            square=True,
        )
        for label, model in named
        if model.similarity
    ]


def _against(compared: Sequence[tuple[str, ModelFigures]]) -> list[Panel]:
    return [
        Panel(
            "States, compared with the original model",
            "Cosine between the two models' states of the same token at each depth (0 is the embeddings); dashed for "
            "[CLS]. Where the curve falls, training has changed the states.",
            partial(_against_states, compared),
        ),
        Panel(
            "Weights, compared with the original model",
            "L2 norm of the change of a layer's weights over the norm of the old weights.",
            partial(_against_weights, compared),
        ),
    ]


def _curves(
    named: Sequence[tuple[str, ModelFigures]],
    figure: Callable[[LayerFigures], float],
    unit: str,
    floor: float | None,
    axes: Axes,
) -> None:
    for index, (label, model) in enumerate(named):
        _line(axes, index, [one.layer for one in model.layers], [figure(one) for one in model.layers], label)
    _finish(axes, "layer", unit)
    if floor is not None:
        axes.set_ylim(bottom=floor)


def _entropies(named: Sequence[tuple[str, ModelFigures]], axes: Axes) -> None:
    for index, (label, model) in enumerate(named):
        layers = [one.layer for one in model.layers]
        _line(axes, index, layers, [one.entropy_share for one in model.layers], label)
        for one in model.layers:
            most = one.entropy / one.entropy_share if one.entropy_share else 1.0
            shares = [head / most for head in one.entropy_heads]
            axes.plot([one.layer] * len(shares), shares, ".", color=_colour(index), alpha=0.5, markersize=4)
    _finish(axes, "layer", "share of the maximum")
    axes.set_ylim(0, 1.02)


def _against_states(compared: Sequence[tuple[str, ModelFigures]], axes: Axes) -> None:
    for index, (label, model) in enumerate(compared):
        assert model.against is not None
        depths = list(range(len(model.against.token_cosine)))
        _line(axes, index, depths, model.against.token_cosine, label)
        axes.plot(depths, model.against.cls_cosine, "--", color=_colour(index), linewidth=1.2, label=f"{label}, [CLS]")
    _finish(axes, "depth", "cosine")


def _against_weights(compared: Sequence[tuple[str, ModelFigures]], axes: Axes) -> None:
    width = 0.8 / len(compared)
    for index, (label, model) in enumerate(compared):
        assert model.against is not None
        places = np.arange(1, len(model.against.weight_change) + 1) + (index - (len(compared) - 1) / 2) * width
        axes.bar(places, model.against.weight_change, width, color=_colour(index), label=label)
    _finish(axes, "layer", "relative change")


def _similarity(matrix: Sequence[Sequence[float]], axes: Axes) -> None:
    image = axes.imshow(matrix, origin="lower", vmin=0, vmax=1, cmap="viridis")
    axes.set(xlabel="depth", ylabel="depth")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, nbins=9))
    assert axes.figure is not None
    axes.figure.colorbar(image, ax=axes, fraction=0.046, label="CKA")


def _line(axes: Axes, index: int, places: Sequence[int], values: Sequence[float], label: str) -> None:
    marker = MARKERS[index % len(MARKERS)]
    axes.plot(places, values, marker=marker, color=_colour(index), markersize=4.5, linewidth=1.6, label=label)


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _finish(axes: Axes, below: str, beside: str) -> None:
    axes.set(xlabel=below, ylabel=beside)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=13))
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if len(axes.get_legend_handles_labels()[1]) > 1:
        axes.legend(frameon=False, fontsize=8)
