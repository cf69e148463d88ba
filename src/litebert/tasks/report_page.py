"""An evaluation as one HTML page that needs nothing else: scores, who is taken for whom, lengths, hard examples."""

import html
from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes

from litebert.drawing import plot
from litebert.tasks.evaluate import TOGETHER, Evaluation
from litebert.tasks.kinds import KINDS
from litebert.tasks.report import figure, title
from litebert.tasks.score import Hard, Scores

_plot = partial(plot, size=(4.6, 2.7), title_size=10)

BLUE = "#2563a8"
MOST_LABELS = 40  # a larger matrix cannot be read; its worst confusions are listed instead
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2430; max-width: 960px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin-bottom: 0; } h2 { font-size: 1.2rem; margin-top: 2.4rem; }
h3 { font-size: 1rem; margin: 1.8rem 0 .4rem; } .quiet { color: #5b6675; }
.note { background: #fff4dd; padding: .5rem .8rem; border-radius: 4px; }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1rem 0; }
.card { border: 1px solid #e6e9ee; border-radius: 8px; padding: .6rem 1rem; min-width: 7rem; }
.card b { display: block; font-size: 1.6rem; line-height: 1.2; color: #2563a8; }
.wide { overflow-x: auto; } table { border-collapse: collapse; } th { font-weight: 600; }
th, td { text-align: right; padding: .2rem .8rem; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
.rows tr { border-bottom: 1px solid #e6e9ee; }
.matrix td { min-width: 2.2rem; padding: .2rem .4rem; text-align: center; border: 2px solid #fff; border-radius: 6px; }
.matrix td:first-child { background: #fff; text-align: left; white-space: nowrap; position: sticky; left: 0; }
.matrix th { padding: .2rem .4rem; font-weight: normal; font-size: .85em; vertical-align: bottom; text-align: center; }
.plot svg { width: 100%; max-width: 440px; height: auto; }
.hard { border-left: 3px solid #b8bec7; padding-left: .8rem; margin: 1rem 0; overflow-wrap: anywhere; }
.hard p { margin: .2rem 0; white-space: pre-line; } .right { color: #1a7f37; } .wrong { color: #b3261e; }
"""


def make_page(evaluation: Evaluation) -> str:
    """The page."""
    name = html.escape(evaluation.task)
    parts = [
        f"<h1>{name}</h1><p class=quiet>{html.escape(evaluation.source)}</p>",
        *(f"<p class=note>{html.escape(note)}</p>" for note in evaluation.notes),
    ]
    if evaluation.depths:
        parts += ["<h2>By depth</h2>", _depths(evaluation)]
    for scores in evaluation.parts:
        parts.append(_part(scores, named=len(evaluation.parts) > 1))
    head = (
        f"<meta charset=utf-8><meta name=viewport content='width=device-width, initial-scale=1'><title>{name}</title>"
    )
    return f"<!doctype html><html lang=en>{head}<style>{STYLE}</style>{''.join(parts)}</html>\n"


def _part(scores: Scores, *, named: bool) -> str:
    cards = "".join(
        f"<div class=card><b>{figure(name, value)}</b>{title(name)}</div>" for name, value in scores.metrics.items()
    )
    parts = [
        f"<h2>{html.escape(scores.part)}</h2>" if named else "",
        f"<div class=cards>{cards}<div class=card><b>{scores.count:,}</b>items</div></div>",
    ]
    if named and scores.part == TOGETHER:
        return "".join(parts)
    if scores.by_label:
        parts.append("<h3>Labels</h3>" + _labels(scores))
    if scores.confusion:
        parts.append("<h3>What is taken for what</h3>" + _confusion(scores))
    parts.append(f"<h3>By length</h3><div class=plot>{_lengths(scores)}</div>")
    if scores.hardest:
        parts += ["<h3>Hardest</h3>", *map(_hard, scores.hardest)]
    return "".join(parts)


def _rows(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    titles = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    rows = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in body)
    return f"<div class=wide><table class=rows><tr>{titles}</tr>{rows}</table></div>"


def _labels(scores: Scores) -> str:
    body = [
        (label.name, *(f"{100 * value:.2f}" for value in (label.precision, label.recall, label.f1)), f"{label.count:,}")
        for label in scores.by_label
    ]
    return _rows(("", "precision", "recall", "F1", "items"), body)


def _confusion(scores: Scores) -> str:
    """A matrix coloured by the share of its row, or the worst confusions where it would be too large."""
    if len(scores.labels) > MOST_LABELS:
        worst = sorted(
            (
                (count, scores.labels[row], scores.labels[column])
                for row, counts in enumerate(scores.confusion)
                for column, count in enumerate(counts)
                if count and row != column
            ),
            reverse=True,
        )[:20]
        return _rows(("is", "said to be", "times"), [(right, said, f"{count:,}") for count, right, said in worst])
    head = "".join(f"<th>{html.escape(name)}</th>" for name in scores.labels)
    rows = []
    for index, (name, counts) in enumerate(zip(scores.labels, scores.confusion, strict=True)):
        total = max(1, sum(counts))
        cells = "".join(_cell(count, count / total, column == index) for column, count in enumerate(counts))
        rows.append(f"<tr><td>{html.escape(name)}</td>{cells}</tr>")
    table = f"<table class=matrix><tr><th></th>{head}</tr>{''.join(rows)}</table>"
    return f"<p class=quiet>Rows are right, columns were said.</p><div class=wide>{table}</div>"


def _cell(count: int, share: float, right: bool) -> str:
    if not count:
        return "<td class=quiet>·</td>"
    color = "37, 99, 168" if right else "217, 90, 43"
    dark = "; color: #fff" if share > 0.6 else ""
    shade = f"background: rgba({color}, {0.12 + 0.8 * share:.2f}){dark}"
    return f"<td style='{shade}' title='{share:.1%} of the row'>{count:,}</td>"


def _lengths(scores: Scores) -> str:
    scale = 1 if KINDS[scores.kind].in_units else 100

    def draw(axes: Axes) -> None:
        names = [f"{row.shortest:,}\nto {row.longest:,}" for row in scores.by_length]
        bars = axes.bar(range(len(names)), [scale * row.score for row in scores.by_length], color=BLUE)
        axes.bar_label(bars, fmt="%.1f" if scale == 100 else "%.3g", fontsize=8)
        axes.set_xticks(range(len(names)), names, fontsize=8)
        axes.set(title=f"{scores.length_measure}, by characters", ylabel="")
        if scale == 100:
            axes.set_ylim(0, 109)

    return _plot(draw)


def _depths(evaluation: Evaluation) -> str:
    names = list(evaluation.depths[0].metrics)
    body = [(str(row.depth), *(figure(name, row.metrics[name]) for name in names)) for row in evaluation.depths]

    def draw(axes: Axes) -> None:
        depths = [row.depth for row in evaluation.depths]
        axes.plot(depths, [100 * row.metrics[names[0]] for row in evaluation.depths], "o-", color=BLUE)
        axes.set_xticks(depths)
        axes.set(title=f"{title(names[0])}, by depth")

    return _rows(("depth", *map(title, names)), body) + f"<div class=plot>{_plot(draw)}</div>"


def _hard(hard: Hard) -> str:
    sure = "" if hard.probability is None else f" <span class=quiet>given {hard.probability:.1%}</span>"
    return (
        f"<div class=hard><p><span class=quiet>{html.escape(hard.key)}</span> is <b class=right>"
        f"{html.escape(hard.expected)}</b>{sure}, said <b class=wrong>{html.escape(hard.predicted)}</b></p>"
        f"<p>{html.escape(hard.text)}</p></div>"
    )
