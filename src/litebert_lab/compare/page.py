"""A comparison of strategies as one HTML page that needs nothing else: findings, curves, tables."""

import html
from functools import partial

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from litebert.analyse.page import plot_part, table_part, whole_page
from litebert.analyse.panels import COLOURS, MARKERS, Panel
from litebert_lab.compare.comparison import (
    TOLERANCES,
    Comparison,
    TaskTable,
    average_rows,
    cost_rows,
    score_rows,
    tolerance_rows,
)

GREY = "#b8bec7"


def make_page(found: Comparison) -> str:
    """The page."""
    title = f"Layers dropped from {found.model}"
    first = found.tasks[0]
    seeds = len(first.whole.scores)
    way = {"before": "before fine-tuning", "after": "after fine-tuning", "steps": "in steps, fine-tuned after each"}[
        found.way["when"]
    ]
    if found.way["recover"]:
        way = "in steps" if found.way["when"] == "steps" else "after fine-tuning"
        way += ", then recovered by distilling from the whole model"
    described = f"{first.layers} layers, {seeds} seed{'' if seeds == 1 else 's'}, on {found.device}; dropped {way}"
    parts = [f"<h1>{html.escape(title)}</h1><p class=quiet>{described}</p><h2>Findings</h2><ul>"]
    parts += [f"<li>{html.escape(sentence)}</li>" for sentence in found.findings()]
    parts += [
        "</ul><h2>The most layers that may go</h2>",
        table_part(tolerance_rows(found)),
        "<p class=quiet>Of the numbers tried, by the mean score; the strategy that loses least in brackets. Losses "
        "below what chance alone makes (the last column, in points) prove nothing.</p><h2>Curves</h2><div class=plots>",
        *(plot_part(_curves(table)) for table in found.tasks),
        *(plot_part(_times(table)) for table in found.tasks),
        "</div>",
    ]
    if len(found.tasks) > 1:
        parts += ["<h2>Mean over the tasks</h2>", table_part(average_rows(found))]
    for table in found.tasks:
        parts.append(f"<h2>{html.escape(table.task)}, {html.escape(table.metric.replace('_', ' '))}</h2>")
        parts += [f"<p class=quiet>{html.escape(note)}</p>" for note in table.notes]
        parts += [table_part(score_rows(table)), f"<p class=quiet>{table.steps:,} steps a run</p>"]
        parts.append(table_part(cost_rows(table)))
    return whole_page(title, parts)


def _curves(table: TaskTable) -> Panel:
    return Panel(
        f"{table.task}: {table.metric.replace('_', ' ')} by layers dropped",
        "Mean over the seeds, bars one standard deviation. Grey lines: 1, 2 and 3 points below the whole model.",
        partial(_draw_curves, table),
    )


def _draw_curves(table: TaskTable, axes: Axes) -> None:
    places = [0, *table.drops]
    for tolerance in TOLERANCES:
        axes.axhline(100 * (table.whole.mean - tolerance), color=GREY, linewidth=0.8, linestyle="--")
    for number, (name, row) in enumerate(table.cells.items()):
        cells = [table.whole, *(row[count] for count in table.drops)]
        aside = 0.06 * (number - (len(table.cells) - 1) / 2)  # or bars would hide each other
        axes.errorbar(
            [place + (aside if place else 0) for place in places],
            [100 * cell.mean for cell in cells],
            yerr=[100 * (cell.deviation or 0) for cell in cells],
            color=COLOURS[number % len(COLOURS)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=5,
            capsize=2,
            linewidth=1.4,
            label=name,
        )
    axes.set_xticks(places)
    axes.set_xlabel("layers dropped")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)


def _times(table: TaskTable) -> Panel:
    return Panel(
        f"{table.task}: what it costs, of the whole model",
        "Time and parameters as a share of the whole model's; the grey line is the share of layers that is left.",
        partial(_draw_times, table),
    )


def _draw_times(table: TaskTable, axes: Axes) -> None:
    whole, places = table.costs[0], [cost.dropped for cost in table.costs]
    for number, (label, shares) in enumerate(
        (
            ("fine-tuning", [cost.finetune_seconds / whole.finetune_seconds for cost in table.costs]),
            ("inference", [cost.inference_milliseconds / whole.inference_milliseconds for cost in table.costs]),
            ("parameters", [cost.parameters / whole.parameters for cost in table.costs]),
        )
    ):
        axes.plot(places, [100 * share for share in shares], MARKERS[number] + "-", color=COLOURS[number], label=label)
    axes.plot(places, [100 * (1 - place / table.layers) for place in places], "--", color=GREY, label="layers")
    axes.set_ylim(0, None)
    axes.set_xticks(places)
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.set(xlabel="layers dropped", ylabel="% of the whole model")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="lower left")
