"""What a study found: figures by row with their errors, verdicts by finding, as JSON and as text. No torch here."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from litebert.study.noise import Judged, Sums, error_of, judge, mean_of
from litebert.study.plans import Finding, Row, Study

if TYPE_CHECKING:
    from litebert.study.run import Done

METRICS = {
    "mlm_loss": "MLM loss",
    "mlm_accuracy": "MLM",
    "nsp_accuracy": "NSP",
    "sop_accuracy": "SOP",
}
LEFT_AS_IS = 0.1  # of the places to predict
JUDGED_BY = (
    "Judged by held-out text, masked plainly at 15%, the same for every row. A finding is reproduced, or not, where "
    "its difference is larger than a 95% interval of the noise: of seeds and of the text; with one seed of the text "
    "alone, but 1% of the figure at the least."
)


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


@dataclass(frozen=True, kw_only=True)
class Report:
    """The study as people read it."""

    study: Study
    lines: tuple[Line, ...]
    verdicts: tuple[tuple[Finding, Judged], ...]
    notes: tuple[str, ...]
    complete: bool
    unigram: float


def report_of(done: "Done") -> Report:
    """Figures and verdicts from the scores that are there."""
    study = done.study
    by_metric = {metric: _by_row(done, metric) for metric in _metrics(study)}
    return Report(
        study=study,
        lines=tuple(
            _line(done, row, {metric: found[row.name] for metric, found in by_metric.items()}) for row in study.rows
        ),
        verdicts=tuple((finding, judged(finding, by_metric, done.unigram)) for finding in study.findings),
        notes=done.notes,
        complete=done.complete,
        unigram=done.unigram,
    )


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


def as_json(done: "Done", report: Report) -> dict[str, Any]:
    """Everything, for machines."""
    return {
        "study": report.study.name,
        "about": report.study.about,
        "paper": report.study.table,
        "settings": {**done.settings.facts(), "seeds": done.settings.seeds, "corpus": done.corpus},
        "complete": report.complete,
        "unigram_loss": report.unigram,
        "judged_by": JUDGED_BY,
        "notes": list(report.notes),
        "rows": [
            {
                "name": line.row.name,
                "label": line.row.label,
                "fields": list(line.row.words),
                "parameters": line.parameters,
                "seeds": line.seeds,
                "steps": line.steps,
                "remark": line.remark,
                "figures": {name: asdict(figure) for name, figure in line.figures.items()},
                "paper": dict(line.row.paper),
            }
            for line in report.lines
        ],
        "findings": [
            {"finding": finding.text, "paper": finding.paper, "metric": finding.metric, **asdict(found)}
            for finding, found in report.verdicts
        ],
    }


def table_of(report: Report) -> list[tuple[str, ...]]:
    """Headings, then a row a line; the paper's columns stand on the right."""
    published = list(dict.fromkeys(name for line in report.lines for name in line.row.paper))
    shown = [metric for metric in report.study.metrics if any(metric in line.figures for line in report.lines)]
    rows: list[tuple[str, ...]] = [
        (
            "row",
            "parameters",
            *(METRICS[metric] for metric in shown),
            "steps",
            *(f"paper: {name}" for name in published),
        )
    ]
    for line in report.lines:
        rows.append(
            (
                line.row.label,
                f"{line.parameters / 1e6:.2f}M",
                *(in_figures(metric, line.figures.get(metric)) for metric in shown),
                f"{line.steps:,.0f}" if line.steps else "",
                *(line.row.paper.get(name, "") for name in published),
            )
        )
    return rows


def in_figures(metric: str, figure: Figure | None) -> str:
    """A figure with its error: ``5.123 ± 0.012``, ``41.3 ± 0.4%``."""
    if figure is None:
        return ""
    times, digits, unit = (1, 3, "") if metric.endswith("loss") else (100, 1, "%")
    error = "" if figure.error is None else f" ± {times * figure.error:.{digits}f}"
    return f"{times * figure.value:.{digits}f}{error}{unit}"


def as_text(report: Report) -> str:
    """The table and the verdicts for a terminal."""
    rows = table_of(report)
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = [f"{report.study.about} (the paper's table: {report.study.table})", ""]
    for row in rows:
        cells = [
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    lines += ["", *(f"{line.row.label}: {line.remark}" for line in report.lines if line.remark)]
    for finding, found in report.verdicts:
        lines += [f"{found.verdict.upper()}: {finding.text}", f"    {explained(finding, found)}"]
    lines += ["", JUDGED_BY, *report.notes]
    if not report.complete:
        lines.append("Not all rows are there yet; the same command goes on.")
    return "\n".join(lines)


def explained(finding: Finding, found: Judged) -> str:
    """Why a verdict is what it is, in a line."""
    said = [f"paper: {finding.paper}"] if finding.paper else []
    if found.value is not None:
        margin = f"{found.value:+.3f}" if finding.metric.endswith("loss") else f"{100 * found.value:+.1f} points"
        said.append(f"here: {margin} in favour" if found.value >= 0 else f"here: {margin}, against it")
    return "; ".join([*said, found.why])


def _metrics(study: Study) -> list[str]:
    return list(dict.fromkeys([*study.metrics, *(finding.metric for finding in study.findings)]))


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
