"""What a study found: figures by row with their errors, verdicts by finding, and a report of them. No torch here."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from litebert.report import Note, Report, Section, Style, Table, note, notes
from litebert_lab.study.noise import Judged, Sums, error_of, judge, mean_of
from litebert_lab.study.plans import Finding, Row, Study, worse
from litebert_lab.study.plots import METRICS, plots

if TYPE_CHECKING:
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


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The figures and verdicts of a study."""

    study: Study
    lines: tuple[Line, ...]
    verdicts: tuple[tuple[Finding, Judged], ...]
    notes: tuple[str, ...]
    complete: bool
    unigram: float
    length: str  # of each run: "in 5m", "as set"
    ranking: str  # of the rows, where that is of interest


def outcome_of(done: "Done") -> Outcome:
    """Figures and verdicts from the scores that are there."""
    study = done.study
    by_metric = {metric: _by_row(done, metric) for metric in _metrics(study)}
    lines = {
        row.name: _line(done, row, {metric: found[row.name] for metric, found in by_metric.items()})
        for row in study.rows
    }
    return Outcome(
        study=study,
        lines=tuple(replace(line, difference=_difference(line, lines)) for line in lines.values()),
        verdicts=tuple((finding, judged(finding, by_metric, done.unigram)) for finding in study.findings),
        notes=done.notes,
        complete=done.complete,
        unigram=done.unigram,
        length="as set" if done.settings.steps else f"in {done.settings.length}",
        ranking=_ranking(study, by_metric["mlm_loss"], done.unigram) if study.ranked else "",
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


def as_json(done: "Done", outcome: Outcome) -> dict[str, Any]:
    """Everything, for machines."""
    return {
        "study": outcome.study.name,
        "about": outcome.study.about,
        "paper": outcome.study.table,
        "settings": {**done.settings.facts(), "seeds": done.settings.seeds, "corpus": done.corpus},
        "complete": outcome.complete,
        "unigram_loss": outcome.unigram,
        "judged_by": JUDGED_BY,
        "ranking": outcome.ranking,
        "notes": list(outcome.notes),
        "rows": [
            {
                "name": line.row.name,
                "label": line.row.label,
                "fields": list(line.row.words),
                "parameters": line.parameters,
                "seeds": line.seeds,
                "steps": line.steps,
                "remark": line.remark,
                "difference": line.difference,
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
    rows: list[tuple[str, ...]] = [
        (
            "row",
            "parameters",
            *(METRICS[metric] for metric in shown),
            *(["loss against above"] if beside else []),
            f"steps ({outcome.length})",
            *(f"paper: {name}" for name in published),
        )
    ]
    for line in outcome.lines:
        rows.append(
            (
                line.row.label,
                f"{line.parameters / 1e6:.2f}M",
                *(in_figures(metric, line.figures.get(metric)) for metric in shown),
                *(["" if line.difference is None else f"{line.difference:+.1%}"] if beside else []),
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
    if not outcome.complete:
        remarks.append("Not all rows are there yet; the same command goes on.")
    ranking = [note(f"Lowest loss first: {outcome.ranking}", "strong")] if outcome.ranking else []
    verdicts = [_verdict(finding, found) for finding, found in outcome.verdicts]
    return Report(
        title=f"Study: {study.about}",
        sections=[
            Section(items=[note(described, "quiet"), *notes(remarks, "warning")]),
            Section(title="Rows", items=[Table(rows=table_of(outcome)), *notes(outcome.notes, "quiet")]),
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
    said = [f"{finding.whose}: {finding.paper}"] if finding.paper else []
    if found.value is not None:
        times, digits, unit = _scale(finding.metric)
        margin = f"{times * found.value:+.{digits}f}"
        if found.interval is not None:
            margin += f" ± {times * found.interval:.{digits}f}"
        margin += " points" if unit else ""
        said.append(f"here: {margin} in favour" if found.value >= 0 else f"here: {margin}, against it")
    return "; ".join([*said, found.why])


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
    said = rows[0].label if rows else ""
    for better, row in pairwise(rows):
        told = judged(worse("", row.name, better.name), {"mlm_loss": losses}, unigram).verdict == "reproduced"
        said += f" {'<' if told else '~'} {row.label}"
    return said


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
