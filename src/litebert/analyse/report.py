"""What layers do to a text as a report: a table of each model, and plots of all models side by side."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from litebert.analyse.measure import LayerFigures, ModelFigures
from litebert.report import COLOURS, MARKERS, Plot, Report, Section, Table, note

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def layers_report(models: Sequence[ModelFigures], labels: Sequence[str]) -> Report:
    """All of it; ``labels`` tell the models apart in plots."""
    sections = [
        Section(
            title=label,
            items=[
                note(
                    f"{model.model}: {model.family}, {len(model.layers)} layers, {model.texts:,} texts, "
                    f"{model.tokens:,} tokens",
                    "quiet",
                ),
                Table(rows=layer_rows(model), left=()),
                note(order_in_words(model)),
            ],
        )
        for label, model in zip(labels, models, strict=True)
    ]
    return Report(
        title=f"Layers of {', '.join(labels)}",
        sections=[Section(items=plots(models, labels)), *sections],
        data={"models": [dataclasses.asdict(one) for one in models]},
    )


def order_in_words(model: ModelFigures) -> str:
    """Which layers change [CLS] least, in a sentence."""
    blocks = {(one.attention_block, one.feed_forward_block) for one in model.layers}
    if len(blocks) == 1 and len(model.layers) > 1:
        return "All layers are one shared block: whichever is dropped, the same model is left."
    first = ", ".join(map(str, model.least_contribution_first[:6]))
    return f"Layers that change [CLS] least, the least first: {first}."


def layer_rows(model: ModelFigures) -> list[tuple[str, ...]]:
    """A table: the heading, then a row a layer."""
    against = model.against
    heading = ("layer", "distance", "angle", "[CLS] cosine", "entropy", "of widest")
    rows: list[tuple[str, ...]] = [heading + (("state cosine", "changed") if against else ())]
    for index, one in enumerate(model.layers):
        cells: tuple[str, ...] = (
            str(one.layer),
            f"{one.distance:.2f}",
            f"{one.angle:.1f}°",
            f"{one.cls_cosine:.4f}",
            f"{one.entropy:.2f}",
            f"{one.entropy_share:.0%}",
        )
        if against:
            cells += (f"{against.token_cosine[index + 1]:.4f}", f"{against.weight_change[index]:.2%}")
        rows.append(cells)
    return rows


def plots(models: Sequence[ModelFigures], labels: Sequence[str]) -> list[Plot]:
    """All pictures for these models, side by side in each."""
    named = list(zip(labels, models, strict=True))
    curves: list[Plot] = [
        Plot(
            title="Distance a layer moves a token",
            reading="L2 distance between a token's state before the layer and after it (ALBERT, figure 1). A smooth "
            "curve means layers of like effect; a layer at 0 would do nothing.",
            draw=partial(_curves, named, lambda one: one.distance, "L2 distance", 0.0),
        ),
        Plot(
            title="Angle a layer turns a token",
            reading="Degrees between a token's state before the layer and after it (ALBERT, figure 1).",
            draw=partial(_curves, named, lambda one: one.angle, "degrees", 0.0),
        ),
        Plot(
            title="[CLS] before and after a layer",
            reading="Cosine between the state of [CLS] (the token that stands for the whole text) before the layer and "
            "after it. The highest points change it least: `shrink --strategy contribution` drops those layers first.",
            draw=partial(_curves, named, lambda one: one.cls_cosine, "cosine", None),
        ),
        Plot(
            title="How widely a layer looks",
            reading="Entropy of attention as a share of its most: 1 looks at all tokens of the text equally, 0 at one "
            "only. Lines are the mean of all heads, small dots are single heads.",
            draw=partial(_entropies, named),
        ),
    ]
    compared = [(label, model) for label, model in named if model.against is not None]
    if compared:
        curves += _against(compared)
    return curves + [
        Plot(
            title=f"Depths with like states: {label}",
            reading="Linear CKA between the states of two depths (0 is the embeddings): 1 means that both place the "
            "same tokens near each other. Bright squares are runs of layers that change little between them.",
            draw=partial(_similarity, model.similarity),
            square=True,
        )
        for label, model in named
        if model.similarity
    ]


def _against(compared: Sequence[tuple[str, ModelFigures]]) -> list[Plot]:
    return [
        Plot(
            title="States, beside the model it came from",
            reading="Cosine between the two models' states of the same token at each depth (0 is the embeddings); "
            "dashed: [CLS]. Where the curve falls, training has changed what the model makes of a text.",
            draw=partial(_against_states, compared),
        ),
        Plot(
            title="Weights, beside the model it came from",
            reading="Length of the change of a layer's weights over the length of the old weights.",
            draw=partial(_against_weights, compared),
        ),
    ]


def _curves(
    named: Sequence[tuple[str, ModelFigures]],
    figure: Callable[[LayerFigures], float],
    unit: str,
    floor: float | None,
    axes: "Axes",
) -> None:
    for index, (label, model) in enumerate(named):
        _line(axes, index, [one.layer for one in model.layers], [figure(one) for one in model.layers], label)
    _finish(axes, "layer", unit)
    if floor is not None:
        axes.set_ylim(bottom=floor)


def _entropies(named: Sequence[tuple[str, ModelFigures]], axes: "Axes") -> None:
    for index, (label, model) in enumerate(named):
        layers = [one.layer for one in model.layers]
        _line(axes, index, layers, [one.entropy_share for one in model.layers], label)
        for one in model.layers:
            most = one.entropy / one.entropy_share if one.entropy_share else 1.0
            shares = [head / most for head in one.entropy_heads]
            axes.plot([one.layer] * len(shares), shares, ".", color=_colour(index), alpha=0.5, markersize=4)
    _finish(axes, "layer", "share of the widest")
    axes.set_ylim(0, 1.02)


def _against_states(compared: Sequence[tuple[str, ModelFigures]], axes: "Axes") -> None:
    for index, (label, model) in enumerate(compared):
        assert model.against is not None
        depths = list(range(len(model.against.token_cosine)))
        _line(axes, index, depths, model.against.token_cosine, label)
        axes.plot(depths, model.against.cls_cosine, "--", color=_colour(index), linewidth=1.2, label=f"{label}, [CLS]")
    _finish(axes, "depth", "cosine")


def _against_weights(compared: Sequence[tuple[str, ModelFigures]], axes: "Axes") -> None:
    width = 0.8 / len(compared)
    for index, (label, model) in enumerate(compared):
        assert model.against is not None
        aside = (index - (len(compared) - 1) / 2) * width
        places = [layer + aside for layer in range(1, len(model.against.weight_change) + 1)]
        axes.bar(places, model.against.weight_change, width, color=_colour(index), label=label)
    _finish(axes, "layer", "relative change")


def _similarity(matrix: Sequence[Sequence[float]], axes: "Axes") -> None:
    from matplotlib.ticker import MaxNLocator

    image = axes.imshow(matrix, origin="lower", vmin=0, vmax=1, cmap="viridis")
    axes.set(xlabel="depth", ylabel="depth")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, nbins=9))
    assert axes.figure is not None
    axes.figure.colorbar(image, ax=axes, fraction=0.046, label="CKA")


def _line(axes: "Axes", index: int, places: Sequence[int], values: Sequence[float], label: str) -> None:
    marker = MARKERS[index % len(MARKERS)]
    axes.plot(places, values, marker=marker, color=_colour(index), markersize=4.5, linewidth=1.6, label=label)


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _finish(axes: "Axes", below: str, beside: str) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set(xlabel=below, ylabel=beside)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=13))
    axes.grid(alpha=0.25, linewidth=0.6)
