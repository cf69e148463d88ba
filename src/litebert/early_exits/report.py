"""Early exits as a report: the chosen rule, a table for each family of rules, and scores against the layers run."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from litebert.early_exits.heads import ExitReport, Point, RuleName
from litebert.report import COLOURS, MARKERS, Plot, Report, Section, Table, note, notes, to_html
from litebert.runs import write_atomically
from litebert.tasks.metrics import IN_UNITS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAGE = "exits.html"
RULES: tuple[RuleName, ...] = ("depth", "patience", "confidence")
NAMES: dict[RuleName, str] = {"depth": "all at one depth", "patience": "by patience", "confidence": "by confidence"}


def rows_of(report: ExitReport, rule: RuleName) -> list[list[str]]:
    """A table: the heading, then a row for each setting of a rule; the chosen one has a mark."""
    names = list(report.full.metrics)
    heading = {"depth": "depth", "patience": "heads that agree", "confidence": "sure by"}[rule]
    rows = [[heading, *(name.replace("_", " ") for name in names), "mean depth", "layers run"]]
    for one in report.of(rule):
        value = f"{100 * one.value:.6g}%" if rule == "confidence" else f"{one.value:g}"
        mark = " *" if _is_chosen(report, one) else ""
        scores = [_figure(name, one.metrics[name]) for name in names]
        rows.append([value + mark, *scores, f"{one.mean_depth:.2f}", f"{one.mean_depth / report.depths:.0%}"])
    return rows


def _is_chosen(report: ExitReport, point: Point) -> bool:
    return (point.rule, point.value, point.tolerance) == (report.rule, report.value, report.tolerance)


def sentences(report: ExitReport) -> list[str]:
    """The chosen rule, what it saves and costs, and how far that can be trusted."""
    metric, unit = report.metric.replace("_", " "), "%" if report.metric in IN_UNITS else " points"
    if report.mean_depth >= report.depths:
        return [f"no rule saves layers and loses at most {report.max_loss:g}{unit}: every input runs all of them"]
    if report.rule == "confidence":
        rule = f"an input leaves where a head gives its answer {100 * report.value:.6g}% or more"
    else:
        near = f" (numbers within {report.tolerance:.3g} do)" if report.tolerance else ""
        rule = f"an input leaves where {report.value:g} heads in a row agree{near}"
    found = [
        f"rule: {rule}",
        f"{report.mean_depth:.2f} of {report.depths} layers on average: {report.depths / report.mean_depth:.2f} times "
        f"less work; {metric} {_figure(report.metric, report.score)}, all layers "
        f"{_figure(report.metric, report.full_score)} (at most {report.max_loss:g}{unit} may be lost)",
        f"check: rules chosen on one half of the held-out rows lose {report.checked_loss:.2f}{unit} on the other",
    ]
    if report.metric not in IN_UNITS and 100 / report.rows > max(report.max_loss, 1e-9):
        found.append(
            f"one of the {report.rows:,} held-out rows is {100 / report.rows:.2f} points: give more of them to "
            f"calibrate to {report.max_loss:g}"
        )
    return found


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
        f"heads learnt on {report.trained_on:,} training rows, rule calibrated on {report.rows:,} held-out rows; the "
        "last depth has the model's own head; * is the rule that was chosen"
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


def save_page(folder: Path, report: ExitReport) -> None:
    """Write the report as a page into a folder."""
    write_atomically(folder / PAGE, to_html(exit_report(report)))
