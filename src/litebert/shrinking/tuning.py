"""The score and the cost of some layers: drop the others, fine-tune (or distil) what is left, score it on dev, time it.

Layers are dropped before fine-tuning, after it, or in steps with fine-tuning after each. With ``recover`` what is left
of the fine-tuned model, including its head (as DistilBERT begins), learns from the whole model of the same seed. Runs
have folders of their own until their models are no longer needed; an interrupted run is resumed.
"""

import gc
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from litebert.analyse.inputs import BATCH_TOKENS, Inputs
from litebert.analyse.layer_statistics import contribution
from litebert.checkpoints.folder import Loaded, load_model, save_model
from litebert.cluster import Placement, run_all
from litebert.distillation.objective import DistillSettings
from litebert.distillation.run import TAUGHT, load_teacher, with_teacher
from litebert.errors import InputError, nearest
from litebert.nn.layout import Layout
from litebert.nn.network import Network
from litebert.runs import MODEL_FOLDER, parent_of, read_run, update_run, write_run
from litebert.shrinking.drop import drop_layers
from litebert.shrinking.strategies import FIXED, Fixed, Layers, Strategy, drop_similar, kept_of
from litebert.tasks.callbacks import BestCheckpoint
from litebert.tasks.encoding import Inputs as Encoded
from litebert.tasks.examples import TaskData
from litebert.tasks.finetune import FinetuneSettings, Prepared, finetune
from litebert.tasks.kinds import KINDS
from litebert.tasks.metrics import IN_UNITS
from litebert.tasks.predicting import TASK_FILE, Predictor
from litebert.tasks.prepare import start_network, task_heads
from litebert.train.clock import StopSignal
from litebert.train.precision import default_precision

TRIALS_FILE, TRIALS_FOLDER = "trials.jsonl", "trials"
# Bottom is the paper's control, and greedy is guided by another loss than the task's.
USUAL: tuple[Strategy, ...] = ("contribution", "top", "symmetric", "even", "odd")
When = Literal["before", "after", "steps"]
STEP = 2  # layers dropped at a time, in steps
ROUNDS = 5  # of timing, of which the fastest counts: others may use the machine, too
TIMED = {"cpu": 128, "cuda": 8192}  # inputs that are timed
STOPPED = "stopped; run the same command again with resume to continue"


@dataclass(frozen=True, kw_only=True)
class DropSchedule:
    """When layers are dropped, and how the rest recovers: from labels alone, or also from the whole model."""

    when: When = "before"
    recover: DistillSettings | None = None

    def as_plain(self) -> dict[str, Any]:
        return {"when": self.when, "recover": None if self.recover is None else asdict(self.recover)}


def parse_when(word: str) -> When:
    """The value of ``when`` with this name."""
    for when in get_args(When):
        if when == word:
            return when
    raise InputError(
        f"when is '{word}' but must be before or after (fine-tuning), or steps{nearest(word, get_args(When))}"
    )


class Tuning:
    """Fine-tuning runs of candidates for one task. Call ``score`` with the layers kept and a seed."""

    def __init__(self, settings: FinetuneSettings, prepared: Prepared, schedule: DropSchedule | None = None) -> None:
        self.settings, self.prepared, self.schedule = settings, prepared, schedule or DropSchedule()
        self.stop: StopSignal | None = None  # set when no further run may begin
        self._everything = tuple(range(1, prepared.source.network.config.encoder.num_layers + 1))
        if self.schedule.recover is not None and prepared.data.kind not in TAUGHT:
            raise InputError(f"recover distils, which {prepared.data.kind} tasks do not support; leave it out")

    def __getstate__(self) -> dict[str, Any]:
        """Without the signal, which another process does not share."""
        return {**self.__dict__, "stop": None}

    def folder(self, kept: Layers, seed: int) -> Path:
        return self.settings.out / TRIALS_FOLDER / f"{'-'.join(map(str, kept))}-seed-{seed}"

    def is_begun(self, kept: Layers, seed: int) -> bool:
        """Whether a run was interrupted and will be resumed, or ended before its score was asked for."""
        return read_run(self.folder(kept, seed)) is not None

    def is_needed(self, folder: Path) -> bool:
        """Whether other runs may begin with, or learn from, the model in a folder of a trial."""
        if self.schedule.when == "steps":
            return True
        whole = "-".join(map(str, self._everything))
        return self.schedule != DropSchedule() and folder.name.startswith(f"{whole}-seed-")

    def score(self, kept: Layers, seed: int) -> float:
        """Drop, train, and score on dev."""
        if self.stop:
            raise InputError(STOPPED)
        out = self.folder(kept, seed)
        done = read_run(out)
        if done is not None and done.status == "finished":
            if (out / MODEL_FOLDER).is_dir():
                return _score_of(out)  # another run began with it
            shutil.rmtree(out)
            done = None
        small = self._start(kept, seed)
        if kept != self._everything and self.schedule.when == "after" and self.schedule.recover is None:
            return self._score_as_it_is(small, out, seed)
        prepared = replace(self.prepared, source=small)
        if kept != self._everything and self.schedule.recover is not None:
            teacher = load_teacher(str(self._trained(self._everything, seed)), self.schedule.recover)
            prepared = with_teacher(prepared, teacher)
        settings = replace(self.settings, out=out, seed=seed, resume=done is not None, watched=False)
        result = finetune(settings, self.prepared.data, prepared)
        _free_memory(settings.device)
        if result.status == "stopped":
            raise InputError(STOPPED)
        return _finite(result.score)

    def _start(self, kept: Layers, seed: int) -> Loaded:
        """What a run starts from: layers of the pretrained model, or of one fine-tuned with this seed."""
        before = self._before(kept)
        if before is None:
            return Loaded(drop_layers(self.prepared.source.network, kept), self.prepared.tokenizer)
        network = load_model(self._trained(before, seed)).network
        return Loaded(drop_layers(network, [before.index(layer) + 1 for layer in kept]), self.prepared.tokenizer)

    def _before(self, kept: Layers) -> Layers | None:
        """The layers to fine-tune first, None to drop from the pretrained model; upper layers go first."""
        if kept == self._everything or self.schedule == DropSchedule():
            return None
        if self.schedule.when != "steps":
            return self._everything
        last_to_go = [layer for layer in self._everything if layer not in kept][:STEP]
        return tuple(sorted({*kept, *last_to_go}))

    def _trained(self, kept: Layers, seed: int) -> Path:
        """The folder of these layers fine-tuned with a seed, which are fine-tuned if it is not there."""
        folder = self.folder(kept, seed)
        if not (folder / MODEL_FOLDER).is_dir():
            self.score(kept, seed)
        return folder

    def _score_as_it_is(self, small: Loaded, out: Path, seed: int) -> float:
        """The score of fewer layers of a fine-tuned model without more training."""
        shutil.rmtree(out, ignore_errors=True)
        device = torch.device(self.settings.device)
        numbers = self.settings.precision or default_precision(device)
        network, prepared = small.network.to(device), self.prepared
        predictor = Predictor(network, prepared.tokenizer, prepared.note, device, precision=numbers)
        keeper = BestCheckpoint(predictor, prepared.data, prepared.dev, patience=0)
        figures = keeper.measure()
        score = keeper.main(figures)
        files = {TASK_FILE: predictor.note.text_of_file()}
        save_model(out / MODEL_FOLDER, network, prepared.tokenizer, verb="shrink", settings={"seed": seed}, files=files)
        write_run(out, "shrink", {"seed": seed}, result={"score": score, "dev": figures})
        return _finite(score)

    def put_best(self, kept: Layers, seeds: Sequence[int], target: Path, place: Placement) -> None:
        """Move the best seed's model to ``target``; trained again where its folder is gone."""
        best = max(seeds, key=lambda seed: _score_of(self.folder(kept, seed)))
        if not (self.folder(kept, best) / MODEL_FOLDER).is_dir():
            run_all([partial(self.score, kept, best)], on=place)
        shutil.rmtree(target, ignore_errors=True)
        (self.folder(kept, best) / MODEL_FOLDER).rename(target)


def device_here(device: str) -> str:
    """The device of runs, or the CPU where they run on a cluster and this machine has no such device."""
    return device if torch.cuda.is_available() else "cpu"


def _free_memory(device: str) -> None:
    """Free GPU memory: a run leaves reference cycles, which Python collects late."""
    if device == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


def _finite(score: float) -> float:
    """The score, or 0 for a run that diverged in every attempt."""
    return score if math.isfinite(score) else 0.0


def _score_of(folder: Path) -> float:
    note = read_run(folder)
    score = note.result.get("score") if note else None
    return _finite(float(score)) if isinstance(score, int | float) else 0.0


def keeping_rules(names: Sequence[Strategy], prepared: Prepared, device: str) -> dict[str, Callable[[int], Layers]]:
    """For each strategy the layers it keeps; contribution is measured on the task's dev texts."""
    network = prepared.source.network
    rules: dict[Strategy, Fixed] = dict(FIXED)
    if "contribution" in names:
        inputs = (one for part in prepared.dev for one in packed(part.inputs, device))
        cosines = contribution(network.to(device).encoder, inputs)
        network.to("cpu")
        rules["contribution"] = lambda _, count: drop_similar(cosines, count)
    for name in names:
        if name not in rules:
            raise InputError(f"strategy {name} uses another loss than the task's; choose {', '.join(USUAL)}")
    return {name: partial(_kept, rules[name], network.config.encoder.num_layers) for name in names}


def _kept(drop: Fixed, depth: int, count: int) -> Layers:
    return kept_of(depth, drop(depth, count))


def note_runs(settings: FinetuneSettings, facts: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Record the settings; on resume, an error where the earlier scores would not be comparable."""
    before = read_run(settings.out) if settings.resume else None
    if before is not None:
        for name, value in facts.items():
            if before.settings.get(name) != value:
                raise InputError(f"the runs in {settings.out} were made with another {name}; choose another folder")
        update_run(settings.out, status="running")
        return
    parents = [parent_of("source", Path(settings.model))] if Path(settings.model).is_dir() else []
    write_run(settings.out, "shrink", {**facts, **asked}, parents=parents, status="running")


def comparable(settings: FinetuneSettings, prepared: Prepared, schedule: DropSchedule) -> dict[str, Any]:
    """What scores must have in common to be compared."""
    return {
        "model": settings.model,
        "task": prepared.data.name,
        "data": prepared.fingerprint,
        "recipe": repr(prepared.recipe),
        **({"way": schedule.as_plain()} if schedule != DropSchedule() else {}),
    }


def check_metric(data: TaskData) -> None:
    """An error where the score is not a share, so that a tolerance in percent has no meaning."""
    if data.metrics[0] in IN_UNITS:
        raise InputError(
            f"{data.name} is scored by {data.metrics[0]}, which is not a share, so a tolerance has no meaning"
        )


def with_head(prepared: Prepared, kept: Layers) -> Network:
    """These layers with the head of the task, as a run starts."""
    heads = task_heads(prepared.data, answerable=prepared.recipe.answerable)
    return start_network(drop_layers(prepared.source.network, kept), heads, prepared.recipe, 0)[0]


def inference_seconds(
    networks: Sequence[Network], prepared: Prepared, where: str, *, rounds: int = ROUNDS
) -> list[float]:
    """Seconds per input of each network; every round times all of them, so that a busy machine slows all alike."""
    device = torch.device(where)
    items = list(islice(cycle(prepared.dev[0].items), TIMED[device.type]))  # fewer would leave a GPU idle
    encoded = KINDS[prepared.data.kind].encode(items, prepared.tokenizer, prepared.note.encoding())
    numbers = default_precision(device)
    predictors = [
        Predictor(network.to(device), prepared.tokenizer, prepared.note, device, precision=numbers)
        for network in networks
    ]
    best = [float("inf")] * len(predictors)
    for turn in range(rounds + 1):
        for place, predictor in enumerate(predictors):
            begun = time.perf_counter()
            predictor.scores(encoded)
            if turn:  # the first one warms up
                best[place] = min(best[place], time.perf_counter() - begun)
    return [seconds / len(items) for seconds in best]


def packed(encoded: Encoded, device: str) -> Iterator[Inputs]:
    """The inputs of a task as packed batches of a bounded number of tokens."""
    first = 0
    while first < len(encoded):
        most = np.searchsorted(encoded.starts, encoded.starts[first] + BATCH_TOKENS, side="right") - 1
        last = max(first + 1, int(most))
        some = slice(int(encoded.starts[first]), int(encoded.starts[last]))
        ids, segments = (torch.from_numpy(part[some]).long().to(device) for part in (encoded.ids, encoded.segments))
        yield Inputs(ids, Layout.of(encoded.lengths[first:last].tolist(), device), segments)
        first = last
