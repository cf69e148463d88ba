"""A fine-tuning run from a model and a task to a model folder: the one loop, the best weights kept, restarts after a
collapse."""

import hashlib
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from litebert.checkpoints.folder import Loaded, save_model
from litebert.errors import InputError
from litebert.nn.network import Network
from litebert.runs import CHECKPOINTS, MODEL_FOLDER, RunLock, Status, parent_of, read_run, update_run, write_run
from litebert.tasks.batches import TaskBatches
from litebert.tasks.collapse import PROBED, CollapseWatch, chance_loss
from litebert.tasks.encoding import EncodingSettings, Inputs, encode
from litebert.tasks.examples import Example, Item, TaskData
from litebert.tasks.keeper import DevPart, Keeper
from litebert.tasks.objective import ANSWERABLE_WEIGHT, TaskObjective
from litebert.tasks.predicting import BUDGET, TASK_FILE, Predictor, TaskNote
from litebert.tasks.recipes import FinetuneRecipe, settled
from litebert.tasks.score import has_target
from litebert.tasks.starting import load_source, start_network, task_heads
from litebert.tasks.targets import Targets, make_targets
from litebert.tasks.teaching import Teaching
from litebert.text.tokenizer import Tokenizer
from litebert.train.loop import Loop, Stage
from litebert.train.parallel import Ranks
from litebert.train.persistence import Saver
from litebert.train.precision import default_precision
from litebert.train.settings import Bound, Precision, TrainSettings
from litebert.train.watch import Watch

Say = Callable[[str], None]
NEXT_SEED = 1000  # added to the seed after a collapse
LONG = 0.98  # inputs as long as this share of them have room where nobody says how long they may be
FORWARD_SHARE = 2  # a training pass has room for so many times the tokens of a prediction's, per step


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings:
    """What the user asked for, beside the data."""

    model: str
    out: Path
    recipe: FinetuneRecipe
    seed: int = 0
    resume: bool = False
    device: str = "cpu"
    precision: Precision | None = None
    budget: float | None = None  # seconds
    compiled: bool = False
    recorded: bool | None = None  # passes as CUDA graphs; None: on a GPU
    save_seconds: float = 300.0
    save_steps: int | None = None
    watched: bool = True  # figures on screen and in files


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


@dataclass(frozen=True)
class Prepared:
    """All that runs with several seeds have in common."""

    source: Loaded
    tokenizer: Tokenizer
    data: TaskData
    recipe: FinetuneRecipe
    note: TaskNote
    train: tuple[Item, ...]
    inputs: Inputs
    targets: Targets
    dev: tuple[DevPart, ...]
    notes: tuple[str, ...]
    fingerprint: str
    teaching: Teaching | None = None  # another model to learn from, beside the labels


def prepare(settings: FinetuneSettings, data: TaskData, source: Loaded | None = None) -> Prepared:
    """Read the model (unless ``source`` is it) and encode the data, once."""
    if not data.train:
        raise InputError(f"there is no training data of {data.name}; --data names a folder or file that has some")
    train = tuple(item for item in data.train if has_target(item))
    if not train:
        raise InputError(f"no training item of {data.name} has a label")
    source = source or load_source(settings.model)
    tokenizer, encoder = source.tokenizer, source.network.config.encoder
    assert tokenizer is not None
    if tokenizer.vocab_size > encoder.vocab_size:
        raise InputError(
            f"the tokenizer in {settings.model} has {tokenizer.vocab_size} pieces but the model only "
            f"{encoder.vocab_size}; they are not of one model"
        )
    limit = min(512, encoder.max_positions) if encoder.positions == "absolute" else 512
    length = min(settings.recipe.length or limit, limit)
    inputs = encode(train, tokenizer, EncodingSettings(length=length, stride=settings.recipe.stride))
    longest = int(np.quantile(inputs.lengths, LONG)) + 1
    units = len(inputs) if data.kind == "span" else len(train)
    recipe, notes = settled(settings.recipe, encoder, units=units, longest=longest)
    assert recipe.length is not None
    encoding = EncodingSettings(length=recipe.length, stride=recipe.stride)
    if recipe.length != length:
        inputs = encode(train, tokenizer, encoding)
    targets = make_targets(data.kind, train, inputs, len(data.labels))
    dev = tuple(
        _dev_part(name, [item for item in items if has_target(item)], tokenizer, encoding, 0)
        for name, items in data.dev.items()
    )
    dev = tuple(part for part in dev if part.items)
    if not dev:
        raise InputError(f"there is no dev data of {data.name} to choose the best model with; give some with --dev")
    note = TaskNote(
        task=data.name,
        kind=data.kind,
        labels=data.labels,
        metrics=data.metrics,
        length=recipe.length,
        stride=recipe.stride,
        has_null=data.has_null,
        text=data.text,
        label=data.label,
        pairs=any(isinstance(item, Example) and item.second is not None for item in train),
    )
    return Prepared(
        source, tokenizer, data, recipe, note, train, inputs, targets, dev, tuple(notes), _fingerprint(inputs, targets)
    )


def _dev_part(name: str, items: Sequence[Item], tokenizer: Tokenizer, encoding: EncodingSettings, most: int) -> DevPart:
    """Items to score with: all, or so many spread evenly."""
    if most and len(items) > most:
        items = [items[int(place)] for place in np.linspace(0, len(items) - 1, most)]
    return DevPart(name, tuple(items), encode(items, tokenizer, encoding))


def _fingerprint(inputs: Inputs, targets: Targets) -> str:
    digest = hashlib.sha256()
    for array in (inputs.ids, inputs.segments, inputs.starts, targets.labels, targets.ends, targets.values):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


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
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; name a folder for the run")
    used = out.is_dir() and any(path.name != "lock" for path in out.iterdir())
    if resume and not used:
        raise InputError(f"there is no run in {out} to resume; leave --resume out to begin one")
    if used and not resume:
        raise InputError(f"{out} is not empty; add --resume to go on with the run there, or name another folder")
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
        attempt = _Attempt(settings, replace(prepared, recipe=recipe), seed, say)
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

    def __init__(self, settings: FinetuneSettings, prepared: Prepared, seed: int, say: Say) -> None:
        self.settings, self.prepared, self.seed = settings, prepared, seed
        recipe, data = prepared.recipe, prepared.data
        device = torch.device(settings.device)
        numbers = settings.precision or default_precision(device)
        heads = task_heads(data, answerable=recipe.answerable)
        network, notes = start_network(prepared.source.network, heads, recipe, seed)
        self.network: Network = network.to(device)
        predictor = Predictor(self.network, prepared.tokenizer, prepared.note, device, kind_of_numbers=numbers)
        batches, train = self._train_settings(device, numbers)
        self.watch = Watch(settings.out, total=recipe.steps) if settings.watched else None
        self.say: Say = self.watch.say if self.watch else say
        for sentence in notes:
            self.say(sentence)
        parts = [_few(part, prepared, recipe.score_items) for part in prepared.dev]
        self.keeper = Keeper(predictor, data, parts, patience=recipe.patience)
        assert recipe.steps is not None
        probed = encode(_spread(prepared.train, PROBED), prepared.tokenizer, prepared.note.encoding())
        self.collapse = CollapseWatch(
            predictor,
            probed,
            chance=chance_loss(data.kind, prepared.train, prepared.inputs, len(data.labels)),
            steps=recipe.steps,
            warmup=recipe.warmup,
        )
        own = TaskObjective(data.kind, prepared.inputs.longest, options=batches.options, answerable=heads.answerable)
        stage = Stage("train", 0.0, batches, own)
        if prepared.teaching is not None:
            objective, weights = prepared.teaching.begin(own, self.network, device)
            stage = Stage("train", 0.0, batches, objective, weights=weights)
        saver = Saver(settings.out, 1, self._facts(numbers), {"keeper": self.keeper, "collapse": self.collapse})
        ranks = Ranks(0, 1, device, None)
        self.loop = Loop(
            self.network, [stage], train, ranks, saver=saver, watch=self.watch, evaluate=self.keeper.score, say=self.say
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
            weights=(("answerable", ANSWERABLE_WEIGHT),),
        )

    def run(self, resume: bool) -> str:
        """Train to the end; why the run failed, or nothing."""
        if self.watch and not resume:
            self.watch.rewind(0)  # an attempt before this one may have left figures
        if resume:
            self.loop.saver.restore(self.loop)  # killed before anything was saved, it begins again
        self.collapse.begin()
        self.result = self.loop.run()
        if self.collapse.verdict:
            return self.collapse.verdict
        return self.result.notes[-1] if self.result.status == "diverged" and self.result.notes else ""

    def _enough(self, sentence: str) -> None:
        self.loop.enough = sentence
        self.say(sentence)

    def _observe(self, step: int, loss: float) -> None:
        verdict = self.collapse.observe(step, loss)
        if verdict:
            self.loop.enough = verdict

    def _facts(self, numbers: Precision) -> dict[str, Any]:
        """What must not change when a run is resumed."""
        prepared = self.prepared
        return {
            "data": prepared.fingerprint,
            "encoder": repr(prepared.source.network.config.encoder),
            "recipe": repr(prepared.recipe),
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


def _few(part: DevPart, prepared: Prepared, most: int) -> DevPart:
    """A part of dev, or so many of its items."""
    if not most or len(part.items) <= most:
        return part
    return _dev_part(part.name, part.items, prepared.tokenizer, prepared.note.encoding(), most)


def _spread(items: Sequence[Item], most: int) -> list[Item]:
    return [items[int(place)] for place in np.linspace(0, len(items) - 1, min(most, len(items)))]


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
