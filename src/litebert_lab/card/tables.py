"""The tables of a card as Markdown: results by depth next to published rows, every figure with its spread."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from litebert.tasks.report import title
from litebert_lab.card.results import ClozeScore, Outcome, Results

NOTHING = "–"
PUBLISHED = Path(__file__).with_name("published.yaml")  # each row with its budget and its source


@dataclass(frozen=True)
class Column:
    """A task in the main table: its name in results and in published rows, its title, the metrics shown."""

    task: str
    title: str
    metrics: tuple[str, ...]
    published: str = ""


GLUE = (
    Column("cola", "CoLA", ("matthews",)),
    Column("sst2", "SST-2", ("accuracy",)),
    Column("mrpc", "MRPC", ("f1",)),
    Column("stsb", "STS-B", ("pearson",)),
    Column("rte", "RTE", ("accuracy",)),
)
OTHERS = (Column("squad1", "SQuAD 1.1", ("f1", "exact_match")), Column("race-middle", "RACE", ("accuracy",), "race"))


@dataclass(frozen=True, kw_only=True)
class Published:
    """A model of others, with what it took and what it reached, in percent as printed there."""

    name: str
    parameters: str
    budget: str
    scores: dict[str, str]
    source: str
    note: str = ""


def published_rows() -> list[Published]:
    """All rows, in the order of the file."""
    rows = yaml.safe_load(PUBLISHED.read_text(encoding="utf-8"))
    return [Published(**row) for row in rows]


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table; the first ``left`` columns are text, the others numbers."""
    marks = ["---"] * left + ["---:"] * (len(headings) - left)
    return "\n".join("| " + " | ".join(row) + " |" for row in (headings, marks, *rows))


def main_table(name: str, parameters: str, budget: str, results: Results, published: Sequence[Published]) -> str:
    """A row for each depth, then those of others; percentages on development sets."""
    columns = (*GLUE, *OTHERS)
    headings = ["model", "parameters", "budget", *(column.title for column in GLUE), "mean of five"]
    headings += [*(column.title for column in OTHERS), "GLUE average as published"]
    rows = []
    for depth in depths_of(results):
        cells = {column.task: _cell(results.at(column.task, depth), column) for column in columns}
        scores = [_main(results.at(column.task, depth), column) for column in GLUE]
        known = [score for score in scores if score is not None]
        mean = f"{100 * sum(known) / len(known):.1f}" if len(known) == len(GLUE) else NOTHING
        glue, others = ([cells[column.task] for column in part] for part in (GLUE, OTHERS))
        rows.append([f"**{name}**, depth {depth}", parameters, budget, *glue, mean, *others, NOTHING])
    for row in published:
        scores_of = {column.task: row.scores.get(column.published or column.task, NOTHING) for column in columns}
        glue, others = ([scores_of[column.task] for column in part] for part in (GLUE, OTHERS))
        last = row.scores.get("glue", NOTHING)
        mean = NOTHING if NOTHING in glue else f"{sum(map(float, glue)) / len(glue):.1f}"
        rows.append([row.name, row.parameters, row.budget, *glue, mean, *others, last])
    return markdown_table(headings, rows, left=3)


def depths_of(results: Results) -> list[int]:
    """The depths that there are results at, the deepest first."""
    return sorted({one.depth for one in results.outcomes if one.depth is not None}, reverse=True)


def _main(outcome: Outcome | None, column: Column) -> float | None:
    if outcome is None or column.metrics[0] not in outcome.metrics:
        return None
    return outcome.metrics[column.metrics[0]].median


def _cell(outcome: Outcome | None, column: Column) -> str:
    if outcome is None or any(metric not in outcome.metrics for metric in column.metrics):
        return NOTHING
    said = " / ".join(f"{100 * outcome.metrics[metric].median:.1f}" for metric in column.metrics)
    return f"{said}†" if outcome.cut else said


def spread_table(results: Results) -> str:
    """Every figure with its lowest and highest seed."""
    rows = []
    for one in sorted(results.outcomes, key=lambda one: (one.task, -(one.depth or 0), one.cut)):
        for metric, figure in one.metrics.items():
            spread = f"{100 * figure.lowest:.2f} to {100 * figure.highest:.2f}" if one.seeds > 1 else NOTHING
            depth = f"{one.depth or NOTHING}{'†' if one.cut else ''}"
            rows.append([one.task, title(metric), depth, f"{100 * figure.median:.2f}", spread, str(one.seeds)])
    return markdown_table(["task", "metric", "depth", "median", "lowest to highest", "seeds"], rows, left=2)


def cloze_table(clozes: Sequence[ClozeScore]) -> str:
    """Shares of texts whose gap was filled rightly."""
    rows = [
        [
            one.name,
            kind,
            str(one.depth),
            f"{share['items']:.0f}",
            f"{100 * share['first']:.1f}",
            f"{100 * share['top']:.1f}",
        ]
        for one in clozes
        for kind, share in one.scores.items()
    ]
    top = clozes[0].top if clozes else 5
    return markdown_table(["list", "kind", "depth", "texts", "first guess", f"among the first {top}"], rows, left=2)
