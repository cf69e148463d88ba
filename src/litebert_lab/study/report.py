"""What a study found: figures by row with their errors, verdicts by finding, a report of them with plots. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from litebert.report import BLUE, COLOURS, GREY, ORANGE, Note, Plot, Report, Section, Style, Table, note, notes
from litebert.train.metrics import HELD_OUT, read_metrics
from litebert_lab.study.catalogue import WITHIN, Finding, Row, Study, worse
from litebert_lab.study.noise import Judged, Sums, error_of, judge, mean_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from litebert_lab.study.run import Done

LEFT_AS_IS = 0.1  # of the places to predict
JUDGED_BY = (
    "Judged by held-out text, masked plainly at 15%, the same for every row. A finding is reproduced, or not, where "
    "its difference is larger than a 95% interval of the noise: of seeds and of the text; with one seed of the text "
    "alone, but 1% of the figure at the least."
)
STYLES: dict[str, Style] = {"reproduced": "good", "not reproduced": "bad"}


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number of a row: the mean over seeds and its standard error."""

    value: float
    error: float | None


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row with what it reached."""

    row: Row
    parameters: int
    figures: Mapping[str, Figure]
    seeds: int
    steps: float | None
    remark: str
    difference: float | None = None  # of its loss, as a share of that of the row beside it


@dataclass(frozen=True)
class Outcome:
    """The figures and verdicts of a study."""

    study: Study
    lines: tuple[Line, ...]
    verdicts: tuple[tuple[Finding, Judged], ...]
    unigram: float
    length: str  # of each run: "in 5m", "as set"
    ranking: str  # of the rows, where that is of interest


def outcome_of(done: "Done") -> Outcome:
    """Figures and verdicts from the scores that are there."""
    study, unigram = done.study, done.unigram
    metrics = dict.fromkeys([*study.metrics, *(finding.metric for finding in study.findings)])
    by_metric = {metric: _by_row(done, metric) for metric in metrics}
    lines = {
        row.name: _line(done, row, {metric: found[row.name] for metric, found in by_metric.items()})
        for row in study.rows
    }
    compared = tuple(replace(line, difference=_difference(line, lines)) for line in lines.values())
    verdicts = tuple((finding, judged(finding, by_metric, unigram)) for finding in study.findings)
    length = "as set" if done.settings.steps else f"in {done.settings.length}"
    ranking = _ranking(study, by_metric["mlm_loss"], unigram) if study.ranked else ""
    return Outcome(study, compared, verdicts, unigram, length, ranking)


def judged(finding: Finding, by_metric: Mapping[str, Mapping[str, Sequence[Sums]]], unigram: float) -> Judged:
    """The verdict on a finding; one whose ground is missing stays open, whatever its own figures say."""
    found = judge(finding.weights, finding.constant, by_metric[finding.metric])
    why = ""
    for needed in finding.needs:
        if judged(needed, by_metric, unigram).verdict != "reproduced":
            why = f"it means nothing until this holds: {needed.text}"
    losses = [by_metric["mlm_loss"].get(name, ()) for name in finding.weights]
    if finding.metric == "mlm_loss" and all(sums and at_frequencies(mean_of(sums), unigram) for sums in losses):
        why = f"none of its rows has left the level of word frequencies ({unigram:.2f})"
    return replace(found, verdict="too small to tell", why=why) if why else found


def at_frequencies(loss: float, unigram: float) -> bool:
    """Whether a masked-LM loss is what word frequencies give, a tenth of the places being left as they are."""
    return loss > (1 - LEFT_AS_IS) * unigram


def as_json(done: "Done", outcome: Outcome) -> dict[str, Any]:
    """Everything, for machines."""
    return {
        "study": outcome.study.name,
        "about": outcome.study.about,
        "paper": outcome.study.table,
        "settings": {**done.settings.facts(), "seeds": done.settings.seeds, "corpus": done.corpus},
        "complete": done.complete,
        "unigram_loss": done.unigram,
        "judged_by": JUDGED_BY,
        "ranking": outcome.ranking,
        "notes": list(done.notes),
        "rows": [
            {
                **{"name": line.row.name, "label": line.row.label, "fields": list(line.row.words)},
                **{name: getattr(line, name) for name in ("parameters", "seeds", "steps", "remark", "difference")},
                "figures": {name: asdict(figure) for name, figure in line.figures.items()},
                "paper": dict(line.row.paper),
            }
            for line in outcome.lines
        ],
        "findings": [
            {
                "finding": finding.text,
                finding.whose: finding.paper,
                "metric": finding.metric,
                **asdict(found),
                "verdict": verdict_of(finding, found),
            }
            for finding, found in outcome.verdicts
        ],
    }


def table_of(outcome: Outcome) -> list[tuple[str, ...]]:
    """Headings, then a row a line; the paper's columns stand on the right."""
    published = list(dict.fromkeys(name for line in outcome.lines for name in line.row.paper))
    shown = [metric for metric in outcome.study.metrics if any(metric in line.figures for line in outcome.lines)]
    beside = any(line.row.beside for line in outcome.lines)
    headings = ["row", "parameters", *(METRICS[metric] for metric in shown)]
    headings += ["loss against above"] if beside else []
    rows = [(*headings, f"steps ({outcome.length})", *(f"paper: {name}" for name in published))]
    for line in outcome.lines:
        difference = "" if line.difference is None else f"{line.difference:+.1%}"
        rows.append(
            (
                line.row.label,
                f"{line.parameters / 1e6:.2f}M",
                *(in_figures(metric, line.figures.get(metric)) for metric in shown),
                *([difference] if beside else []),
                f"{line.steps:,.0f}" if line.steps else "",
                *(line.row.paper.get(name, "") for name in published),
            )
        )
    return rows


def in_figures(metric: str, figure: Figure | None) -> str:
    """A figure with its error: ``5.123 ± 0.012``, ``41.3 ± 0.4%``."""
    if figure is None:
        return ""
    times, digits, unit = _scale(metric)
    error = "" if figure.error is None else f" ± {times * figure.error:.{digits}f}"
    return f"{times * figure.value:.{digits}f}{error}{unit}"


def study_report(done: "Done", outcome: Outcome) -> Report:
    """The study as people read it."""
    study, settings = outcome.study, done.settings
    described = f"{settings.preset} with the {settings.recipe} recipe, {settings.length} a row, seeds: {settings.seeds}"
    if settings.words:
        described += f", {' '.join(settings.words)}"
    if study.table:
        described += f"; beside the paper's table of {study.table}"
    remarks = [f"{line.row.label}: {line.remark}" for line in outcome.lines if line.remark]
    if not done.complete:
        remarks.append("Not all rows are there yet; the same command resumes the study.")
    ranking = [note(f"Lowest loss first: {outcome.ranking}", "strong")] if outcome.ranking else []
    verdicts = [_verdict(finding, found) for finding, found in outcome.verdicts]
    return Report(
        title=f"Study: {study.about}",
        sections=[
            Section(items=[note(described, "quiet"), *notes(remarks, "warning")]),
            Section(title="Rows", items=[Table(rows=table_of(outcome)), *notes(done.notes, "quiet")]),
            Section(title="Findings", items=[*ranking, *verdicts, note(JUDGED_BY, "quiet")]),
            Section(title="Plots", items=plots(done, outcome)),
        ],
        data=as_json(done, outcome),
    )


def _verdict(finding: Finding, found: Judged) -> Note:
    style = STYLES.get(found.verdict, "strong")
    words = verdict_of(finding, found)
    return Note(((words, style), (f": {finding.text}", ""), (f"\n{explained(finding, found)}", "quiet")))


def verdict_of(finding: Finding, found: Judged) -> str:
    """The verdict in the finding's own words."""
    holds, fails = finding.words
    return {"reproduced": holds, "not reproduced": fails}.get(found.verdict, found.verdict)


def explained(finding: Finding, found: Judged) -> str:
    """Why a verdict is what it is, in a line."""
    parts = [f"{finding.whose}: {finding.paper}"] if finding.paper else []
    if found.value is not None:
        times, digits, unit = _scale(finding.metric)
        margin = f"{times * found.value:+.{digits}f}"
        if found.interval is not None:
            margin += f" ± {times * found.interval:.{digits}f}"
        margin += " points" if unit else ""
        parts.append(f"here: {margin} in favour" if found.value >= 0 else f"here: {margin}, against it")
    return "; ".join([*parts, found.why])


def _scale(metric: str) -> tuple[int, int, str]:
    """What a figure is shown times, with how many digits and in which unit."""
    return (1, 3, "") if metric.endswith("loss") else (100, 1, "%")


def _difference(line: Line, lines: Mapping[str, Line]) -> float | None:
    """How much more a row loses than the one it stands beside, as a share."""
    if not line.row.beside:
        return None
    ours, theirs = (one.figures.get("mlm_loss") for one in (line, lines[line.row.beside]))
    return None if ours is None or theirs is None else ours.value / theirs.value - 1


def _ranking(study: Study, losses: Mapping[str, Sequence[Sums]], unigram: float) -> str:
    """The rows by loss, the best first; ``~`` stands between two that are too close to tell."""
    rows = sorted((row for row in study.rows if losses[row.name]), key=lambda row: mean_of(losses[row.name]))
    ranking = rows[0].label if rows else ""
    for better, row in pairwise(rows):
        apart = judged(worse("", row.name, better.name), {"mlm_loss": losses}, unigram).verdict == "reproduced"
        ranking += f" {'<' if apart else '~'} {row.label}"
    return ranking


def _by_row(done: "Done", metric: str) -> dict[str, list[Sums]]:
    """The sums of a metric by row, one for each seed that is there."""
    found = {}
    for row in done.study.rows:
        sums = [scores.sums(metric) for _, scores in sorted(done.scores[row.name].items())]
        found[row.name] = [each for each in sums if each is not None]
    return found


def _line(done: "Done", row: Row, found: Mapping[str, Sequence[Sums]]) -> Line:
    scores = list(done.scores[row.name].values())
    steps = [score.facts["step"] for score in scores if score.facts.get("step")]
    figures = {metric: Figure(value=mean_of(sums), error=error_of(sums)) for metric, sums in found.items() if sums}
    remarks = []
    if any(score.status == "diverged" for score in scores):
        remarks.append("diverged")
    if "mlm_loss" in figures and at_frequencies(figures["mlm_loss"].value, done.unigram):
        remarks.append(f"still at the level of word frequencies ({done.unigram:.2f})")
    if len(scores) < done.settings.seeds:
        remarks.append(f"{len(scores)} of {done.settings.seeds} seeds done")
    return Line(
        row=row,
        parameters=done.parameters[row.name],
        figures=figures,
        seeds=len(scores),
        steps=sum(steps) / len(steps) if steps else None,
        remark=", ".join(remarks),
    )


METRICS = {"mlm_loss": "MLM loss", "mlm_accuracy": "MLM", "nsp_accuracy": "NSP", "sop_accuracy": "SOP"}
METRICS |= {"blimp_accuracy": "BLiMP"}
ORDERS_READING = "Black lines: the paper. Grey line: chance."


def plots(done: "Done", outcome: "Outcome") -> list[Plot]:
    """Those that this study has figures for."""
    found: list[Plot] = []
    lines = outcome.lines
    if any("mlm_loss" in line.figures for line in lines):
        losses = {line.row.name: line.figures["mlm_loss"] for line in lines if "mlm_loss" in line.figures}
        values = {name: figure.value for name, figure in losses.items()}
        errors = {name: 1.96 * (figure.error or 0.0) for name, figure in losses.items()}
        draw = partial(_draw_values, outcome, values, errors)
        found.append(Plot(title="here: held-out MLM loss (less is better)", reading="Bars: 95% interval.", draw=draw))
    if "nsp_accuracy" in outcome.study.metrics:
        found.append(Plot(title="order: accuracy, %", reading=ORDERS_READING, draw=partial(_draw_orders, outcome)))
    if any(line.difference is not None for line in lines):
        title = f"elastic against trained at this depth: loss, %; dashed: {WITHIN:.0%}"
        found.append(Plot(title=title, draw=partial(_draw_differences, outcome)))
    if any("average" in line.row.paper for line in lines):
        title = "the paper: average of tasks (more is better)"
        averages = {line.row.name: float(line.row.paper["average"]) for line in lines if "average" in line.row.paper}
        found.append(Plot(title=title, draw=partial(_draw_values, outcome, averages, {})))
    title = "held-out MLM loss during training; dashed: word frequencies"
    return [*found, Plot(title=title, draw=partial(_draw_curves, done, outcome))]


def _draw_differences(outcome: "Outcome", axes: "Axes") -> None:
    """How much more each row loses than the one beside it, with the interval of its verdict and the limit."""
    beside = {line.row.name: line.figures["mlm_loss"].value for line in outcome.lines if "mlm_loss" in line.figures}
    reach = {name: 100 * (found.interval or 0.0) for finding, found in outcome.verdicts for name in finding.weights}
    lines = [line for line in outcome.lines if line.difference is not None]
    axes.errorbar(
        [f"{line.row.place:,.0f}" for line in lines],
        [100 * (line.difference or 0.0) for line in lines],
        yerr=[reach[line.row.name] / beside[line.row.beside] for line in lines],
        fmt="o",
        capsize=3,
        color=ORANGE,
    )
    axes.axhline(0, color=GREY, linewidth=1)
    axes.axhline(100 * WITHIN, color="#b0413e", linestyle="--", linewidth=1)
    axes.margins(x=0.15, y=0.15)
    axes.set_xlabel(outcome.study.axis)


def _draw_values(outcome: "Outcome", values: Mapping[str, float], errors: Mapping[str, float], axes: "Axes") -> None:
    """Values by row with their errors: lines where the study has an axis, points elsewhere."""
    lines = [line for line in outcome.lines if line.row.name in values]
    if not outcome.study.axis:
        names = [line.row.label for line in lines]
        reach = [errors.get(line.row.name, 0.0) for line in lines] if errors else None
        axes.errorbar([values[line.row.name] for line in lines], names, xerr=reach, fmt="o", capsize=3, color=BLUE)
        axes.invert_yaxis()
        axes.grid(axis="y", alpha=0.3)
        axes.margins(x=0.15, y=0.15)
        return
    for number, name in enumerate(dict.fromkeys(line.row.line for line in lines)):
        some = [line for line in lines if line.row.line == name]
        axes.errorbar(
            [line.row.place or 0.0 for line in some],
            [values[line.row.name] for line in some],
            yerr=[errors.get(line.row.name, 0.0) for line in some] if errors else None,
            marker="o",
            capsize=3,
            color=COLOURS[number],
            label=name or None,
        )
    axes.set_xscale("log")
    places = sorted({line.row.place or 0.0 for line in lines})
    axes.set_xticks(places, [f"{place:,.0f}" for place in places])
    axes.minorticks_off()
    axes.set_xlabel(outcome.study.axis)


def _draw_orders(outcome: "Outcome", axes: "Axes") -> None:
    """What each model knows of both questions, with the paper's answers as short lines."""
    lines = [line for line in outcome.lines if "sop_accuracy" in line.figures]
    for offset, (metric, colour) in zip((-0.2, 0.2), (("nsp_accuracy", BLUE), ("sop_accuracy", ORANGE)), strict=True):
        places = [number + offset for number in range(len(lines))]
        figures = [line.figures[metric] for line in lines]
        reach = [196 * (figure.error or 0) for figure in figures]
        heights = [100 * figure.value for figure in figures]
        axes.bar(places, heights, 0.36, yerr=reach, color=colour, capsize=3, label=f"asked {METRICS[metric]}")
        published = [float(line.row.paper[METRICS[metric]]) for line in lines]
        label = "the paper" if offset > 0 else ""
        axes.hlines(published, [p - 0.18 for p in places], [p + 0.18 for p in places], color="#1c2430", label=label)
    axes.axhline(50, color=GREY, linewidth=1)
    axes.set_xticks(range(len(lines)), [f"trained on {line.row.label}" for line in lines])
    axes.set_ylim(0, 116)  # room for the legend
    axes.set_yticks(range(0, 101, 20))
    axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper center")


def _draw_curves(done: "Done", outcome: "Outcome", axes: "Axes") -> None:
    """Held-out loss over the run, of the first seed."""
    from litebert_lab.study.run import row_folder

    for number, line in enumerate(line for line in outcome.lines if not line.row.model):
        rows = read_metrics(row_folder(done.settings, line.row, 0))
        points = [
            (float(row["tokens"] or 0) / 1e6, float(row["mlm_loss"] or 0))
            for row in rows
            if row.get("split") == HELD_OUT and "mlm_loss" in row
        ]
        if points:
            colour = COLOURS[number % len(COLOURS)]
            axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.4, label=line.row.label)
    axes.axhline(outcome.unigram, color=GREY, linestyle="--", linewidth=1)
    axes.set_xlabel("million tokens")
