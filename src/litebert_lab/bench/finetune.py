"""Fine-tuning side by side with Hugging Face's Trainer: the same weights and texts, batches of the same size.

Theirs pads every batch to its longest text; ours packs. Both are timed from the end of a warm-up to the last step,
input pipeline, optimiser and all. On a machine that others use, too, the two take turns and the best turn counts.
"""

import copy
import gc
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from litebert.errors import InputError
from litebert.nn.network import Network
from litebert.tasks.encoding import TaskBatches
from litebert.tasks.finetune import FinetuneSettings, Prepared, prepare
from litebert.tasks.objective import TaskObjective
from litebert.tasks.predicting import Predictor
from litebert.tasks.prepare import start_network, task_heads
from litebert.tasks.recipes import FinetuneRecipe
from litebert.tasks.sources import read_task
from litebert.train.objective import Stage
from litebert.train.precision import default_precision
from litebert.train.settings import Bound, OptimiserSettings, TrainSettings
from litebert.train.trainer import Trainer
from litebert_lab.bench.theirs import their_model
from litebert_lab.bench.trainer import (
    CLASS,
    Moment,
    Timed,
    now,
    since,
    their_rows,
    their_scores,
    train_theirs,
)

STEPS = {"cpu": 12, "cuda": 400}  # timed
WARM = {"cpu": 2, "cuda": 300}  # on a GPU shapes of batches are met, and recorded, before the clock starts
THEIR_WARM = {"cpu": 2, "cuda": 50}
TURNS = {"cpu": 3, "cuda": 2}
BATCHES = (32, 128)
MOST_ROWS = 20_000  # of the task's own lengths

log = logging.getLogger(__name__)


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


@dataclass(frozen=True)
class Report:
    """What was measured."""

    model: str
    task: str
    device: str
    precision: str
    threads: int
    mean_length: float
    padding: float  # of the tokens that theirs computes, those that are padding
    worst_difference: float  # of the logits before training
    rows: tuple[Row, ...]


def table(report: Report) -> str:
    """The figures as lines of text."""
    where = f"{report.threads} threads" if report.device == "cpu" else report.device
    lines = [
        f"{report.model} on {report.task}, {where} in {report.precision}: {report.mean_length:.1f} tokens a text, "
        f"theirs {report.padding:.0%} padding; logits differ by {report.worst_difference:.1e} before training",
        f"{'engine':28} {'batch':>5} {'steps/s':>8} {'examples/s':>11} {'tokens/s':>10} {'ratio':>6} "
        f"{'by processor':>12}",
    ]
    for row in report.rows:
        lines.append(
            f"{row.engine:28} {row.batch:5} {row.steps_per_second:8.2f} {row.examples_per_second:11,.0f} "
            f"{row.tokens_per_second:10,.0f} {row.ratio:6.2f} {row.processor_ratio:12.2f}"
        )
    return "\n".join(lines)


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
    padding = 0.0
    for batch in batches:
        work = _Work(prepared, network, theirs, device, batch, timed, warm)
        best = work.best_of(turns or TURNS[device])
        base = best[0]
        padding = 1 - base.tokens / max(base.padded, 1)
        rows += [_row(found, base, batch, work.mean_tokens()) for found in best]
    numbers = default_precision(torch.device(device))
    mean = float(prepared.inputs.lengths.mean())
    return Report(model, task, device, numbers, torch.get_num_threads(), mean, padding, worst, tuple(rows))


def _row(found: Timed, base: Timed, batch: int, tokens: float) -> Row:
    speed = found.steps / found.seconds
    ratio = speed * base.seconds / base.steps
    processor = base.processor / base.steps * found.steps / max(found.processor, 1e-9)
    return Row(found.engine, batch, speed, speed * batch, speed * tokens, ratio, processor)


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

    def mean_tokens(self) -> float:
        return float(self.prepared.inputs.lengths.mean()) * self.batch

    def best_of(self, turns: int) -> list[Timed]:
        """The best turn of each engine, theirs first."""
        engines: list[Callable[[], Timed]] = [lambda: self._theirs(False), lambda: self._theirs(True), self._ours]
        best: dict[str, Timed] = {}
        for _ in range(turns):
            for engine in engines:
                gc.collect()
                found = engine()
                log.info(f"batch {self.batch}: {found.engine} {found.steps / found.seconds:.2f} steps/s")
                if found.engine not in best or found.seconds < best[found.engine].seconds:
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
        marks: dict[int, Moment] = {}
        for step in Trainer(network, [Stage("train", 0.0, source, TaskObjective(kind, inputs.longest))], settings):
            if step.step in (self.warm, recipe.steps):
                assert step.loss is not None  # read, so everything up to this step is done
                marks[step.step] = now(self.device)
        return Timed("litebert", *since(marks[self.warm], marks[recipe.steps]), self.timed, 0, 0)


def _difference(network: Network, theirs: Any, prepared: Prepared) -> float:
    """The largest distance between the two models' logits."""
    part = prepared.dev[0]
    ours = Predictor(network, prepared.tokenizer, prepared.note, torch.device("cpu")).scores(part.inputs).scores
    other = their_scores(copy.deepcopy(theirs), part.inputs, device="cpu", pad_id=prepared.tokenizer.pad_id or 0)
    return float(np.abs(ours - other).max())
