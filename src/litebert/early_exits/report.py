"""The trade-off of early exits as a report: a table for each rule, and scores against the layers that are run."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litebert.early_exits.run import ExitReport, Head, Point, Rule
from litebert.report import COLOURS, MARKERS, Plot, Report, Section, Table, note, notes, to_html, to_json
from litebert.runs import parent_of, write_atomically, write_run
from litebert.tasks.metrics import IN_UNITS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

JSON_FILE, PAGE, HEADS = "exits.json", "exits.html", "heads.safetensors"
RULES: tuple[Rule, ...] = ("depth", "patience", "confidence")
NAMES: dict[Rule, str] = {"depth": "all at one depth", "patience": "by patience", "confidence": "by confidence"}


def rows_of(report: ExitReport, rule: Rule) -> list[list[str]]:
    """A table: the heading, then a row for each setting of a rule."""
    names = list(report.full.metrics)
    heading = {"depth": "depth", "patience": "heads that agree", "confidence": "sure by"}[rule]
    rows = [[heading, *(name.replace("_", " ") for name in names), "mean depth", "layers run"]]
    for one in report.of(rule):
        value = f"{100 * one.value:g}%" if rule == "confidence" else f"{one.value:g}"
        scores = [_figure(name, one.metrics[name]) for name in names]
        rows.append([value, *scores, f"{one.mean_depth:.2f}", f"{one.mean_depth / report.depths:.0%}"])
    return rows


def sentences(report: ExitReport) -> list[str]:
    """What follows: how few layers are enough for a loss of a point."""
    if report.metric in IN_UNITS:
        return []
    found = []
    for rule in RULES:
        if report.of(rule):
            best = report.within(rule, 0.01)
            found.append(
                f"within a point of all layers ({_figure(report.metric, report.full.metrics[report.metric])}), "
                f"{NAMES[rule]}: {_setting(best, rule)}{best.mean_depth:.2f} of {report.depths} layers on average, "
                f"{report.metric.replace('_', ' ')} {_figure(report.metric, best.metrics[report.metric])}"
            )
    return found


def _setting(point: Point, rule: Rule) -> str:
    if point.rule != rule:
        return "nothing less than "
    return {
        "depth": "",
        "patience": f"{point.value:g} heads that agree, ",
        "confidence": f"a head that is sure by {100 * point.value:g}%, ",
    }[rule]


def _figure(name: str, value: float) -> str:
    return f"{value:.4g}" if name in IN_UNITS else f"{100 * value:.2f}"


def exit_report(report: ExitReport) -> Report:
    """All of it."""
    plot = Plot(
        title="Score against the layers that are run",
        reading="Up and to the left is better. A rule below the line of fixed depths does worse than leaving all "
        "inputs at one depth.",
        draw=partial(_draw, report),
    )
    about = (
        f"heads trained on {report.trained_on:,} training items, scored on {report.scored_on:,} of dev; the last "
        "depth has the model's own head"
    )
    rules = [
        Section(title=NAMES[rule].capitalize(), items=[Table(rows=rows_of(report, rule))])
        for rule in RULES
        if report.of(rule)
    ]
    return Report(
        title=f"Early exits of {report.model}: {report.task}",
        sections=[Section(items=[note(about, "quiet"), *notes(sentences(report)), plot]), *rules],
        data=report.as_plain(),
    )


def _draw(report: ExitReport, axes: "Axes") -> None:
    scale = 1 if report.metric in IN_UNITS else 100
    for number, rule in enumerate(RULES):
        points = sorted(report.of(rule), key=lambda one: one.mean_depth)
        if points:
            axes.plot(
                [one.mean_depth for one in points],
                [scale * one.metrics[report.metric] for one in points],
                MARKERS[number] + "-",
                color=COLOURS[number],
                label=NAMES[rule],
                markersize=4,
                linewidth=1.2,
            )
    axes.set_xticks(range(1, report.depths + 1))
    axes.set(xlabel="layers run, mean over the inputs", ylabel=report.metric.replace("_", " "))


def save_exits(folder: Path, report: ExitReport, heads: Sequence[Head], asked: Mapping[str, Any]) -> None:
    """Write the report as JSON and as a page, and the heads."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    shown = exit_report(report)
    write_atomically(folder / JSON_FILE, to_json(shown) + "\n")
    write_atomically(folder / PAGE, to_html(shown))
    tensors = {
        f"{depth}.{name}": getattr(head, name) for depth, head in enumerate(heads, 1) for name in ("weight", "bias")
    }
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / HEADS)
    parents = [parent_of("source", Path(asked["model"]))]
    write_run(folder, "exits", dict(asked), parents=parents, result=report.full.metrics)
