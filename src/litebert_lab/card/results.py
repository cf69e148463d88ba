"""Results of a model, read from what other commands wrote: `evaluate --json`, on tasks and on held-out text, a run of
`finetune --seeds`, `fill --cloze --json`, or a file that gathers several (see ``litebert_lab.litebert_en.results``)."""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from litebert.errors import InputError
from litebert.runs import RunInfo, read_run
from litebert.tasks.finetune import SUMMARY
from litebert.tasks.metrics import IN_UNITS

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
    depth: int | None  # None: the model's own, not told
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
    """All results in these files and run folders; ``full_depth`` is the depth where none is told."""
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
        raise InputError(f"the run in {folder} is not finished; go on with it (--resume) or leave it out")
    rows = _seed_rows(folder, run)
    names = [name for name in rows[0] if name not in NO_SHARES and all(name in row for row in rows)]
    metrics = {name: _figure([float(row[name]) for row in rows]) for name in names}
    seconds = run.result.get("seconds")
    return Outcome(
        task=str(run.settings["task"]), depth=_depth(folder), metrics=metrics, seeds=len(rows), seconds=seconds
    )


def _seed_rows(folder: Path, run: RunInfo) -> list[Mapping[str, Any]]:
    """The dev figures of every seed."""
    files = sorted(folder.glob("seed-*/result.json"))
    if files:
        return [_read_json(path)["figures"] for path in files]
    return [run.result["dev"]]


def _figure(values: Sequence[float]) -> Figure:
    return Figure(median=statistics.median(values), lowest=min(values), highest=max(values))


def _depth(folder: Path) -> int | None:
    """How many layers the kept model has."""
    path = folder / "model" / "config.json"
    if not path.is_file():
        return None
    config = _read_json(path)
    if config.get("model_type") == "litebert":
        return int(config["litebert"]["encoder"]["num_layers"])
    layers = next(config[name] for name in ("num_hidden_layers", "n_layers", "n_layer") if name in config)
    return int(layers) * int(config.get("inner_group_num", 1))


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
