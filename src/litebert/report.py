"""Reports for people: a title and sections of notes, tables and plots, rendered to a terminal, HTML, Markdown and JSON.

A command describes what it found as one ``Report``; how it looks is decided here, in one style sheet. An HTML page is
one file that needs nothing else. All text (labels, file names, texts of users) is escaped here, so that callers pass it
as it is. Plots appear in HTML and PNG only; matplotlib is imported when one is drawn.
"""

import html
import io
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

from litebert.terminal import WIDEST

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

BLUE, ORANGE, GREY = "#2563a8", "#d9822b", "#b8bec7"
COLOURS = (BLUE, ORANGE, "#3f8f4f", "#8a4fa3", "#b8434e", "#17808a", "#8c564b", "#5b6675")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

LONGEST_BRIEF = 240  # characters of a note of a brief section
WIDEST_MAP = 13  # columns of a shaded table that a terminal shows
TEXT_AS_IT_IS: dict[Any, Any] = {"text.parse_math": False}  # a label such as "$5 or $10" is not a formula

Style = Literal["", "quiet", "strong", "good", "bad", "warning", "code", "example"]
Draw = Callable[["Axes"], None]
STYLES = {"quiet": "dim", "strong": "bold", "good": "green", "bad": "red", "warning": "yellow"}  # of a terminal
CSS = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2430; max-width: 1080px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin-bottom: 0; overflow-wrap: anywhere; } h2 { font-size: 1.1rem; margin-top: 2rem; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; } p { margin: .4rem 0; overflow-wrap: anywhere; white-space: pre-line; }
.quiet { color: #5b6675; } .strong { font-weight: 600; } p.warning { background: #fff4dd; padding: .5rem .8rem; }
p.example { border-left: 3px solid #b8bec7; padding-left: .8rem; margin: 1rem 0; }
span.good, span.bad, span.warning { border-radius: 3px; padding: 0 .3em; }
.good { background: #cdebd0; } .bad { background: #ffc2b8; } .warning { background: #ffe9b0; }
pre { background: #f4f6f8; padding: .6rem .8rem; overflow-x: auto; } .wide { overflow-x: auto; }
table { border-collapse: collapse; } th { font-weight: 600; vertical-align: bottom; }
th, td { text-align: right; padding: .15rem .9rem; } td { max-width: 44rem; overflow-wrap: anywhere; }
td:first-child { white-space: pre-wrap; }
th.left, td.left { text-align: left; } th:first-child, td:first-child { padding-left: 0; }
tr { border-bottom: 1px solid #e6e9ee; } .shaded td { border: 2px solid #fff; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 1.6rem; }
.plots > div { max-width: 540px; } .plots svg { width: 100%; height: auto; }
"""


@dataclass(frozen=True)
class Note:
    """A paragraph. ``spans`` are pieces of it with a style each; ``style`` is that of the whole."""

    spans: tuple[tuple[str, Style], ...]
    style: Style = ""

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.spans)


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of cells, the first row being the heading unless ``heading`` is False.

    Columns in ``left`` are aligned left, the others right. ``shades`` colours the cells after the first of each row
    below the heading: from 0 to 1 blue, from 0 to -1 orange.
    """

    rows: Sequence[Sequence[str]]
    title: str = ""
    heading: bool = True
    left: tuple[int, ...] = (0,)
    shades: Sequence[Sequence[float]] = ()


@dataclass(frozen=True, kw_only=True)
class Plot:
    """A plot: how to draw it on axes, and how to read it. Square ones are maps."""

    title: str
    draw: Draw
    reading: str = ""
    square: bool = False


Item = Note | Table | Plot


@dataclass(frozen=True, kw_only=True)
class Section:
    """Notes, tables and plots under one heading; ``brief``: number of items that a terminal shows."""

    title: str = ""
    items: Sequence[Item] = ()
    brief: int | None = None


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a command found. ``data`` is the same as plain values, for JSON."""

    title: str
    sections: Sequence[Section]
    data: Any = field(default=None, compare=False)

    @property
    def plots(self) -> list[Plot]:
        return [item for section in self.sections for item in section.items if isinstance(item, Plot)]


def note(text: str, style: Style = "") -> Note:
    """A paragraph of one piece."""
    return Note(((text, ""),), style)


def notes(texts: Iterable[str], style: Style = "") -> list[Note]:
    """A paragraph for each text."""
    return [note(text, style) for text in texts]


def table_of(rows: Iterable[Any], columns: Mapping[str, str], **options: Any) -> Table:
    """A table of objects, a row each; ``columns`` are format strings by heading: ``{"tokens/s": "{0.speed:,.0f}"}``."""
    return Table(rows=[list(columns), *([cell.format(row) for cell in columns.values()] for row in rows)], **options)


def to_json(report: Report) -> str:
    """The report's data; a report without any gives its notes and tables."""
    data = report.data
    if data is None:
        data = {"title": report.title, "sections": [_plain(section) for section in report.sections]}
    return json.dumps(data, indent=2, ensure_ascii=False)


def _plain(section: Section) -> dict[str, Any]:
    return {
        "title": section.title,
        "notes": [item.text for item in section.items if isinstance(item, Note)],
        "tables": [list(map(list, item.rows)) for item in section.items if isinstance(item, Table)],
    }


def to_html(report: Report) -> str:
    """One page with its style and its plots in it."""
    parts = [f"<h1>{_safe(report.title)}</h1>"]
    for section in report.sections:
        if section.title:
            parts.append(f"<h2>{_safe(section.title)}</h2>")
        in_plots = False
        for item in section.items:
            if isinstance(item, Plot) != in_plots:  # neighbouring plots share a grid
                in_plots = not in_plots
                parts.append("<div class=plots>" if in_plots else "</div>")
            parts.append(_html_item(item))
        parts.append("</div>" if in_plots else "")
    head = "<meta charset=utf-8><meta name=viewport content='width=device-width, initial-scale=1'>"
    title = f"<title>{_safe(report.title)}</title>"
    return f"<!doctype html><html lang=en>{head}{title}<style>{CSS}</style>{''.join(parts)}</html>\n"


def _safe(text: str) -> str:
    return html.escape(text, quote=True)


def _html_item(item: Item) -> str:
    if isinstance(item, Plot):
        reading = f"<p class=quiet>{_safe(item.reading)}</p>" if item.reading else ""
        return f"<div><h3>{_safe(item.title)}</h3>{_svg(item)}{reading}</div>"
    if isinstance(item, Note):
        if item.style == "code":
            return f"<pre>{_safe(item.text)}</pre>"
        spans = [f"<span class={style}>{_safe(text)}</span>" if style else _safe(text) for text, style in item.spans]
        return f"<p{f' class={item.style}' if item.style else ''}>{''.join(spans)}</p>"
    title = f"<h3>{_safe(item.title)}</h3>" if item.title else ""
    rows = []
    for number, row in enumerate(item.rows):
        tag = "th" if item.heading and not number else "td"
        shades = item.shades[number - item.heading] if item.shades and tag == "td" else ()
        cells = [
            f"<{tag}{' class=left' if place in item.left else ''}{_shade(shades, place)}>{_safe(cell)}</{tag}>"
            for place, cell in enumerate(row)
        ]
        rows.append(f"<tr>{''.join(cells)}</tr>")
    shaded = " class=shaded" if item.shades else ""
    return f"{title}<div class=wide><table{shaded}>{''.join(rows)}</table></div>"


def _shade(shades: Sequence[float], place: int) -> str:
    share = shades[place - 1] if shades and place else 0.0
    if not share:
        return ""
    colour = "37, 99, 168" if share > 0 else "217, 90, 43"
    dark = "; color: #fff" if abs(share) > 0.6 else ""
    return f" style='background: rgba({colour}, {0.12 + 0.8 * abs(share):.2f}){dark}'"


def to_markdown(report: Report) -> str:
    """The report without its plots."""
    parts = [f"# {_plain_markdown(report.title)}"]
    for section in report.sections:
        if section.title:
            parts.append(f"## {_plain_markdown(section.title)}")
        for item in section.items:
            if isinstance(item, Table):
                parts += [f"### {_plain_markdown(item.title)}"] if item.title else []
                parts.append(_markdown_table(item))
            elif isinstance(item, Note):
                fence = f"```\n{item.text.replace('```', '')}\n```"
                parts.append(fence if item.style == "code" else _plain_markdown(item.text))
    return "\n\n".join(parts) + "\n"


def _plain_markdown(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\`*_<\[|])", r"\\\1", text)


def _markdown_table(table: Table) -> str:
    width = len(table.rows[0])
    rows = list(table.rows) if table.heading else [[""] * width, *table.rows]
    lines = ["| " + " | ".join(_plain_markdown(" ".join(cell.split())) for cell in row) + " |" for row in rows]
    rule = "|" + "|".join("---" if place in table.left else "---:" for place in range(width)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def print_report(report: Report, console: "Console | None" = None) -> None:
    """The report on standard output, without its plots; lines are wrapped where a person watches."""
    from rich.console import Console
    from rich.text import Text

    columns = shutil.get_terminal_size((1000, 24)).columns  # a pipe gets lines as long as they are
    console = console or Console(width=min(columns, WIDEST) if sys.stdout.isatty() else columns, highlight=False)
    console.print(Text(report.title, style="bold"), soft_wrap=True)  # names and paths stay whole
    for section in report.sections:
        shown = _on_terminal(section)
        if section.title and shown:
            console.print(Text(f"\n{section.title}", style="bold"))
        for item in shown:
            if isinstance(item, Table):
                console.print(*([Text(item.title)] if item.title else []), _rich_table(item), sep="\n")
            else:
                console.print(_rich_note(item, None if section.brief is None else LONGEST_BRIEF))


def _on_terminal(section: Section) -> list[Note | Table]:
    """What a terminal shows of a section: no plots, and no maps that it has no room for."""
    shown = [item for item in section.items if not isinstance(item, Plot)]
    shown = [item for item in shown if isinstance(item, Note) or not item.shades or len(item.rows[0]) <= WIDEST_MAP]
    return shown[: section.brief]


def _rich_note(item: Note, longest: int | None) -> "Text":
    from rich.text import Text

    text = Text("note: " if item.style == "warning" else "", style=STYLES.get(item.style, ""))
    for piece, style in item.spans:
        text.append(piece if longest is None else re.sub(r"\s+", " ", piece), style=STYLES.get(style, ""))
    if longest is not None:
        text.truncate(longest, overflow="ellipsis")
    return text


def _rich_table(table: Table) -> "RichTable":
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=None, pad_edge=False, header_style="bold", show_header=table.heading)
    for place, cell in enumerate(table.rows[0]):
        shown.add_column(Text(cell), justify="left" if place in table.left else "right", overflow="fold", no_wrap=False)
    for row in table.rows[1:] if table.heading else table.rows:
        shown.add_row(*map(Text, row))
    return shown


def _svg(plot: Plot) -> str:
    """A plot as an ``<svg>`` element, the same every time."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 4.4) if plot.square else (5.6, 3.4), layout="constrained")
    file = io.StringIO()
    with rc_context(TEXT_AS_IT_IS):
        _draw(plot, figure)
        figure.savefig(file, format="svg", transparent=True, bbox_inches="tight", metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :]


def _draw(plot: Plot, figure: Any) -> "Axes":
    axes: Axes = figure.subplots()
    plot.draw(axes)
    if not plot.square:
        axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend() is None and len(axes.get_legend_handles_labels()[1]) > 1:
        axes.legend(frameon=False, fontsize=8)
    return axes


def write_png(report: Report, path: Path, columns: int = 2) -> None:
    """All plots in one picture, each with the sentence on how to read it."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = -(-len(report.plots) // columns)
    figure = Figure(figsize=(6.5 * columns, 4.8 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subfigures(rows, columns, squeeze=False, wspace=0.04, hspace=0.03).flatten()
    with rc_context(TEXT_AS_IT_IS):
        for part, plot in zip(grid, report.plots, strict=False):
            part.suptitle(plot.title, fontsize=13, x=0.02, ha="left", fontweight="bold")
            axes = _draw(plot, part)
            axes.set_title(fill(plot.reading, 66 if plot.square else 96), fontsize=8, loc="left", color="#5b6675")
        figure.savefig(path, dpi=120)
