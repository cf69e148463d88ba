"""Fine-tuning side by side with Hugging Face's Trainer: the same weights, texts and batch sizes. How fast, how good?

Speed: theirs pads every batch to its longest text; ours packs. Both are timed from the end of a warm-up to the last
step, input pipeline, optimiser and all. On a machine that others use, too, the two take turns and the best turn counts.

Quality: small tasks, several seeds each, the same settings. Both train for the same number of steps and are scored
once, at the end, by the same metrics on all of dev. Sides, tasks and seeds can run apart, in processes of their own:
what is done is kept in a folder, and a table is made of all of it.
"""

import copy
import gc
import json
import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from litebert.config import build
from litebert.errors import InputError
from litebert.nn.network import Network
from litebert.report import Item, Report, Section, Table, note, table_of
from litebert.runs import write_atomically
from litebert.tasks.encoding import TaskBatches
from litebert.tasks.examples import ItemPrediction
from litebert.tasks.finetune import FinetuneSettings, Prepared, finetune, prepare
from litebert.tasks.objective import TaskObjective
from litebert.tasks.predicting import Predictor
from litebert.tasks.prepare import start_network, task_heads
from litebert.tasks.recipes import FinetuneRecipe
from litebert.tasks.score import compute_metrics
from litebert.tasks.sources import read_task
from litebert.train.objective import Stage
from litebert.train.precision import default_precision
from litebert.train.settings import Bound, OptimiserSettings, TrainSettings
from litebert.train.trainer import Trainer
from litebert_lab.bench.theirs import CLASS, Clocks, Timed, now, their_model, their_rows, their_scores, train_theirs

STEPS = {"cpu": 12, "cuda": 400}  # timed
WARM = {"cpu": 2, "cuda": 300}  # on a GPU shapes of batches are met, and recorded, before the clock starts
THEIR_WARM = {"cpu": 2, "cuda": 50}
TURNS = {"cpu": 3, "cuda": 2}
BATCHES = (32, 128)
MOST_ROWS = 20_000  # of the task's own lengths
COLUMNS = {
    "engine": "{0.engine}",
    "batch": "{0.batch}",
    "steps/s": "{0.steps_per_second:.2f}",
    "examples/s": "{0.examples_per_second:,.0f}",
    "tokens/s": "{0.tokens_per_second:,.0f}",
    "ratio": "{0.ratio:.2f}",
    "by processor": "{0.processor_ratio:.2f}",
}


@dataclass(frozen=True)
class Row:
    """One engine at one batch."""

    engine: str
    batch: int
    steps_per_second: float
    examples_per_second: float
    tokens_per_second: float  # without padding
    ratio: float  # to the first engine, by steps
    processor_ratio: float  # the same by processor time, for a machine that others use


def bench_finetune(
    model: str,
    data: Path,
    *,
    task: str = "sst2",
    device: str = "cpu",
    batches: Sequence[int] = BATCHES,
    steps: int = 0,
    turns: int = 0,
) -> Report:
    """Time both on one task at every batch."""
    if device not in STEPS or (device == "cuda" and not torch.cuda.is_available()):
        raise InputError(f"there is no device '{device}' here; use --device cpu")
    read = read_task(task, data)
    if read.kind not in ("classify", "regress"):
        raise InputError(f"{task} is not a classification; time one of GLUE's tasks, such as sst2")
    step = max(1, len(read.train) // MOST_ROWS)
    read = replace(read, train=read.train[::step], dev={"dev": next(iter(read.dev.values()))[:64]})
    timed, warm = steps or STEPS[device], WARM[device]
    recipe = FinetuneRecipe(optimiser=OptimiserSettings(rate=2e-5), steps=timed + warm, length=128)
    prepared = prepare(FinetuneSettings(model=model, out=Path("unused"), recipe=recipe), read)
    network, _ = start_network(prepared.source.network, task_heads(read, answerable=False), prepared.recipe, 0)
    theirs = their_model(network, CLASS, prepared.tokenizer)
    worst = _difference(network, theirs, prepared)
    rows: list[Row] = []
    padding, mean = 0.0, float(prepared.inputs.lengths.mean())
    for batch in batches:
        best = _Work(prepared, network, theirs, device, batch, timed, warm).best_of(turns or TURNS[device])
        base = best[0]
        padding = 1 - base.tokens / max(base.padded, 1)
        for found in best:
            speed = float(found.steps / found.clocks[0])
            ratio, processor = (base.clocks / base.steps * found.steps / np.maximum(found.clocks, 1e-9)).tolist()
            rows.append(Row(found.engine, batch, speed, speed * batch, speed * batch * mean, ratio, processor))
    facts = {
        "model": model,
        "task": task,
        "device": device,
        "precision": default_precision(torch.device(device)),
        "threads": torch.get_num_threads(),
        "mean_length": mean,
        "padding": padding,  # of the tokens that theirs computes, those that are padding
        "worst_difference": worst,  # of the logits before training
    }
    title = (
        "{model} on {task}, {device} ({threads} threads) in {precision}: {mean_length:.1f} tokens a text, theirs "
        "{padding:.0%} padding; logits differ by {worst_difference:.1e} before training"
    )
    sections = [Section(items=[table_of(rows, COLUMNS)])]
    return Report(title=title.format(**facts), sections=sections, data={**facts, "rows": [asdict(row) for row in rows]})


@dataclass(frozen=True)
class _Work:
    """Both engines at one batch."""

    prepared: Prepared
    network: Network
    theirs: Any
    device: str
    batch: int
    timed: int
    warm: int

    def best_of(self, turns: int) -> list[Timed]:
        """The best turn of each engine, theirs first."""
        engines: list[Callable[[], Timed]] = [lambda: self._theirs(False), lambda: self._theirs(True), self._ours]
        best: dict[str, Timed] = {}
        for _ in range(turns):
            for engine in engines:
                gc.collect()
                found = engine()
                log.info(f"batch {self.batch}: {found.engine} {found.steps / found.clocks[0]:.2f} steps/s")
                if found.engine not in best or found.clocks[0] < best[found.engine].clocks[0]:
                    best[found.engine] = found
        return list(best.values())

    def _recipe(self, warm: int) -> FinetuneRecipe:
        return replace(self.prepared.recipe, batch=self.batch, steps=self.timed + warm)

    def _theirs(self, plain: bool) -> Timed:
        rows, warm = their_rows(self.prepared.inputs, self.prepared.targets), THEIR_WARM[self.device]
        return train_theirs(
            copy.deepcopy(self.theirs),
            rows,
            self._recipe(warm),
            device=self.device,
            seed=0,
            pad_id=self.prepared.tokenizer.pad_id or 0,
            warm=warm,
            plain=plain,
        )

    def _ours(self) -> Timed:
        """The one trainer, as ``litebert finetune`` runs it."""
        where, recipe = torch.device(self.device), self._recipe(self.warm)
        on_gpu = where.type == "cuda"
        inputs, targets, kind = self.prepared.inputs, self.prepared.targets, self.prepared.data.kind
        source = TaskBatches(inputs, targets, batch=self.batch, seed=0, filled=on_gpu)
        assert recipe.steps is not None
        settings = TrainSettings(
            bound=Bound(steps=recipe.steps),
            optimiser=recipe.optimiser,
            schedule=recipe.schedule,
            batch_tokens=((0.0, 1),),
            micro_tokens=1,
            precision=default_precision(where),
            cuda_graphs=on_gpu,
            held_out_every=0.0,
            log_every=min(self.warm, 50),
        )
        torch.manual_seed(0)
        network = copy.deepcopy(self.network).to(where)
        marks: dict[int, Clocks] = {}
        for step in Trainer(network, [Stage("train", 0.0, source, TaskObjective(kind, inputs.longest))], settings):
            if step.step in (self.warm, recipe.steps):
                assert step.loss is not None  # read, so everything up to this step is done
                marks[step.step] = now(self.device)
        return Timed("litebert", marks[recipe.steps] - marks[self.warm], self.timed, 0, 0)


def _difference(network: Network, theirs: Any, prepared: Prepared) -> float:
    """The largest distance between the two models' logits."""
    part = prepared.dev[0]
    ours = Predictor(network, prepared.tokenizer, prepared.note, torch.device("cpu")).scores(part.inputs).scores
    other = their_scores(copy.deepcopy(theirs), part.inputs, device="cpu", pad_id=prepared.tokenizer.pad_id or 0)
    return float(np.abs(ours - other).max())


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

    @staticmethod
    def file(results: Path, task: str, side: SideName, seed: int) -> Path:
        """Where it is kept."""
        return results / f"{task}-{side}-{seed}.json"


@dataclass(frozen=True)
class Quality:
    """The seeds of both sides of a task."""

    task: str
    metric: str
    ours: tuple[Scored, ...]
    theirs: tuple[Scored, ...]


def quality_report(found: Sequence[Quality]) -> Report:
    """Medians, spreads and times."""
    rows = [["task", "metric", "litebert", "transformers", "points", "seconds"]]
    for one in found:
        scores = [[100 * each.score for each in side] for side in (one.ours, one.theirs)]
        medians = [statistics.median(side) for side in scores]
        spreads = [f"{m:.1f} ({min(side):.1f} to {max(side):.1f})" for m, side in zip(medians, scores, strict=True)]
        seconds = " and ".join(f"{sum(each.seconds for each in side):.0f}" for side in (one.ours, one.theirs))
        rows.append([one.task, one.metric, *spreads, f"{medians[0] - medians[1]:+.2f}", seconds])
    how = [f"medians (lowest to highest) of {len(one.ours)} seeds; theirs by {one.theirs[0].engine}" for one in found]
    items: list[Item] = [Table(rows=rows, left=(0, 1)), note(how[0] if how else "no task is complete yet")]
    return Report(title="Fine-tuned scores", sections=[Section(items=items)], data=[asdict(one) for one in found])


def bench_quality(
    settings: QualitySettings,
    data: Path,
    *,
    tasks: Sequence[str] = TASKS,
    sides: Sequence[SideName] = SIDES,
    seeds: Sequence[int] = range(5),
    results: Path | None = None,
) -> list[Quality]:
    """Fine-tune with every seed on every task, except what is in ``results``; returns the complete tasks."""
    if not seeds:
        raise InputError("there are no seeds; --seeds must be 1 or more")
    found = []
    for task in tasks:
        done = {(side, seed): _kept(settings, task, side, seed, results) for side in SIDES for seed in seeds}
        missing = [(side, seed) for side in sides for seed in seeds if done[side, seed] is None]
        if missing:
            read = read_task(task, data)
            if read.kind not in ("classify", "regress"):
                raise InputError(f"{task} is not one that both sides train here; choose among {', '.join(TASKS)}")
            with tempfile.TemporaryDirectory() as folder:
                asked = FinetuneSettings(
                    model=settings.model,
                    out=Path(folder),
                    recipe=settings.recipe(),
                    device=settings.device,
                    watched=False,
                )
                prepared = prepare(asked, read)
                for side, seed in missing:
                    done[side, seed] = _run(settings, asked, prepared, side, seed, results)
        ours, theirs = (tuple(one for seed in seeds if (one := done[side, seed])) for side in SIDES)
        if len(ours) == len(theirs) == len(seeds):
            found.append(Quality(task, ours[0].metric, ours, theirs))
    return found


def _kept(settings: QualitySettings, task: str, side: SideName, seed: int, results: Path | None) -> Scored | None:
    """What was done before."""
    path = None if results is None else Scored.file(results, task, side, seed)
    if path is None or not path.is_file():
        return None
    fields = json.loads(path.read_text(encoding="utf-8"))
    made_with = build(QualitySettings, fields["settings"])
    if made_with != settings:
        raise InputError(f"{path} was made with other settings ({made_with}); name another folder for --results")
    return Scored(**{**fields, "settings": made_with})


def _run(
    settings: QualitySettings,
    asked: FinetuneSettings,
    prepared: Prepared,
    side: SideName,
    seed: int,
    results: Path | None,
) -> Scored:
    """One seed of one side, kept in ``results``."""
    data, begun = prepared.data, time.monotonic()
    if side == "ours":
        asked = replace(asked, out=asked.out / f"seed-{seed}", seed=seed)
        score = finetune(asked, data, prepared).score
    else:
        score = _their_score(prepared, settings.device, seed)
    seconds = time.monotonic() - begun
    log.info(f"{data.name} {side}, seed {seed}: {data.metrics[0]} {score:.4f} in {seconds:.1f} seconds")
    made = Scored(
        settings=settings,
        task=data.name,
        metric=data.metrics[0],
        side=side,
        seed=seed,
        score=score,
        seconds=seconds,
        engine="litebert" if side == "ours" else "Trainer",
    )
    if results is not None:
        results.mkdir(parents=True, exist_ok=True)
        write_atomically(Scored.file(results, made.task, side, seed), json.dumps(asdict(made), indent=2) + "\n")
    return made


def _their_score(prepared: Prepared, device: str, seed: int) -> float:
    """Their model after the same number of steps, with a head of its own from the same seed."""
    data, pad, part = prepared.data, prepared.tokenizer.pad_id or 0, prepared.dev[0]
    network, _ = start_network(prepared.source.network, task_heads(data, answerable=False), prepared.recipe, seed)
    model = their_model(network, CLASS, prepared.tokenizer)
    rows = their_rows(prepared.inputs, prepared.targets)
    train_theirs(model, rows, prepared.recipe, device=device, seed=seed, pad_id=pad)
    logits = their_scores(model, part.inputs, device=device, pad_id=pad)
    predictions = [
        ItemPrediction(key=item.key, label=float(row[0]) if data.kind == "regress" else int(np.argmax(row)))
        for item, row in zip(part.items, logits, strict=True)
    ]
    return compute_metrics(data, part.items, predictions)[data.metrics[0]]
