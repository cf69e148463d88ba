"""The figures of layers as a picture (PNG) and as one HTML page that needs nothing else."""

import html
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from litebert.analyse.measure import ModelFigures
from litebert.analyse.panels import Panel, panels
from litebert.drawing import svg_of

COLUMNS = 2
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2430; max-width: 1080px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin-bottom: 0; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin-top: 2rem; }
h3 { font-size: 1rem; margin: 0 0 .2rem; } .quiet { color: #5b6675; } .wide { overflow-x: auto; }
table { border-collapse: collapse; } th, td { text-align: right; padding: .15rem .9rem; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; } tr { border-bottom: 1px solid #e6e9ee; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 1.6rem; }
.plots svg { width: 100%; height: auto; } .plots p { margin: 0; font-size: .9em; }
"""


def write_picture(path: Path, models: Sequence[ModelFigures], labels: Sequence[str]) -> None:
    """All panels in one PNG, each with the sentence that says how to read it."""
    drawn = panels(models, labels)
    rows = -(-len(drawn) // COLUMNS)
    figure = Figure(figsize=(13, 4.8 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subfigures(rows, COLUMNS, squeeze=False, wspace=0.04, hspace=0.03).flatten()
    for part, panel in zip(grid, drawn, strict=False):
        part.suptitle(panel.title, fontsize=13, x=0.02, ha="left", fontweight="bold")
        axes = part.subplots()
        panel.draw(axes)
        axes.set_title(fill(panel.reading, 66 if panel.square else 96), fontsize=8, loc="left", color="#5b6675")
    figure.savefig(path, dpi=120)


def make_page(models: Sequence[ModelFigures], labels: Sequence[str]) -> str:
    """The page."""
    title = f"Layers of {', '.join(labels)}"
    counts = "; ".join(
        f"{html.escape(label)}: {model.family}, {len(model.layers)} layers, {model.texts:,} texts, "
        f"{model.tokens:,} tokens"
        for label, model in zip(labels, models, strict=True)
    )
    parts = [f"<h1>{html.escape(title)}</h1><p class=quiet>{counts}</p><div class=plots>"]
    parts += [plot_part(panel) for panel in panels(models, labels)]
    parts.append("</div>")
    for label, model in zip(labels, models, strict=True):
        parts.append(f"<h2>{html.escape(label)}</h2><p class=quiet>{html.escape(order_in_words(model))}</p>")
        parts.append(table_part(layer_rows(model)))
    return whole_page(title, parts)


def whole_page(title: str, parts: Sequence[str]) -> str:
    """A page of these parts, with its style in it."""
    head = "<meta charset=utf-8><meta name=viewport content='width=device-width, initial-scale=1'>"
    return (
        f"<!doctype html><html lang=en>{head}<title>{html.escape(title)}</title><style>{STYLE}</style>"
        f"{''.join(parts)}</html>\n"
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


def table_part(rows: Sequence[Sequence[str]]) -> str:
    """A table; the first row is its heading."""
    heading = "".join(f"<th>{html.escape(cell)}</th>" for cell in rows[0])
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows[1:])
    return f"<div class=wide><table><tr>{heading}</tr>{body}</table></div>"


def plot_part(panel: Panel) -> str:
    """A panel as SVG under its title, above how to read it."""
    figure = Figure(figsize=(5.2, 4.4) if panel.square else (5.6, 3.6), layout="constrained")
    panel.draw(figure.subplots())
    picture = svg_of(figure, tight=True)
    title, reading = html.escape(panel.title), html.escape(panel.reading)
    return f"<div><h3>{title}</h3>{picture}<p class=quiet>{reading}</p></div>"
