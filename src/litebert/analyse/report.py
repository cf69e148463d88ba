"""What layers do to a text as a report: a table of each model, and plots of all models side by side."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from litebert.analyse.measure import Against, LayerFigures, ModelFigures
from litebert.report import COLOURS, MARKERS, Item, Plot, Report, Section, Table, note

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Named = Sequence[tuple[str, ModelFigures]]

# Title, how to read it, the figure of a layer, its unit and the lowest value shown, of each plot with a curve a model.
CURVES: tuple[tuple[str, str, Callable[[LayerFigures], float], str, float | None], ...] = (
    (
        "Distance a layer moves a token",
        "L2 distance between a token's state before the layer and after it (ALBERT, figure 1). A smooth curve means "
        "layers of like effect; a layer at 0 would do nothing.",
        lambda one: one.distance,
        "L2 distance",
        0.0,
    ),
    (
        "Angle a layer turns a token",
        "Degrees between a token's state before the layer and after it (ALBERT, figure 1).",
        lambda one: one.angle,
        "degrees",
        0.0,
    ),
    (
        "[CLS] before and after a layer",
        "Cosine between the state of [CLS] (the token that stands for the whole text) before the layer and after it. "
        "The highest points change it least: `shrink --strategy contribution` drops those layers first.",
        lambda one: one.cls_cosine,
        "cosine",
        None,
    ),
    (
        "How widely a layer looks",
        "Entropy of attention as a share of its maximum: 1 looks at all tokens of the text equally, 0 at one only. "
        "Lines are the mean of all heads, small dots are single heads.",
        lambda one: one.entropy_share,
        "share of the widest",
        0.0,
    ),
)


def layers_report(models: Sequence[ModelFigures], labels: Sequence[str]) -> Report:
    """All of it; ``labels`` tell the models apart in plots."""
    sections = []
    for label, model in zip(labels, models, strict=True):
        measured = f"{len(model.layers)} layers, {model.texts:,} texts, {model.tokens:,} tokens"
        first = note(f"{model.model}: {model.family}, {measured}", "quiet")
        items: list[Item] = [first, Table(rows=layer_rows(model), left=()), note(order_in_words(model))]
        sections.append(Section(title=label, items=items))
    return Report(
        title=f"Layers of {', '.join(labels)}",
        sections=[Section(items=plots(list(zip(labels, models, strict=True)))), *sections],
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


def plots(named: Named) -> list[Plot]:
    """All pictures for these models, side by side in each."""
    found = [
        Plot(title=title, reading=reading, draw=partial(_curves, named, figure, unit, floor))
        for title, reading, figure, unit, floor in CURVES
    ]
    compared = [(label, model.against) for label, model in named if model.against is not None]
    if compared:
        found += [
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
    return found + [
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


def _curves(
    named: Named, figure: Callable[[LayerFigures], float], unit: str, floor: float | None, axes: "Axes"
) -> None:
    heads = unit == "share of the widest"
    for index, (label, model) in enumerate(named):
        _line(axes, index, [one.layer for one in model.layers], [figure(one) for one in model.layers], label)
        for one in model.layers if heads else ():
            widest = one.entropy / one.entropy_share if one.entropy_share else 1.0
            shares = [head / widest for head in one.entropy_heads]
            axes.plot([one.layer] * len(shares), shares, ".", color=_colour(index), alpha=0.5, markersize=4)
    _finish(axes, "layer", unit)
    if floor is not None:
        axes.set_ylim(bottom=floor, top=1.02 if heads else None)


def _against_states(compared: Sequence[tuple[str, Against]], axes: "Axes") -> None:
    for index, (label, against) in enumerate(compared):
        depths = list(range(len(against.token_cosine)))
        _line(axes, index, depths, against.token_cosine, label)
        axes.plot(depths, against.cls_cosine, "--", color=_colour(index), linewidth=1.2, label=f"{label}, [CLS]")
    _finish(axes, "depth", "cosine")


def _against_weights(compared: Sequence[tuple[str, Against]], axes: "Axes") -> None:
    width = 0.8 / len(compared)
    for index, (label, against) in enumerate(compared):
        aside = (index - (len(compared) - 1) / 2) * width
        places = [layer + aside for layer in range(1, len(against.weight_change) + 1)]
        axes.bar(places, against.weight_change, width, color=_colour(index), label=label)
    _finish(axes, "layer", "relative change")


def _similarity(matrix: Sequence[Sequence[float]], axes: "Axes") -> None:
    image = axes.imshow(matrix, origin="lower", vmin=0, vmax=1, cmap="viridis")
    axes.set(xlabel="depth", ylabel="depth")
    for axis in ("x", "y"):
        axes.locator_params(axis, integer=True, nbins=9)
    assert axes.figure is not None
    axes.figure.colorbar(image, ax=axes, fraction=0.046, label="CKA")


def _line(axes: "Axes", index: int, places: Sequence[int], values: Sequence[float], label: str) -> None:
    marker = MARKERS[index % len(MARKERS)]
    axes.plot(places, values, marker=marker, color=_colour(index), markersize=4.5, linewidth=1.6, label=label)


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _finish(axes: "Axes", below: str, beside: str) -> None:
    axes.set(xlabel=below, ylabel=beside)
    axes.locator_params("x", integer=True, nbins=13)
    axes.grid(alpha=0.25, linewidth=0.6)
