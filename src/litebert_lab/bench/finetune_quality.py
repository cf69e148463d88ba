"""Is it as good? The same small tasks fine-tuned here and by ``transformers``, several seeds each, same settings.

Both train for the same number of steps and are scored once, at the end, by the same metrics on all of dev. Sides, tasks
and seeds can run apart, in processes of their own: what is done is kept in a folder, and a table is made of all of it.
"""

import json
import logging
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from litebert.config import build
from litebert.errors import InputError
from litebert.runs import write_atomically
from litebert.tasks.examples import ItemPrediction
from litebert.tasks.finetune import FinetuneSettings, Prepared, finetune, prepare
from litebert.tasks.prepare import start_network, task_heads
from litebert.tasks.recipes import FinetuneRecipe
from litebert.tasks.score import compute_metrics
from litebert.tasks.sources import read_task
from litebert.train.settings import OptimiserSettings
from litebert_lab.bench.theirs import their_model
from litebert_lab.bench.trainer import CLASS, their_rows, their_scores, train_theirs

TASKS = ("mrpc", "rte", "cola", "stsb")
SideName = Literal["ours", "theirs"]
SIDES: tuple[SideName, ...] = ("ours", "theirs")

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class QualitySettings:
    """What both sides do alike."""

    model: str
    device: str = "cpu"
    epochs: float = 4.0
    rate: float = 5e-5
    batch: int = 32

    def recipe(self) -> FinetuneRecipe:
        """No restarts, one score at the end: neither side is helped."""
        return FinetuneRecipe(
            optimiser=OptimiserSettings(rate=self.rate),
            batch=self.batch,
            epochs=self.epochs,
            length=128,
            scores=1,
            restarts=0,
        )


@dataclass(frozen=True, kw_only=True)
class Scored:
    """One seed of one side."""

    settings: QualitySettings
    task: str
    metric: str
    side: SideName
    seed: int
    score: float
    seconds: float  # of training and scoring
    engine: str


@dataclass(frozen=True)
class Quality:
    """The seeds of both sides of a task; ``difference`` is of the medians, in points."""

    task: str
    metric: str
    ours: tuple[Scored, ...]
    theirs: tuple[Scored, ...]

    @property
    def difference(self) -> float:
        ours, theirs = (statistics.median(one.score for one in side) for side in (self.ours, self.theirs))
        return 100 * (ours - theirs)


def quality_table(found: Sequence[Quality]) -> str:
    """The figures as lines of text."""
    lines = [f"{'task':8} {'metric':10} {'litebert':>20} {'transformers':>20} {'points':>7} {'seconds':>15}"]
    for one in found:
        ours, theirs = (
            f"{100 * statistics.median(scores):.1f} ({100 * min(scores):.1f} to {100 * max(scores):.1f})"
            for scores in ([each.score for each in side] for side in (one.ours, one.theirs))
        )
        seconds = " and ".join(f"{sum(each.seconds for each in side):.0f}" for side in (one.ours, one.theirs))
        lines.append(f"{one.task:8} {one.metric:10} {ours:>20} {theirs:>20} {one.difference:+7.2f} {seconds:>15}")
    if found:
        engine = found[0].theirs[0].engine
        lines.append(f"medians (lowest to highest) of {len(found[0].ours)} seeds; theirs by {engine}")
    return "\n".join(lines)


def bench_quality(
    settings: QualitySettings,
    data: Path,
    *,
    tasks: Sequence[str] = TASKS,
    sides: Sequence[SideName] = SIDES,
    seeds: Sequence[int] = range(5),
    results: Path | None = None,
) -> list[Quality]:
    """Fine-tune with every seed on every task, but for what is done in ``results``; gives the tasks that are whole."""
    if not seeds:
        raise InputError("there are no seeds; --seeds must be 1 or more")
    found = []
    for task in tasks:
        done = {(side, seed): _kept(settings, task, side, seed, results) for side in SIDES for seed in seeds}
        missing = [(side, seed) for side in sides for seed in seeds if done[side, seed] is None]
        if missing:
            with tempfile.TemporaryDirectory() as folder:
                work = _Work.of(settings, task, data, Path(folder))
                for side, seed in missing:
                    made = work.run(side, seed)
                    _keep(made, results)
                    done[side, seed] = made
        ours, theirs = (tuple(one for seed in seeds if (one := done[side, seed])) for side in SIDES)
        if len(ours) == len(theirs) == len(seeds):
            found.append(Quality(task, ours[0].metric, ours, theirs))
    return found


def _place(results: Path, task: str, side: SideName, seed: int) -> Path:
    return results / f"{task}-{side}-{seed}.json"


def _keep(one: Scored, results: Path | None) -> None:
    if results is not None:
        results.mkdir(parents=True, exist_ok=True)
        text = json.dumps(asdict(one), indent=2) + "\n"
        write_atomically(_place(results, one.task, one.side, one.seed), text)


def _kept(settings: QualitySettings, task: str, side: SideName, seed: int, results: Path | None) -> Scored | None:
    """What was done before."""
    path = None if results is None else _place(results, task, side, seed)
    if path is None or not path.is_file():
        return None
    fields = json.loads(path.read_text(encoding="utf-8"))
    made_with = build(QualitySettings, fields["settings"])
    if made_with != settings:
        raise InputError(f"{path} was made with other settings ({made_with}); name another folder for --results")
    return Scored(**{**fields, "settings": made_with})


@dataclass(frozen=True)
class _Work:
    """One task, ready to be trained on by either side."""

    settings: QualitySettings
    prepared: Prepared
    asked: FinetuneSettings

    @classmethod
    def of(cls, settings: QualitySettings, task: str, data: Path, folder: Path) -> "_Work":
        read = read_task(task, data)
        if read.kind not in ("classify", "regress"):
            raise InputError(f"{task} is not one that both sides train here; choose among {', '.join(TASKS)}")
        asked = FinetuneSettings(
            model=settings.model, out=folder, recipe=settings.recipe(), device=settings.device, watched=False
        )
        return cls(settings, prepare(asked, read), asked)

    def run(self, side: SideName, seed: int) -> Scored:
        """One seed of one side."""
        data = self.prepared.data
        score, seconds = self._ours(seed) if side == "ours" else self._theirs(seed)
        log.info(f"{data.name} {side}, seed {seed}: {data.metrics[0]} {score:.4f} in {seconds:.1f} seconds")
        return Scored(
            settings=self.settings,
            task=data.name,
            metric=data.metrics[0],
            side=side,
            seed=seed,
            score=score,
            seconds=seconds,
            engine="litebert" if side == "ours" else "Trainer",
        )

    def _ours(self, seed: int) -> tuple[float, float]:
        asked = replace(self.asked, out=self.asked.out / f"seed-{seed}", seed=seed)
        begun = time.monotonic()
        result = finetune(asked, self.prepared.data, self.prepared)
        return result.score, time.monotonic() - begun

    def _theirs(self, seed: int) -> tuple[float, float]:
        """Their model after the same number of steps, with a head of its own from the same seed."""
        prepared, device = self.prepared, self.settings.device
        data, pad = prepared.data, prepared.tokenizer.pad_id or 0
        network, _ = start_network(prepared.source.network, task_heads(data, answerable=False), prepared.recipe, seed)
        model = their_model(network, CLASS, prepared.tokenizer)
        rows = their_rows(prepared.inputs, prepared.targets)
        begun = time.monotonic()
        train_theirs(model, rows, prepared.recipe, device=device, seed=seed, pad_id=pad)
        part = prepared.dev[0]
        logits = their_scores(model, part.inputs, device=device, pad_id=pad)
        seconds = time.monotonic() - begun
        said = [
            ItemPrediction(key=item.key, label=float(row[0]) if data.kind == "regress" else int(np.argmax(row)))
            for item, row in zip(part.items, logits, strict=True)
        ]
        return compute_metrics(data, part.items, said)[data.metrics[0]], seconds
