"""Several seeds of one fine-tuning: their median and spread, and the best model kept."""

import json
import shutil
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from litebert.errors import InputError
from litebert.runs import MODEL_FOLDER, RunLock, parent_of, update_run, write_atomically, write_run
from litebert.tasks.examples import TaskData
from litebert.tasks.finetuning import FinetuneResult, FinetuneSettings, Prepared, check_folder, finetune, prepare

SUMMARY = "seeds.json"


@dataclass(frozen=True)
class SeedsResult:
    """What several seeds gave. ``spread`` is from the lowest to the highest score."""

    metric: str
    scores: tuple[float, ...]
    median: float
    lowest: float
    highest: float
    deviation: float
    best: int  # the seed whose model was kept
    collapsed: int  # attempts that collapsed and were started again
    seconds: float

    def describe(self) -> str:
        """In a sentence."""
        return (
            f"{self.metric} of {len(self.scores)} seeds: median {self.median:.4f}, from {self.lowest:.4f} to "
            f"{self.highest:.4f} (standard deviation {self.deviation:.4f}); the best is seed {self.best}"
        )


def finetune_seeds(
    settings: FinetuneSettings, data: TaskData, seeds: int, say: Callable[[str], None]
) -> tuple[SeedsResult, list[FinetuneResult]]:
    """Fine-tune with ``seeds`` seeds, one after the other; those already finished are not done again on resume."""
    if seeds < 2:
        raise InputError(f"--seeds is {seeds} but must be 2 or more")
    check_folder(settings.out, settings.resume)
    settings.out.mkdir(parents=True, exist_ok=True)
    results: list[FinetuneResult] = []
    with RunLock(settings.out):
        prepared = prepare(settings, data)
        parents = [parent_of("start", Path(settings.model))] if Path(settings.model).is_dir() else []
        asked = {"model": settings.model, "task": data.name, "seeds": seeds, "recipe": asdict(prepared.recipe)}
        if not settings.resume:
            write_run(settings.out, "finetune", asked, parents=parents, status="running")
        for number in range(seeds):
            seed = settings.seed + number
            results.append(_one(settings, data, prepared, seed, say))
            if results[-1].status == "stopped":
                raise InputError(f"stopped at seed {seed}; the same command with --resume goes on")
            say(f"seed {seed}: {data.metrics[0]} {results[-1].score:.4f}")
        found = _summary(data.metrics[0], results, settings.seed)
        _keep_best(settings.out, found)
        figures = results[found.best - settings.seed].figures
        update_run(settings.out, status="finished", result={**asdict(found), "dev": figures})
    return found, results


def _one(
    settings: FinetuneSettings, data: TaskData, prepared: Prepared, seed: int, say: Callable[[str], None]
) -> FinetuneResult:
    """One seed's run, or what it gave where it is done."""
    out = settings.out / f"seed-{seed}"
    done = out / "result.json"
    if settings.resume and done.is_file():
        fields = json.loads(done.read_text(encoding="utf-8"))
        return FinetuneResult(**{**fields, "notes": tuple(fields["notes"]), "attempts": tuple(fields["attempts"])})
    resume = settings.resume and out.is_dir() and any(out.iterdir())
    result = finetune(replace(settings, out=out, seed=seed, resume=resume), data, say, prepared)
    if result.status != "stopped":
        write_atomically(done, json.dumps(asdict(result), indent=2) + "\n")
    return result


def _summary(metric: str, results: list[FinetuneResult], first: int) -> SeedsResult:
    scores = [result.score for result in results]
    best = max(range(len(scores)), key=lambda number: scores[number])
    return SeedsResult(
        metric=metric,
        scores=tuple(scores),
        median=statistics.median(scores),
        lowest=min(scores),
        highest=max(scores),
        deviation=statistics.stdev(scores),
        best=first + best,
        collapsed=sum(len(result.attempts) for result in results),
        seconds=sum(result.seconds for result in results),
    )


def _keep_best(out: Path, found: SeedsResult) -> None:
    """The best seed's model as the run's; those of the others go."""
    write_atomically(out / SUMMARY, json.dumps(asdict(found), indent=2) + "\n")
    for folder in sorted(out.glob("seed-*")):
        model = folder / MODEL_FOLDER
        if not model.is_dir():
            continue
        if folder.name == f"seed-{found.best}":
            shutil.rmtree(out / MODEL_FOLDER, ignore_errors=True)
            shutil.copytree(model, out / MODEL_FOLDER)
        shutil.rmtree(model)
