"""The fewest layers for a task: candidates are dropped from the pretrained model, fine-tuned and scored on dev.

The search is ``tolerance``'s; here is what a score costs: a fine-tuning run. Every run is noted as it ends, so a search
that was stopped goes on where it was, down to the step of the run that was under way.
"""

import dataclasses
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from litebert.analyse.change import contribution
from litebert.analyse.inputs import BATCH_TOKENS, Inputs
from litebert.checkpoints.folder import Loaded
from litebert.durations import format_duration
from litebert.errors import InputError
from litebert.nn.layout import Layout
from litebert.runs import MODEL_FOLDER, RunLock, parent_of, read_run, update_run, write_run
from litebert.shrink.drop import count_parameters, drop_layers, kept_plan, sharing, shrunk_config
from litebert.shrink.strategies import FIXED, Fixed, Layers, Strategy, drop_similar, kept_of
from litebert.shrink.tolerance import Found, Progress, Search
from litebert.shrink.trials import Trials
from litebert.tasks.encoding import Inputs as Encoded
from litebert.tasks.examples import TaskData
from litebert.tasks.finetuning import FinetuneSettings, Prepared, check_folder, finetune, prepare
from litebert.tasks.metrics import IN_UNITS

TRIALS_FILE, TRIALS_FOLDER = "trials.jsonl", "trials"
# Bottom is the paper's control and greedy would go by another loss than the task's.
USUAL: tuple[Strategy, ...] = ("contribution", "top", "symmetric", "even", "odd")
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class TaskReport:
    """What a search for a task found."""

    model: str
    task: str
    metric: str
    tolerance: float
    layers: int
    dropped: list[int]
    kept: list[int]
    parameters_before: int
    parameters_after: int
    found: Found
    sentences: list[str]

    def as_plain(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def shrink_for_task(
    settings: FinetuneSettings,
    data: TaskData,
    *,
    tolerance: float,
    seeds: Sequence[int],
    strategies: Sequence[Strategy] = USUAL,
    say: Say = lambda _: None,
) -> TaskReport:
    """Search, leave the smallest fine-tuned model that is good enough in OUT/model, and say what was found."""
    if data.metrics[0] in IN_UNITS:
        raise InputError(f"{data.name} is scored by {data.metrics[0]}, which is no share that a tolerance could be of")
    check_folder(settings.out, settings.resume)
    prepared = prepare(settings, data)
    config = prepared.source.network.config
    plan = config.encoder.plan
    settings.out.mkdir(parents=True, exist_ok=True)
    with RunLock(settings.out):
        _note(settings, prepared, tolerance, seeds)
        tuning = _Tuning(settings, prepared)
        trials = Trials(
            tuning.score, file=settings.out / TRIALS_FILE, same=lambda kept: (len(kept), kept_plan(plan, kept))
        )
        names = strategies if sharing(plan) != "all" else ("top",)  # all strategies are one
        keeping = _rules(names, prepared, settings.device)
        told = _Teller(data.metrics[0], tuning, say)
        search = Search(len(plan), keeping, trials, tolerance=tolerance, seeds=seeds, report=told)
        found = search.run()
        kept = found.best.kept if found.best else tuple(range(1, len(plan) + 1))
        if found.best is not None:
            tuning.put_best(kept, seeds, settings.out / MODEL_FOLDER)
        shutil.rmtree(settings.out / TRIALS_FOLDER, ignore_errors=True)
        small = replace(config, encoder=shrunk_config(config.encoder, kept))
        report = TaskReport(
            model=settings.model,
            task=data.name,
            metric=data.metrics[0],
            tolerance=tolerance,
            layers=len(plan),
            dropped=list(kept_of(len(plan), kept)),
            kept=list(kept),
            parameters_before=count_parameters(config),
            parameters_after=count_parameters(small),
            found=found,
            sentences=found.sentences(tolerance),
        )
        update_run(settings.out, status="finished", result=report.as_plain())
    return report


class _Tuning:
    """Fine-tuning runs of candidates, each in a folder of its own until it is known not to win."""

    def __init__(self, settings: FinetuneSettings, prepared: Prepared) -> None:
        self.settings, self.prepared = settings, prepared

    def folder(self, kept: Layers, seed: int) -> Path:
        return self.settings.out / TRIALS_FOLDER / f"{'-'.join(map(str, kept))}-seed-{seed}"

    def score(self, kept: Layers, seed: int) -> float:
        """Drop, fine-tune, and score on dev."""
        out = self.folder(kept, seed)
        done = read_run(out)
        if done is not None and done.status == "finished":
            shutil.rmtree(out)  # it ended, but was not noted
            done = None
        source = self.prepared.source
        small = Loaded(drop_layers(source.network, kept), source.tokenizer)
        settings = replace(self.settings, out=out, seed=seed, resume=done is not None, watched=False)
        result = finetune(settings, self.prepared.data, lambda _: None, replace(self.prepared, source=small))
        if result.status == "stopped":
            raise InputError("stopped; the same command with --resume goes on")
        return result.score if math.isfinite(result.score) else 0.0  # it fell apart, whatever was tried

    def put_best(self, kept: Layers, seeds: Sequence[int], target: Path) -> None:
        """The best seed's model as the one that was asked for; trained again where its folder is gone."""
        best = max(seeds, key=lambda seed: _score_of(self.folder(kept, seed)))
        if not (self.folder(kept, best) / MODEL_FOLDER).is_dir():
            self.score(kept, best)
        shutil.rmtree(target, ignore_errors=True)
        (self.folder(kept, best) / MODEL_FOLDER).rename(target)


def _score_of(folder: Path) -> float:
    note = read_run(folder)
    score = note.result.get("score") if note else None
    return float(score) if isinstance(score, int | float) and math.isfinite(score) else -math.inf


class _Teller:
    """Says each verdict, and throws away the models of candidates that cannot win any more."""

    def __init__(self, metric: str, tuning: _Tuning, say: Say) -> None:
        self._metric, self._tuning, self._say = metric, tuning, say
        self._best = 0

    def __call__(self, progress: Progress) -> None:
        last = progress.last
        if last.fits:
            self._best = max(self._best, last.dropped)
        self._say(
            f"{last.strategy}, {last.dropped} dropped: {self._metric} {last.mean:.4f} ({last.seeds} "
            f"seed{'' if last.seeds == 1 else 's'}), a loss of {last.loss:.4f}: {last.reason}; at most {progress.left} "
            f"more to try, about {format_duration(progress.seconds_left)}"
        )
        depth = last.dropped + len(last.kept)
        for folder in (self._tuning.settings.out / TRIALS_FOLDER).glob("*"):
            dropped = depth - len(folder.name.split("-seed-")[0].split("-"))
            lost = folder.name.startswith(f"{'-'.join(map(str, last.kept))}-seed-") and not last.fits
            if lost or dropped < self._best:
                shutil.rmtree(folder)


def _rules(names: Sequence[Strategy], prepared: Prepared, device: str) -> dict[str, Callable[[int], Layers]]:
    """For each strategy the layers it keeps; contribution goes by the task's dev texts."""
    network = prepared.source.network
    depth = network.config.encoder.num_layers
    rules: dict[str, Callable[[int], Layers]] = {}
    for name in names:
        if name == "contribution":
            inputs = (one for part in prepared.dev for one in packed(part.inputs, device))
            cosines = contribution(network.to(device).encoder, inputs)
            network.to("cpu")
            rules[name] = partial(_keep_unlike, cosines)
        elif name in FIXED:
            rules[name] = partial(_keep_fixed, FIXED[name], depth)
        else:
            raise InputError(f"--strategy {name} goes by another loss than the task's; choose {', '.join(USUAL)}")
    return rules


def _keep_unlike(cosines: Sequence[float], count: int) -> Layers:
    return kept_of(len(cosines), drop_similar(cosines, count))


def _keep_fixed(rule: Fixed, depth: int, count: int) -> Layers:
    return kept_of(depth, rule(depth, count))


def packed(encoded: Encoded, device: str) -> Iterator[Inputs]:
    """The inputs of a task as batches of a bounded number of tokens."""
    lengths = encoded.lengths.tolist()
    first = 0
    while first < len(lengths):
        last = first + 1
        while last < len(lengths) and sum(lengths[first : last + 1]) <= BATCH_TOKENS:
            last += 1
        some = slice(int(encoded.starts[first]), int(encoded.starts[last]))
        ids, segments = (torch.from_numpy(part[some]).long().to(device) for part in (encoded.ids, encoded.segments))
        yield Inputs(ids, Layout.of(lengths[first:last], device), segments)
        first = last


def _note(settings: FinetuneSettings, prepared: Prepared, tolerance: float, seeds: Sequence[int]) -> None:
    """Write down what was asked for; on resume, an error where scores of before would not be comparable."""
    facts = {
        "model": settings.model,
        "task": prepared.data.name,
        "data": prepared.fingerprint,
        "recipe": repr(prepared.recipe),
    }
    before = read_run(settings.out) if settings.resume else None
    if before is not None:
        for name, value in facts.items():
            if before.settings.get(name) != value:
                raise InputError(f"the search in {settings.out} was made with another {name}; name another folder")
        update_run(settings.out, status="running")
        return
    parents = [parent_of("source", Path(settings.model))] if Path(settings.model).is_dir() else []
    asked = {**facts, "tolerance": tolerance, "seeds": list(seeds)}
    write_run(settings.out, "shrink", asked, parents=parents, status="running")
