"""A fine-tuning run from a model and a task to a model folder: the one loop, the best weights kept, restarts after a
collapse."""

import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from litebert.checkpoints.folder import save_model
from litebert.errors import InputError
from litebert.nn.network import Network
from litebert.runs import (
    CHECKPOINTS,
    MODEL_FOLDER,
    RunLock,
    Status,
    check_run_folder,
    parent_of,
    read_run,
    update_run,
    write_run,
)
from litebert.tasks.batches import TaskBatches
from litebert.tasks.collapse import PROBED, CollapseWatch, chance_loss
from litebert.tasks.encoding import encode
from litebert.tasks.examples import TaskData
from litebert.tasks.keeper import Keeper
from litebert.tasks.objective import ANSWERABLE_WEIGHT, TaskObjective
from litebert.tasks.predicting import BUDGET, TASK_FILE, Predictor
from litebert.tasks.preparing import FinetuneSettings, Prepared, few, prepare, spread
from litebert.tasks.recipes import FinetuneRecipe
from litebert.tasks.starting import start_network, task_heads
from litebert.train.loop import Loop
from litebert.train.objective import Stage
from litebert.train.parallel import Ranks
from litebert.train.persistence import Saver
from litebert.train.precision import default_precision, training_precision
from litebert.train.settings import Bound, Precision, TrainSettings
from litebert.train.watch import Watch

__all__ = ["FinetuneResult", "FinetuneSettings", "Prepared", "check_folder", "finetune", "prepare"]

Say = Callable[[str], None]
NEXT_SEED = 1000  # added to the seed after a collapse
FORWARD_SHARE = 2  # a training pass has room for so many times the tokens of a prediction's, per step


@dataclass(frozen=True)
class FinetuneResult:
    """How a run ended. ``figures`` are those of the best model on all of dev."""

    status: Status
    steps: int
    best_step: int
    score: float
    figures: dict[str, float]
    notes: tuple[str, ...]
    attempts: tuple[dict[str, Any], ...]  # those that collapsed, with seed, rate and verdict
    seconds: float
    tokens: int


def finetune(settings: FinetuneSettings, data: TaskData, say: Say, prepared: Prepared | None = None) -> FinetuneResult:
    """Fine-tune, resume or refuse; the run folder tells the rest."""
    check_folder(settings.out, settings.resume)
    prepared = prepared or prepare(settings, data)
    settings.out.mkdir(parents=True, exist_ok=True)
    with RunLock(settings.out):
        if not settings.resume:
            _note_run(settings, prepared)
        for sentence in prepared.notes:
            say(sentence)
        return _attempts(settings, prepared, say)


def check_folder(out: Path, resume: bool) -> None:
    """Refuse a folder that holds something else, or nothing to go on with."""
    check_run_folder(out, resume)
    note = read_run(out) if resume else None
    if note is not None and note.status == "finished" and (out / MODEL_FOLDER).is_dir():
        raise InputError(f"the run in {out} is finished, its model is in {out / MODEL_FOLDER}; name another folder")


def _attempts(settings: FinetuneSettings, prepared: Prepared, say: Say) -> FinetuneResult:
    """Train; after a collapse again, with another seed and a lower rate."""
    begun = time.monotonic()
    note = read_run(settings.out)
    failed: list[dict[str, Any]] = list(note.result.get("attempts", ())) if note else []
    resume = settings.resume
    while True:
        seed = settings.seed + NEXT_SEED * len(failed)
        assert prepared.recipe.rate is not None
        rate = prepared.recipe.rate * prepared.recipe.restart_factor ** len(failed)
        recipe = replace(prepared.recipe, rate=rate)
        attempt = _Attempt(settings, replace(prepared, recipe=recipe), seed, say, last=len(failed) >= recipe.restarts)
        verdict = attempt.run(resume)
        resume = False
        if not verdict or len(failed) >= recipe.restarts:
            break
        failed.append({"seed": seed, "rate": rate, "step": attempt.loop.place.step, "verdict": verdict})
        say(f"{verdict}; starting again with seed {seed + NEXT_SEED} and half the rate")
        shutil.rmtree(settings.out / CHECKPOINTS, ignore_errors=True)
        update_run(settings.out, result={"attempts": failed})
    return attempt.finish(verdict, tuple(failed), time.monotonic() - begun)


class _Attempt:
    """One training of the model, from one seed at one rate."""

    def __init__(self, settings: FinetuneSettings, prepared: Prepared, seed: int, say: Say, *, last: bool) -> None:
        self.settings, self.prepared, self.seed, self.last = settings, prepared, seed, last
        recipe, data = prepared.recipe, prepared.data
        device = torch.device(settings.device)
        scoring = settings.precision or default_precision(device)  # as `litebert evaluate` scores
        numbers = settings.precision or training_precision(device, prepared.source.network.config.encoder.width)
        heads = task_heads(data, answerable=recipe.answerable)
        network, notes = start_network(prepared.source.network, heads, recipe, seed)
        self.network: Network = network.to(device)
        predictor = Predictor(self.network, prepared.tokenizer, prepared.note, device, kind_of_numbers=scoring)
        batches, train = self._train_settings(device, numbers)
        self.watch = Watch(settings.out, total=recipe.steps) if settings.watched else None
        self.say: Say = self.watch.say if self.watch else say
        for sentence in notes:
            self.say(sentence)
        parts = [few(part, prepared, recipe.score_items) for part in prepared.dev]
        self.keeper = Keeper(predictor, data, parts, patience=recipe.patience)
        assert recipe.steps is not None
        probed = encode(spread(prepared.train, PROBED), prepared.tokenizer, prepared.note.encoding())
        self.collapse = CollapseWatch(
            predictor,
            probed,
            chance=chance_loss(data.kind, prepared.train, prepared.inputs, len(data.labels)),
            steps=recipe.steps,
            warmup=recipe.warmup,
        )
        own = TaskObjective(data.kind, prepared.inputs.longest, options=batches.options, answerable=heads.answerable)
        stage = Stage("train", 0.0, batches, own, weights={"answerable": ANSWERABLE_WEIGHT})
        if prepared.teaching is not None:
            objective, weights = prepared.teaching.begin(own, self.network, device)
            stage = Stage("train", 0.0, batches, objective, weights=weights)
        saver = Saver(settings.out, 1, self._facts(numbers), {"keeper": self.keeper, "collapse": self.collapse})
        ranks = Ranks(0, 1, device, None)
        self.loop = Loop(
            self.network,
            [stage],
            train,
            ranks,
            saver=saver,
            watch=self.watch,
            evaluate=lambda _sums, _objective: self.keeper.score(),
            say=self.say,
        )
        self.keeper.step = lambda: self.loop.place.step
        self.keeper.enough = self._enough
        self.loop.observe = lambda step, row: self._observe(step, row["task_loss"])

    def _train_settings(self, device: torch.device, numbers: Precision) -> tuple[TaskBatches, TrainSettings]:
        settings, prepared, recipe = self.settings, self.prepared, self.prepared.recipe
        assert recipe.steps is not None
        batch = min(recipe.batch, len(prepared.targets))
        expected = batch * len(prepared.inputs.ids) / len(prepared.targets)
        room = FORWARD_SHARE * BUDGET[device.type]
        passes = min(batch, max(1, -int(-expected // room)))
        recorded = device.type == "cuda" and not settings.compiled and numbers != "fp16"
        recorded = recorded if settings.recorded is None else settings.recorded and recorded
        batches = TaskBatches(
            prepared.inputs,
            prepared.targets,
            batch=batch,
            passes=passes,
            seed=self.seed,
            filled=recorded,
            choosing=prepared.data.kind == "choice",
        )
        return batches, TrainSettings(
            bound=Bound(steps=recipe.steps, seconds=settings.budget),
            optimiser=recipe.optimiser(),
            schedule=recipe.schedule_settings(),
            batch_tokens=((0.0, batches.passes),),  # counted in forward passes
            micro_tokens=1,
            precision=numbers,
            compiled=settings.compiled,
            recorded=recorded,
            clip=recipe.clip,
            seed=self.seed,
            save_seconds=settings.save_seconds,
            save_steps=settings.save_steps,
            save_ends=False,
            keep=1,
            score_steps=_score_steps(recipe, batches.steps),
            log_every=min(50, max(1, recipe.steps // 40)),
            rollbacks=1,
        )

    def run(self, resume: bool) -> str:
        """Train to the end; why the run failed, or nothing."""
        if self.watch and not resume:
            self.watch.rewind(0)  # an attempt before this one may have left figures
        if resume:
            self.loop.saver.restore(self.loop)  # killed before anything was saved, it begins again
        self.collapse.begin()
        self.result = self.loop.run()
        if self.collapse.verdict and not self.collapse.has_recovered():
            return self.collapse.verdict
        return self.result.notes[-1] if self.result.status == "diverged" and self.result.notes else ""

    def _enough(self, sentence: str) -> None:
        self.loop.enough = sentence
        self.say(sentence)

    def _observe(self, step: int, loss: float) -> None:
        verdict = self.collapse.observe(step, loss)
        if verdict and self.last:
            self.say(f"{verdict}; there are no restarts left, so it goes on")
        elif verdict:
            self.loop.enough = verdict

    def _facts(self, numbers: Precision) -> dict[str, Any]:
        """What must not change when a run is resumed."""
        prepared = self.prepared
        return {
            "data": prepared.fingerprint,
            "encoder": asdict(prepared.source.network.config.encoder),
            "recipe": asdict(prepared.recipe),
            "precision": numbers,
            "seed": self.seed,
            **({"teaching": prepared.teaching.facts()} if prepared.teaching else {}),
        }

    def finish(self, verdict: str, failed: tuple[dict[str, Any], ...], seconds: float) -> FinetuneResult:
        """Write the best model and say how the run ended."""
        settings, prepared, keeper = self.settings, self.prepared, self.keeper
        status: Status = "diverged" if verdict else self.result.status
        figures, score = dict(keeper.figures), keeper.best if keeper.best is not None else float("nan")
        if prepared.teaching is not None:
            prepared.teaching.end(self.network)
        if keeper.weights is not None:
            keeper.put_back(self.network)
            if any(part.items != whole.items for part, whole in zip(keeper.parts, prepared.dev, strict=True)):
                keeper.parts = list(prepared.dev)
                figures, keeper.note = keeper.measure()
                score = keeper.main(figures)
            save_model(
                settings.out / MODEL_FOLDER,
                self.network,
                prepared.tokenizer,
                verb="finetune",
                settings={"run": settings.out.name, "task": prepared.data.name},
                files={TASK_FILE: keeper.note.text_of_file()},
            )
        place = self.loop.place
        update_run(settings.out, status=status, result={"dev": figures, "best_step": keeper.best_step, "score": score})
        if status != "stopped":
            shutil.rmtree(settings.out / CHECKPOINTS, ignore_errors=True)
        notes = (*self.result.notes, *([self.loop.enough] if self.loop.enough else []))
        return FinetuneResult(
            status, place.step, keeper.best_step, score, figures, notes, failed, seconds, place.tokens
        )


def _score_steps(recipe: FinetuneRecipe, epoch: int) -> int:
    """Steps between scores: an epoch or less; one score is one at the end."""
    assert recipe.steps is not None
    return recipe.steps if recipe.scores == 1 else max(1, min(epoch, -(-recipe.steps // recipe.scores)))


def _note_run(settings: FinetuneSettings, prepared: Prepared) -> None:
    parents = [parent_of("start", Path(settings.model))] if Path(settings.model).is_dir() else []
    asked = {
        "model": settings.model,
        "task": prepared.data.name,
        "kind": prepared.data.kind,
        "labels": list(prepared.data.labels),
        "items": len(prepared.train),
        "recipe": asdict(prepared.recipe),
        "seed": settings.seed,
        "device": settings.device,
        "precision": settings.precision or "",
    }
    verb = "finetune"
    if prepared.teaching is not None:
        verb, parents = "distill", [*parents, *prepared.teaching.parents()]
        asked["teaching"] = prepared.teaching.facts()
    write_run(settings.out, verb, asked, parents=parents, status="running")
