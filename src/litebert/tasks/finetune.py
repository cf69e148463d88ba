"""A fine-tuning run from a model and a task to a model folder: the best weights kept, restarts after a collapse.

Or several runs from different seeds, with their median and spread, the best model kept.
"""

import json
import logging
import math
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from litebert.checkpoints.folder import save_model
from litebert.cluster import IN_TURN, Placement, run_all
from litebert.config import changed, current_name, flat
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
    write_atomically,
    write_run,
)
from litebert.tasks.callbacks import PROBED, BestCheckpoint, CollapseGuard
from litebert.tasks.encoding import TaskBatches
from litebert.tasks.examples import TaskData
from litebert.tasks.kinds import KINDS
from litebert.tasks.objective import ANSWERABLE_WEIGHT, TaskObjective
from litebert.tasks.predicting import BUDGET, TASK_FILE, Predictor
from litebert.tasks.prepare import (
    FinetuneSettings,
    Prepared,
    evenly_spaced,
    prepare,
    sampled_part,
    start_network,
    task_heads,
)
from litebert.tasks.recipes import FinetuneRecipe
from litebert.train.callbacks import Callback, DivergenceGuard, SaveStates
from litebert.train.clock import StopSignal
from litebert.train.console import ConsoleLine
from litebert.train.metrics import MetricsFile, RunRecord
from litebert.train.objective import Stage
from litebert.train.parallel import Ranks
from litebert.train.plot import Plot
from litebert.train.precision import default_precision, training_precision
from litebert.train.settings import Bound, Precision, TrainSettings
from litebert.train.trainer import Trainer

__all__ = ["FinetuneResult", "FinetuneSettings", "Prepared", "check_folder", "finetune", "finetune_seeds", "prepare"]

log = logging.getLogger(__name__)

NEXT_SEED = 1000  # added to the seed after a collapse
FORWARD_SHARE = 2  # tokens of a training pass as a multiple of those of a prediction pass
SUMMARY = "seeds.json"


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


def finetune(
    settings: FinetuneSettings,
    data: TaskData,
    prepared: Prepared | None = None,
    callbacks: Sequence[Callback] = (),
) -> FinetuneResult:
    """Fine-tune, resume or refuse; the run folder has the rest. ``callbacks`` come after those of every run."""
    check_folder(settings.out, settings.resume)
    prepared = prepared or prepare(settings, data)
    with RunLock(settings.out):
        if not settings.resume:
            _write_run(settings, prepared)
        for sentence in prepared.notes:
            log.log(settings.level, "%s", sentence)
        return _attempts(settings, prepared, callbacks)


def check_folder(out: Path, resume: bool) -> None:
    """Refuse a folder that holds something else, or nothing to resume."""
    check_run_folder(out, resume)
    note = read_run(out) if resume else None
    if note is not None and note.status == "finished" and (out / MODEL_FOLDER).is_dir():
        raise InputError(f"the run in {out} is finished, its model is in {out / MODEL_FOLDER}; name another folder")


def _attempts(settings: FinetuneSettings, prepared: Prepared, callbacks: Sequence[Callback]) -> FinetuneResult:
    """Train; after a collapse again, with another seed and a lower rate."""
    begun = time.monotonic()
    note = read_run(settings.out)
    failed: list[dict[str, Any]] = list(note.result.get("attempts", ())) if note else []
    resume = settings.resume
    while True:
        seed = settings.seed + NEXT_SEED * len(failed)
        assert prepared.recipe.optimiser.rate is not None
        rate = prepared.recipe.optimiser.rate * prepared.recipe.restart_factor ** len(failed)
        recipe = changed(prepared.recipe, {"optimiser.rate": rate})
        last = len(failed) >= recipe.restarts
        attempt = _Attempt(settings, replace(prepared, recipe=recipe), seed, callbacks, last=last)
        verdict = attempt.run(resume)
        resume = False
        if not verdict or last:
            break
        failed.append({"seed": seed, "rate": rate, "step": attempt.trainer.state.step, "verdict": verdict})
        text = f"{verdict}; starting again with seed {seed + NEXT_SEED} and {recipe.restart_factor:g} times the rate"
        log.log(settings.level, "%s", text)
        shutil.rmtree(settings.out / CHECKPOINTS, ignore_errors=True)
        update_run(settings.out, result={"attempts": failed})
    return attempt.finish(verdict, tuple(failed), time.monotonic() - begun)


class _Attempt:
    """One training of the model, from one seed at one rate; ``last``: a collapse does not end it."""

    def __init__(
        self,
        settings: FinetuneSettings,
        prepared: Prepared,
        seed: int,
        callbacks: Sequence[Callback],
        *,
        last: bool,
    ) -> None:
        self.settings, self.prepared, self.seed = settings, prepared, seed
        recipe, data, level = prepared.recipe, prepared.data, settings.level
        device = torch.device(settings.device)
        self.final = settings.precision or default_precision(device)  # as `litebert evaluate` scores
        precision = settings.precision or training_precision(device, prepared.source.network.config.encoder.width)
        heads = task_heads(data, answerable=recipe.answerable)
        network, notes = start_network(prepared.source.network, heads, recipe, seed)
        self.network: Network = network.to(device)
        predictor = Predictor(self.network, prepared.tokenizer, prepared.note, device, precision=self.final)
        batches, train = self._train_settings(device, precision)
        for sentence in notes:
            log.log(level, "%s", sentence)
        if KINDS[data.kind].compares and batches.passes > 1:
            split = f"a step of {batches.batch_size} pairs takes {batches.passes} forward passes"
            log.log(level, "%s: each is told from the %d others of its pass", split, batches.units - 1)
        parts = [sampled_part(part, prepared, recipe.score_items) for part in prepared.dev]
        # Scores on the way only choose: as fast as training computes, but for one that is final already.
        on_the_way = replace(predictor, precision=self.final if recipe.scores == 1 else precision)
        self.best = BestCheckpoint(on_the_way, data, parts, patience=recipe.patience, level=level)
        assert recipe.steps is not None
        kind = KINDS[data.kind]
        self.collapse = CollapseGuard(
            predictor,
            kind.encode(evenly_spaced(prepared.train, PROBED), prepared.tokenizer, prepared.note.encoding()),
            chance=kind.chance_loss(
                prepared.train, prepared.inputs, batches.units if kind.compares else len(data.labels)
            ),
            steps=recipe.steps,
            warmup=recipe.schedule.warmup,
            last=last,
            level=level,
        )
        own = TaskObjective(
            data.kind,
            prepared.inputs.longest,
            options=batches.options,
            answerable=heads.answerable,
            scale=recipe.scale,
        )
        stage = Stage("train", 0.0, batches, own, weights={"answerable": ANSWERABLE_WEIGHT})
        if prepared.teaching is not None:
            objective, weights = prepared.teaching.begin(own, self.network, device)
            stage = Stage("train", 0.0, batches, objective, weights=weights)
        self.saver = SaveStates(
            settings.out,
            self._facts(precision),
            keep=1,
            seconds=settings.save_seconds,
            steps=settings.save_steps,
            ends=False,
            read_facts=_current_facts,
        )
        run = settings.out
        watching = [self.saver, DivergenceGuard(self.saver, rollbacks=1), self.best, self.collapse]
        if settings.watched:
            watching += [MetricsFile(run), ConsoleLine(), RunRecord(run), Plot(run)]
        self.trainer = Trainer(
            self.network,
            [stage],
            train,
            [*watching, *callbacks],
            ranks=Ranks.alone(device),
            evaluate=self.best.evaluate,
        )

    def _train_settings(self, device: torch.device, precision: Precision) -> tuple[TaskBatches, TrainSettings]:
        settings, prepared, recipe, steps = (
            self.settings,
            self.prepared,
            self.prepared.recipe,
            self.prepared.recipe.steps,
        )
        assert steps is not None
        batch = min(recipe.batch, len(prepared.targets))
        expected = batch * len(prepared.inputs.ids) / len(prepared.targets)
        room = FORWARD_SHARE * BUDGET[device.type]
        passes = min(batch, max(1, -int(-expected // room)))
        can_record = device.type == "cuda" and not settings.compiled and precision != "fp16"
        cuda_graphs = can_record and settings.cuda_graphs is not False
        batches = TaskBatches(
            prepared.inputs,
            prepared.targets,
            batch=batch,
            passes=passes,
            seed=self.seed,
            filled=cuda_graphs,
            choosing=KINDS[prepared.data.kind].chooses,
        )
        return batches, TrainSettings(
            bound=Bound(steps=steps, seconds=settings.budget),
            optimiser=recipe.optimiser,
            schedule=recipe.schedule,
            batch_tokens=((0.0, batches.passes),),  # counted in forward passes
            micro_tokens=1,
            precision=precision,
            compiled=settings.compiled,
            cuda_graphs=cuda_graphs,
            seed=self.seed,
            # An epoch or less; one score is one at the end.
            score_steps=steps if recipe.scores == 1 else max(1, min(batches.steps, -(-steps // recipe.scores))),
            log_every=min(50, max(1, steps // 40)),
        )

    def run(self, resume: bool) -> str:
        """Train to the end; why the run failed, or nothing."""
        if resume:
            self.saver.restore(self.trainer)  # killed before anything was saved, it begins again
        recipe, size = self.prepared.recipe, len(self.prepared.targets)
        log.log(
            self.settings.level,
            "training on %s: %s steps of %d examples; the first may take a while",
            *(self.settings.device, f"{recipe.steps:,}", min(recipe.batch, size)),
        )
        self.result = self.trainer.fit()
        if self.collapse.verdict and not self.collapse.has_recovered():
            return self.collapse.verdict
        return self.result.notes[-1] if self.result.status == "diverged" and self.result.notes else ""

    def _facts(self, precision: Precision) -> dict[str, Any]:
        """What must not change when a run is resumed."""
        prepared = self.prepared
        return {
            "data": prepared.fingerprint,
            "encoder": asdict(prepared.source.network.config.encoder),
            "recipe": flat(prepared.recipe),
            "precision": precision,
            "seed": self.seed,
            **({"teaching": prepared.teaching.facts()} if prepared.teaching else {}),
        }

    def finish(self, verdict: str, failed: tuple[dict[str, Any], ...], seconds: float) -> FinetuneResult:
        """Write the best model and sum up how the run ended."""
        settings, prepared, best = self.settings, self.prepared, self.best
        status: Status = "diverged" if verdict else self.result.status
        figures, score = dict(best.figures), best.best if best.best is not None else math.nan
        if prepared.teaching is not None:
            prepared.teaching.end(self.network)
        if best.weights is not None:
            best.put_back(self.network)
            sampled = any(part.items != whole.items for part, whole in zip(best.parts, prepared.dev, strict=True))
            if sampled or best.predictor.precision != self.final:
                best.parts, best.predictor.precision = list(prepared.dev), self.final
                figures = best.measure()
                best.note, score = best.predictor.note, best.main(figures)
            save_model(
                settings.out / MODEL_FOLDER,
                self.network,
                prepared.tokenizer,
                verb="finetune",
                settings={"run": settings.out.name, "task": prepared.data.name},
                files={TASK_FILE: best.note.text_of_file(), **self._kind_files()},
            )
        state = self.trainer.state
        update_run(settings.out, status=status, result={"dev": figures, "best_step": best.best_step, "score": score})
        if status != "stopped":
            shutil.rmtree(settings.out / CHECKPOINTS, ignore_errors=True)
        notes = (*self.result.notes, *([self.trainer.stop_reason] if self.trainer.stop_reason else []))
        return FinetuneResult(status, state.step, best.best_step, score, figures, notes, failed, seconds, state.tokens)

    def _kind_files(self) -> dict[str, str]:
        """What the model folder of this kind of task has beside its task."""
        encoder = self.network.config.encoder
        return KINDS[self.prepared.data.kind].model_files(encoder.width, encoder.input_limit())


def _current_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a state with the recipe's fields under their names of today."""
    recipe = {current_name(FinetuneRecipe, name, value): value for name, value in facts["recipe"].items()}
    return {**facts, "recipe": recipe}


def _write_run(settings: FinetuneSettings, prepared: Prepared) -> None:
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
        teachers = prepared.teaching.parents()
        verb, parents = "distill" if teachers else verb, [*parents, *teachers]
        asked["teaching"] = prepared.teaching.facts()
    write_run(settings.out, verb, asked, parents=parents, status="running")


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
    settings: FinetuneSettings, data: TaskData, seeds: int, place: Placement = IN_TURN
) -> tuple[SeedsResult, list[FinetuneResult]]:
    """Fine-tune with ``seeds`` seeds at a place; those already finished are not done again on resume."""
    if seeds < 2:
        raise InputError(f"seeds is {seeds} but must be 2 or more")
    check_folder(settings.out, settings.resume)
    begun = time.monotonic()
    with RunLock(settings.out):
        prepared = prepare(settings, data)
        parents = [parent_of("start", Path(settings.model))] if Path(settings.model).is_dir() else []
        asked = {"model": settings.model, "task": data.name, "seeds": seeds, "recipe": asdict(prepared.recipe)}
        if not settings.resume:
            write_run(settings.out, "finetune", asked, parents=parents, status="running")

        def finished(number: int, result: FinetuneResult | None) -> None:
            if result is not None:
                log.info("seed %d: %s %.4f", settings.seed + number, data.metrics[0], result.score)

        jobs = _seed_jobs(settings, prepared, seeds, place, begun)
        with StopSignal() as stop:
            every = run_all(jobs, on=place, finished=finished, what="seeds", stop=stop)
        results = [result for result in every if result is not None]
        if len(results) < seeds:
            log.warning("the budget is used up after %d of %d seeds", len(results), seeds)
        found = _summary(data.metrics[0], results, settings.seed)
        _keep_best(settings.out, found)
        figures = results[found.best - settings.seed].figures
        update_run(settings.out, status="finished", result={**asdict(found), "dev": figures})
    return found, results


def _seed_jobs(
    settings: FinetuneSettings, prepared: Prepared, seeds: int, place: Placement, begun: float
) -> list[Callable[[], FinetuneResult | None]]:
    """A run for each seed. The budget is for all of them: each may use an equal share of what is left."""
    numbers = range(seeds)
    if place.is_in_turn and settings.budget is not None:
        return [partial(_one_seed_in_time, settings, prepared, number, seeds, begun) for number in numbers]
    if settings.budget is not None:
        settings = replace(settings, budget=settings.budget / math.ceil(seeds / place.at_once))
    return [partial(_one_seed, settings, prepared, settings.seed + number) for number in numbers]


def _one_seed_in_time(
    settings: FinetuneSettings, prepared: Prepared, number: int, seeds: int, begun: float
) -> FinetuneResult | None:
    """One seed's run in its share of the budget that others before it have left; None: they left nothing."""
    assert settings.budget is not None
    left = settings.budget - (time.monotonic() - begun)
    if left <= 0 and number:
        return None
    return _one_seed(replace(settings, budget=max(left, 0.0) / (seeds - number)), prepared, settings.seed + number)


def _one_seed(settings: FinetuneSettings, prepared: Prepared, seed: int) -> FinetuneResult:
    """One seed's run, or what it gave where it is done; one that was stopped or killed is resumed."""
    out = settings.out / f"seed-{seed}"
    done = out / "result.json"
    if done.is_file():
        fields = json.loads(done.read_text(encoding="utf-8"))
        return FinetuneResult(**{**fields, "notes": tuple(fields["notes"]), "attempts": tuple(fields["attempts"])})
    note = read_run(out)
    if note is None or note.status in ("finished", "diverged"):  # killed before there was anything, or at its very end
        shutil.rmtree(out, ignore_errors=True)
        note = None
    result = finetune(replace(settings, out=out, seed=seed, resume=note is not None), prepared.data, prepared)
    if result.status == "stopped":
        raise InputError(f"stopped at seed {seed}; the same command with resume continues")
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
        deviation=statistics.stdev(scores) if len(scores) > 1 else 0.0,
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
