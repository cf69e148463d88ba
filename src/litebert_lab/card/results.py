"""Results of a model, read from what other commands wrote, and the tables of a card made of them.

Results are the JSON of `evaluate`, on tasks and on held-out text, a run of `finetune --seeds`, the JSON of
`fill --cloze`, or a file that gathers several (see ``litebert_lab.litebert_en.results``). Tables are Markdown: results
by depth next to published rows, every figure with its spread.
"""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from litebert.checkpoints.folder import CONFIG, model_config
from litebert.errors import InputError
from litebert.runs import read_run
from litebert.tasks.finetune import SUMMARY
from litebert.tasks.metrics import IN_UNITS
from litebert.tasks.report import title

NO_SHARES = {"loss", *IN_UNITS}  # a card shows shares, in percent


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One metric over the seeds of a task; a share from 0 to 1."""

    median: float
    lowest: float
    highest: float


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a model reached on a task at a depth."""

    task: str
    depth: int | None  # None: not known
    metrics: Mapping[str, Figure]
    seeds: int = 1
    cut: bool = False  # whether the head was trained at full depth and only read at this one
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class ClozeScore:
    """How a list of texts with a gap was filled at a depth."""

    name: str
    depth: int
    top: int
    scores: Mapping[str, Mapping[str, float]]  # by kind: items, first, top


@dataclass(frozen=True, kw_only=True)
class HeldOutScores:
    """Figures on held-out text that were taken after the run."""

    tokens: int
    length: int
    by_depth: Mapping[int, Mapping[str, float]]


@dataclass
class Results:
    """All results of a model."""

    outcomes: list[Outcome] = field(default_factory=list)
    clozes: list[ClozeScore] = field(default_factory=list)
    held_out: HeldOutScores | None = None
    commands: list[str] = field(default_factory=list)

    def at(self, task: str, depth: int | None) -> Outcome | None:
        """The result of a task at a depth, of heads trained there before those that were cut."""
        found = [one for one in self.outcomes if one.task == task and one.depth == depth]
        return min(found, key=lambda one: one.cut, default=None)

    def as_plain(self) -> dict[str, Any]:
        """For JSON; ``read_results`` reads it back."""
        return {
            "commands": self.commands,
            "results": [asdict(one) for one in self.outcomes],
            "clozes": [asdict(one) for one in self.clozes],
        }


def read_results(paths: Iterable[Path], full_depth: int) -> Results:
    """All results in these files and run folders; ``full_depth`` is the depth where none is given."""
    found = Results()
    for path in paths:
        if path.is_dir() or path.name == SUMMARY:
            found.outcomes.append(read_seeds(path if path.is_dir() else path.parent))
            continue
        content = _read_json(path)
        try:
            _add(found, content, full_depth)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError(
                f"{path} holds no results that a card can read; give what `litebert evaluate --json`, `litebert fill "
                "--cloze --json` or litebert_lab.litebert_en.results wrote, or a folder of `litebert finetune --seeds`"
            ) from None
    return found


def _add(found: Results, content: Mapping[str, Any], full_depth: int) -> None:
    if "results" in content:
        found.commands += content.get("commands", [])
        for row in content["results"]:
            metrics = {name: Figure(**figure) for name, figure in row["metrics"].items()}
            found.outcomes.append(Outcome(**{**row, "metrics": metrics}))
        found.clozes += [ClozeScore(**row) for row in content.get("clozes", [])]
    elif "held_out" in content:
        found.held_out = HeldOutScores(
            tokens=int(content["tokens"]),
            length=int(content["length"]),
            by_depth={
                int(row["depth"]): {name: float(value) for name, value in row.items() if name != "depth"}
                for row in content["held_out"]
            },
        )
    elif "cloze" in content:
        found.clozes.append(cloze_score(content))
    else:
        task = content["task"]
        found.outcomes.append(_single(task, full_depth, content["parts"][-1]["metrics"], cut=False))
        found.outcomes += [_single(task, int(row["depth"]), row["metrics"], cut=True) for row in content["depths"]]


def cloze_score(content: Mapping[str, Any]) -> ClozeScore:
    """A score out of what `litebert fill --cloze --json` printed."""
    return ClozeScore(
        name=str(content["cloze"]), depth=int(content["depth"]), top=int(content["top"]), scores=content["scores"]
    )


def _single(task: str, depth: int, metrics: Mapping[str, float], *, cut: bool) -> Outcome:
    figures = {name: Figure(median=value, lowest=value, highest=value) for name, value in metrics.items()}
    return Outcome(task=task, depth=depth, metrics=figures, cut=cut)


def read_seeds(folder: Path) -> Outcome:
    """The medians of a run of several seeds, of every metric and not only of the first; or of a run of one."""
    run = read_run(folder)
    if run is None or run.verb != "finetune":
        raise InputError(f"{folder} is no run of `litebert finetune`; name one, or a file of results")
    if run.status != "finished":
        raise InputError(f"the run in {folder} is not finished; resume it (--resume) or leave it out")
    files = sorted(folder.glob("seed-*/result.json"))
    rows = [_read_json(path)["figures"] for path in files] or [run.result["dev"]]  # of every seed
    names = [name for name in rows[0] if name not in NO_SHARES and all(name in row for row in rows)]
    metrics = {}
    for name in names:
        values = [float(row[name]) for row in rows]
        metrics[name] = Figure(median=statistics.median(values), lowest=min(values), highest=max(values))
    seconds = run.result.get("seconds")
    return Outcome(
        task=str(run.settings["task"]), depth=_depth(folder), metrics=metrics, seeds=len(rows), seconds=seconds
    )


def _depth(folder: Path) -> int | None:
    """How many layers the kept model has."""
    kept = folder / "model"
    return model_config(kept).encoder.num_layers if (kept / CONFIG).is_file() else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no file '{path}'; name results as JSON, or a run of `litebert finetune`") from None
    except ValueError as error:
        raise InputError(f"{path} is no JSON ({error}); write it again") from None
    if not isinstance(content, dict):
        raise InputError(f"{path} holds no results: expected a JSON object")
    return content


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
    shares = [(one, kind, share) for one in clozes for kind, share in one.scores.items()]
    rows = [
        [one.name, kind, str(one.depth), f"{s['items']:.0f}", f"{100 * s['first']:.1f}", f"{100 * s['top']:.1f}"]
        for one, kind, s in shares
    ]
    top = clozes[0].top if clozes else 5
    return markdown_table(["list", "kind", "depth", "texts", "first guess", f"among the first {top}"], rows, left=2)
