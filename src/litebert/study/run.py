"""A study from its first row to its verdicts. It can be stopped and gone on with anywhere, and shared out.

Several processes may work on one folder: each takes a row that no other has, and takes up one whose process died.
"""

import gc
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from litebert.checkpoints.training import saved_states
from litebert.claims import CLAIMED, Claim, others_at_work, seen_at_work
from litebert.corpus.frequencies import unigram_entropy
from litebert.corpus.store import Store
from litebert.durations import format_duration, parse_duration
from litebert.errors import InputError
from litebert.nn.families import preset_config
from litebert.plan.parameters import count_parameters
from litebert.pretrain.held_out import ORDERS
from litebert.pretrain.recipe import RECIPE_FIELDS
from litebert.pretrain.run import PretrainSettings, bound_from, network_config, pretrain, settings_from
from litebert.runs import CHECKPOINTS, LOCK_FILE, MODEL_FOLDER, parent_of, read_run, update_run, write_run
from litebert.study.catalogue import study_of
from litebert.study.plans import Row, Study
from litebert.study.scores import RowScores, read_scores, score_run
from litebert.train.clock import StopSignal

ROWS = "rows"
NOTE_CLAIM = "study.claim"  # held while the note of the study, or its report, is written
WAIT = 1.0  # seconds between looks at what other processes are at


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """What the user asked for."""

    study: str
    preset: str
    corpus: Path
    out: Path
    budget: str | None
    steps: int | None
    flops: float | None = None
    seeds: int = 1
    recipe: str = "budget"
    words: tuple[str, ...] = ()
    device: str = ""
    precision: str | None = None
    compiled: bool | None = None
    micro_tokens: int = 0

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise InputError(f"--seeds is {self.seeds} but must be 1 or more")
        if sum(length is not None for length in (self.budget, self.steps, self.flops)) != 1:
            raise InputError("say in one way how long each row trains: --budget 5m, --steps 1000 or --flops 1e16")

    def facts(self) -> dict[str, Any]:
        """What must be the same when a study is gone on with."""
        fields = asdict(self)
        left_out = ("out", "seeds", "corpus", *(() if self.flops else ("flops",)))  # studies from before it have none
        return {name: str(fields[name]) for name in fields if name not in left_out}

    @property
    def length(self) -> str:
        """How long each row trains."""
        return self.budget or (f"{self.steps:,} steps" if self.steps else f"{self.flops:g} operations")


@dataclass(frozen=True)
class Done:
    """What has been found so far: scores by row and seed, and the parameters (encoder and pooler) of each row."""

    study: Study
    settings: StudySettings
    parameters: Mapping[str, int]
    scores: Mapping[str, Mapping[int, RowScores]]
    corpus: str  # fingerprint of the store
    unigram: float  # the masked-LM loss of word frequencies alone
    notes: tuple[str, ...]

    @property
    def complete(self) -> bool:
        return all(len(self.scores[row.name]) >= self.settings.seeds for row in self.study.rows)


def plan_study(settings: StudySettings) -> Done:
    """The study with every row's settings checked, and the scores that are there already."""
    store = Store.open(settings.corpus)
    encoder = preset_config(settings.preset, [word for word in settings.words if not _is_recipe(word)])
    study = study_of(settings.study, encoder)
    parameters, grows = {}, {}
    for row in study.rows:
        chosen = row_settings(settings, study, row, 0)
        grows[row.label] = bool(chosen.recipe.growth.depths)
        config = network_config(chosen, store)
        parameters[row.name] = count_parameters(config.encoder).bare
    notes = study.notes
    if len(set(grows.values())) > 1:
        named = ", ".join(label for label, does in grows.items() if not does)
        notes += (
            f"Depth grows during training, as the recipe says, only where all blocks are shared: not in {named}.",
        )
    scores = _scores_of(settings, study)
    return Done(study, settings, parameters, scores, store.fingerprint, unigram_entropy(store), notes)


def run_study(settings: StudySettings, say: Callable[[str], None]) -> Done:
    """Train and score every row that is not there yet, or wait for it where another process is at it.

    Stops, to be gone on with, when asked to.
    """
    done = plan_study(settings)
    settings.out.mkdir(parents=True, exist_ok=True)
    _note(settings, done)
    store = Store.open(settings.corpus)
    waiting = False
    with seen_at_work(settings.out), StopSignal() as stop:
        while not done.complete and not stop:
            outcome = _take_row(done, store, say)
            if outcome == "stopped":
                break
            if outcome == "none":
                if not waiting:
                    say("other processes are at the rows that are left; waiting for them")
                time.sleep(WAIT)
            waiting = outcome == "none"
            done = with_scores(done)
    if done.complete:
        update_run(settings.out, status="finished")
        return done
    say("stopped; the same command goes on from here")
    if not others_at_work(_claims(settings)):
        update_run(settings.out, status="stopped")
    return with_scores(done)


def with_scores(done: Done) -> Done:
    """The same with the scores that are there by now."""
    return replace(done, scores=_scores_of(done.settings, done.study))


def row_settings(settings: StudySettings, study: Study, row: Row, seed: int) -> PretrainSettings:
    """A row as a pretraining run; the study's and the row's own fields win over the user's."""
    folder = row_folder(settings, row, seed)
    start = row_folder(settings, study.row(row.start), seed) / MODEL_FOLDER if row.start else None
    read = settings_from(
        settings.preset,
        [*settings.words, *study.recipe_words, *row.words],
        settings.corpus,
        folder,
        bound=bound_from(budget=settings.budget, steps=settings.steps, flops=settings.flops),
        recipe=settings.recipe,
        device=settings.device,
        precision=settings.precision,
        save_every="2m",
    )
    return replace(
        read,
        source=None if start is None else str(start),
        seed=seed,
        compiled=settings.compiled,
        micro_tokens=settings.micro_tokens,
    )


def row_folder(settings: StudySettings, row: Row, seed: int) -> Path:
    """Where the model of a row of a seed is trained."""
    return settings.out / ROWS / f"{row.model or row.name}-seed{seed}"


def in_words(settings: StudySettings, study: Study) -> str:
    """How long it will take."""
    count = len(study.trained) * settings.seeds
    if settings.budget is None:
        return f"{count} runs of {settings.length}"
    total = format_duration(count * parse_duration(settings.budget))
    return f"{count} runs of {settings.length}: about {total}, and a little to compile and to score each"


def _scores_of(settings: StudySettings, study: Study) -> dict[str, dict[int, RowScores]]:
    """The scores that are there, by row and seed."""
    scores: dict[str, dict[int, RowScores]] = {row.name: {} for row in study.rows}
    for row in study.rows:
        for seed in range(settings.seeds):
            found = read_scores(row_folder(settings, row, seed))
            if found is not None:
                scores[row.name][seed] = found.at(row.depth)
    return scores


def _left(done: Done) -> Iterator[tuple[Row, int]]:
    """What can be run now: every row of the first seed, then of the next, so that a study cut short has a table."""
    for seed in range(done.settings.seeds):
        for row in done.study.trained:
            can_start = not row.start or seed in done.scores[row.start]
            if seed not in done.scores[row.name] and can_start:
                yield row, seed


def _take_row(done: Done, store: Store, say: Callable[[str], None]) -> Literal["done", "stopped", "none"]:
    """Train and score the first row that no process has; none: others have all that can be run now."""
    settings = done.settings
    for row, seed in _left(done):
        folder = row_folder(settings, row, seed)
        with Claim(_claim(folder)) as ours:
            if not ours or read_scores(folder) is not None:  # another one has it, or had it until a moment ago
                continue
            finished = sum(len(done.scores[other.name]) for other in done.study.trained)
            say(f"{row.label}, seed {seed} ({finished} of {settings.seeds * len(done.study.trained)} runs are there)")
            with seen_at_work(settings.out):  # the process that was seen may have ended
                return "done" if _run_row(settings, done.study, row, seed, store, say) else "stopped"
    return "none"


def _claim(folder: Path) -> Path:
    """What a process holds while it is at a row; beside its folder, which may be emptied."""
    return folder.with_name(folder.name + CLAIMED)


def _claims(settings: StudySettings) -> list[Path]:
    return list((settings.out / ROWS).glob(f"*{CLAIMED}"))


def _run_row(
    settings: StudySettings, study: Study, row: Row, seed: int, store: Store, say: Callable[[str], None]
) -> bool:
    """Train a row, or go on with it, and score it; False when it was asked to stop."""
    folder = row_folder(settings, row, seed)
    chosen = replace(row_settings(settings, study, row, seed), resume=bool(saved_states(folder)))
    shared = others_at_work(_claims(settings), own=_claim(folder))
    note = read_run(folder)
    if note is None or note.status not in ("finished", "diverged") or not (folder / MODEL_FOLDER).is_dir():
        if folder.exists() and not chosen.resume:
            shutil.rmtree(folder)  # killed before its first state was saved: there is nothing in it
        if pretrain(chosen).status == "stopped":
            return False
    shared = shared or others_at_work(_claims(settings), own=_claim(folder))
    length = chosen.recipe.batches.lengths[-1][1]
    own = chosen.recipe.order
    asked = (own, *(order for order in ORDERS if order != own)) if "nsp_accuracy" in study.metrics else (own,)
    depths = [other.depth for other in study.rows if other.model == row.name and other.depth is not None]
    score_run(folder, store, length, asked, torch.device(chosen.device), depths=depths, shared=shared)
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)  # states of a finished row are of no more use
    torch._dynamo.reset()  # graphs of one row are of no use to the next, and torch keeps only so many
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return True


def _note(settings: StudySettings, done: Done) -> None:
    """Leave, or compare with, the note of what this study is of; of several processes, one is first."""
    facts = {**settings.facts(), "corpus": done.corpus}
    with Claim(settings.out / NOTE_CLAIM, wait=True):
        known = read_run(settings.out)
        if known is None:
            if any(path.name not in (LOCK_FILE, NOTE_CLAIM) for path in settings.out.iterdir()):
                raise InputError(f"{settings.out} is not empty and holds no study; name another folder")
            write_run(settings.out, "study", facts, parents=[parent_of("corpus", settings.corpus)], status="running")
            return
        for name, value in facts.items():
            if known.settings.get(name) != value:
                raise InputError(
                    f"{settings.out} holds a study with {name} {known.settings.get(name)}, not {value}; go on with the "
                    "same, or name another folder"
                )
        update_run(settings.out, status="running")


def _is_recipe(word: str) -> bool:
    return word.partition("=")[0] in RECIPE_FIELDS
