"""What a score of some layers costs: dropping them, fine-tuning (or distilling) what is left, and scoring it on dev.

Layers go before fine-tuning, after it, or in steps: some go, what is left is fine-tuned, more go. With ``recover`` what
is left of the fine-tuned model, its head included (as DistilBERT begins), learns from the whole of it, same seed. Runs
lie in folders of their own until their models are of no more use; one that was cut goes on.
"""

import gc
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from litebert.analyse.change import contribution
from litebert.checkpoints.folder import Loaded, load_model, save_model
from litebert.claims import CLAIMED, Claim
from litebert.distill.run import with_teacher
from litebert.distill.settings import DistillSettings
from litebert.distill.teacher import TAUGHT, load_teacher
from litebert.errors import InputError, nearest
from litebert.runs import MODEL_FOLDER, parent_of, read_run, update_run, write_run
from litebert.shrink.dev_inputs import packed
from litebert.shrink.drop import drop_layers
from litebert.shrink.strategies import FIXED, Fixed, Layers, Strategy, drop_similar, kept_of
from litebert.tasks.examples import TaskData
from litebert.tasks.finetune import BestCheckpoint, FinetuneSettings, Prepared, finetune
from litebert.tasks.predicting import TASK_FILE, Predictor
from litebert.train.clock import StopSignal
from litebert.train.precision import default_precision

TRIALS_FILE, TRIALS_FOLDER = "trials.jsonl", "trials"
# Bottom is the paper's control and greedy would go by another loss than the task's.
USUAL: tuple[Strategy, ...] = ("contribution", "top", "symmetric", "even", "odd")
When = Literal["before", "after", "steps"]
STEP = 2  # layers that go at a time, in steps
STOPPED = "stopped; the same command with --resume goes on"
WAIT = 0.5  # seconds between looks at what other processes are at


@dataclass(frozen=True, kw_only=True)
class Way:
    """When layers go, and how what is left recovers: from the labels alone, or from the whole model, too."""

    when: When = "before"
    recover: DistillSettings | None = None

    def as_plain(self) -> dict[str, Any]:
        return {"when": self.when, "recover": None if self.recover is None else asdict(self.recover)}


def parse_when(word: str) -> When:
    """What ``--when`` names."""
    for when in get_args(When):
        if when == word:
            return when
    raise InputError(
        f"--when is '{word}' but must be before or after (fine-tuning), or steps{nearest(word, get_args(When))}"
    )


class Tuning:
    """Runs of candidates for one task. Call ``score`` with the layers kept and a seed."""

    def __init__(self, settings: FinetuneSettings, prepared: Prepared, way: Way | None = None) -> None:
        self.settings, self.prepared, self.way = settings, prepared, way or Way()
        self.stop: StopSignal | None = None  # tells that no further run is to begin
        self._everything = tuple(range(1, prepared.source.network.config.encoder.num_layers + 1))
        if self.way.recover is not None and prepared.data.kind not in TAUGHT:
            raise InputError(f"--recover distils, which {prepared.data.kind} tasks cannot; leave it out")

    def folder(self, kept: Layers, seed: int) -> Path:
        return self.settings.out / TRIALS_FOLDER / f"{'-'.join(map(str, kept))}-seed-{seed}"

    def claim(self, kept: Layers, seed: int) -> Claim:
        """What a process holds while it is at a run."""
        return Claim(self.folder(kept, seed).with_suffix(CLAIMED))

    def is_begun(self, kept: Layers, seed: int) -> bool:
        """Whether a run was cut and will go on, or ended before it was asked for."""
        return read_run(self.folder(kept, seed)) is not None

    def is_needed(self, folder: Path) -> bool:
        """Whether other runs may begin with, or learn from, the model in a folder of a trial."""
        if self.way.when == "steps":
            return True
        whole = "-".join(map(str, self._everything))
        return self.way != Way() and folder.name.startswith(f"{whole}-seed-")

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
        if kept != self._everything and self.way.when == "after" and self.way.recover is None:
            return self._score_as_it_is(small, out, seed)
        prepared = replace(self.prepared, source=small)
        if kept != self._everything and self.way.recover is not None:
            teacher = load_teacher(str(self._trained(self._everything, seed)), self.way.recover)
            prepared = with_teacher(prepared, teacher)
        settings = replace(self.settings, out=out, seed=seed, resume=done is not None, watched=False)
        result = finetune(settings, self.prepared.data, prepared)
        _let_go(settings.device)
        if result.status == "stopped":
            raise InputError(STOPPED)
        return _finite(result.score)

    def _start(self, kept: Layers, seed: int) -> Loaded:
        """What a run begins with: layers of the pretrained model, or of one that was fine-tuned with this seed."""
        before = self._before(kept)
        if before is None:
            return Loaded(drop_layers(self.prepared.source.network, kept), self.prepared.tokenizer)
        network = load_model(self._trained(before, seed)).network
        return Loaded(drop_layers(network, [before.index(layer) + 1 for layer in kept]), self.prepared.tokenizer)

    def _before(self, kept: Layers) -> Layers | None:
        """The layers that are fine-tuned first, None where the pretrained model loses some; upper ones go first."""
        if kept == self._everything or self.way == Way():
            return None
        if self.way.when != "steps":
            return self._everything
        last_to_go = [layer for layer in self._everything if layer not in kept][:STEP]
        return tuple(sorted({*kept, *last_to_go}))

    def _trained(self, kept: Layers, seed: int) -> Path:
        """The folder of these layers fine-tuned with a seed; where it is not there they are, by one process."""
        folder = self.folder(kept, seed)
        while not (folder / MODEL_FOLDER).is_dir():
            with self.claim(kept, seed) as ours:
                if ours and not (folder / MODEL_FOLDER).is_dir():
                    self.score(kept, seed)
            if not ours:
                wait(self.stop)
        return folder

    def _score_as_it_is(self, small: Loaded, out: Path, seed: int) -> float:
        """What fewer layers of a fine-tuned model score without any more training."""
        shutil.rmtree(out, ignore_errors=True)
        device = torch.device(self.settings.device)
        numbers = self.settings.precision or default_precision(device)
        network, prepared = small.network.to(device), self.prepared
        predictor = Predictor(network, prepared.tokenizer, prepared.note, device, kind_of_numbers=numbers)
        keeper = BestCheckpoint(predictor, prepared.data, prepared.dev, patience=0)
        figures, note = keeper.measure()
        score = keeper.main(figures)
        files = {TASK_FILE: note.text_of_file()}
        save_model(out / MODEL_FOLDER, network, prepared.tokenizer, verb="shrink", settings={"seed": seed}, files=files)
        write_run(out, "shrink", {"seed": seed}, result={"score": score, "dev": figures})
        return _finite(score)

    def put_best(self, kept: Layers, seeds: Sequence[int], target: Path) -> None:
        """The best seed's model as the one that was asked for; trained again where its folder is gone."""
        best = max(seeds, key=lambda seed: _score_of(self.folder(kept, seed)))
        if not (self.folder(kept, best) / MODEL_FOLDER).is_dir():
            self.score(kept, best)
        shutil.rmtree(target, ignore_errors=True)
        (self.folder(kept, best) / MODEL_FOLDER).rename(target)


def wait(stop: StopSignal | None) -> None:
    """Wait a moment for what another process is at; an error where this one is to end."""
    if stop:
        raise InputError(STOPPED)
    time.sleep(WAIT)


def _let_go(device: str) -> None:
    """Give a GPU's memory back: what a run leaves refers to itself in circles, which Python clears at its leisure."""
    if device == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


def _finite(score: float) -> float:
    """The score, or nothing for a run that fell apart whatever was tried."""
    return score if math.isfinite(score) else 0.0


def _score_of(folder: Path) -> float:
    note = read_run(folder)
    score = note.result.get("score") if note else None
    return _finite(float(score)) if isinstance(score, int | float) else 0.0


def keeping_rules(names: Sequence[Strategy], prepared: Prepared, device: str) -> dict[str, Callable[[int], Layers]]:
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


def note_runs(settings: FinetuneSettings, facts: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Write down what was asked for; on resume, an error where scores of before would not be comparable."""
    before = read_run(settings.out) if settings.resume else None
    if before is not None:
        for name, value in facts.items():
            if before.settings.get(name) != value:
                raise InputError(f"the runs in {settings.out} were made with another {name}; name another folder")
        update_run(settings.out, status="running")
        return
    parents = [parent_of("source", Path(settings.model))] if Path(settings.model).is_dir() else []
    write_run(settings.out, "shrink", {**facts, **asked}, parents=parents, status="running")


def comparable(settings: FinetuneSettings, prepared: Prepared, way: Way) -> dict[str, Any]:
    """What scores must have in common to be compared."""
    return {
        "model": settings.model,
        "task": prepared.data.name,
        "data": prepared.fingerprint,
        "recipe": repr(prepared.recipe),
        **({"way": way.as_plain()} if way != Way() else {}),
    }


def check_metric(data: TaskData) -> None:
    """An error where the score is no share, so that a percentage of it means nothing."""
    from litebert.tasks.metrics import IN_UNITS

    if data.metrics[0] in IN_UNITS:
        raise InputError(f"{data.name} is scored by {data.metrics[0]}, which is no share that a tolerance could be of")
