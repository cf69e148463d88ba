"""A study from its first row to its verdicts: its rows are runs, and a study that was stopped resumes.

A finished row is judged by sums over batches of held-out text that are the same for every row. They are kept batch by
batch, because how much batches differ is how much a figure can be trusted.
"""

import contextlib
import gc
import json
import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

import litebert
from litebert.checkpoints.folder import load_model
from litebert.checkpoints.training import saved_states
from litebert.cluster import IN_TURN, Placement, Stopped, run_all
from litebert.corpus.settings import Order
from litebert.corpus.store import Store, unigram_entropy
from litebert.errors import InputError
from litebert.nn.config import preset_config
from litebert.parameters import format_duration, parse_duration
from litebert.planning.count import count_parameters
from litebert.pretraining.held_out import ORDERS, Table, prefix_of, score_network
from litebert.pretraining.recipe import RECIPE_FIELDS
from litebert.pretraining.run import PretrainSettings, bound_from, network_config, pretrain, settings_from
from litebert.runs import (
    CHECKPOINTS,
    LOCK_FILE,
    MODEL_FOLDER,
    RunLock,
    parent_of,
    read_run,
    update_run,
    write_atomically,
    write_run,
)
from litebert.system import usable_device
from litebert.train import precision
from litebert.train.clock import StopSignal
from litebert_lab.study.catalogue import Row, Study, study_of, with_measures
from litebert_lab.study.noise import Sums
from litebert_lab.suite import blimp_scores, read_blimp

ROWS = "rows"
SCORES = "scores.json"
SUITE = ("blimp", "pairs")  # fields of what is measured besides; it may be asked for later

log = logging.getLogger(__name__)


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
    device: str = "auto"
    precision: str | None = None
    compiled: bool | None = None
    micro_tokens: int = 0
    blimp: Path | None = None  # a folder of minimal pairs, which every row is asked about
    pairs: int = 20  # of each paradigm; 0: all

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise InputError(f"--seeds is {self.seeds} but must be 1 or more")
        if sum(length is not None for length in (self.budget, self.steps, self.flops)) != 1:
            raise InputError("give one of --budget 5m, --steps 1000 and --flops 1e16: how long each row trains")

    def facts(self) -> dict[str, Any]:
        """What must be the same when a study is resumed."""
        fields = asdict(self)
        left_out = ("out", "seeds", "corpus", *SUITE, *(() if self.flops else ("flops",)))  # not in older studies
        return {name: str(fields[name]) for name in fields if name not in left_out}

    @property
    def measures(self) -> dict[str, str]:
        """The metrics of the suite that are asked for, and what they are called."""
        return {"blimp_accuracy": "BLiMP"} if self.blimp else {}

    @property
    def length(self) -> str:
        """How long each row trains."""
        return self.budget or (f"{self.steps:,} steps" if self.steps else f"{self.flops:g} operations")


@dataclass(frozen=True)
class RowScores:
    """A row of one seed, finished."""

    status: str
    table: Table
    facts: Mapping[str, Any]  # steps, tokens, seconds; pairs of BLiMP

    def at(self, depth: int | None) -> "RowScores":
        """The scores after so many layers; None: after all."""
        if depth is None:
            return self
        prefix = prefix_of(depth)
        found = {kind.removeprefix(prefix): rows for kind, rows in self.table.items() if kind.startswith(prefix)}
        return replace(self, table=found)

    def sums(self, metric: str) -> Sums | None:
        """What a metric such as ``mlm_loss`` or ``nsp_accuracy`` is the ratio of, by batch; None: not measured."""
        kind, _, what = metric.partition("_")
        rows = [row for row in self.table.get(kind, []) if row[2]]
        if not rows:
            return None
        numbers = np.array(rows, np.float64)
        return numbers[:, [0 if what == "loss" else 1, 2]]


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
    of_model = [word for word in settings.words if word.partition("=")[0] not in RECIPE_FIELDS]
    study = study_of(settings.study, preset_config(settings.preset, of_model))
    study = with_measures(study, settings.measures)
    parameters, grows = {}, {}
    for row in study.rows:
        chosen = row_settings(replace(settings, device="auto"), study, row, 0)  # a cluster may have other devices
        grows[row.label] = bool(chosen.recipe.growth.depths)
        parameters[row.name] = count_parameters(network_config(chosen, store).encoder).bare
    notes = study.notes
    if len(set(grows.values())) > 1:
        named = ", ".join(label for label, does in grows.items() if not does)
        notes += (
            f"Depth grows during training, as the recipe says, only where all blocks are shared: not in {named}.",
        )
    scores = _scores_of(settings, study)
    return Done(study, settings, parameters, scores, store.fingerprint, unigram_entropy(store), notes)


def run_study(settings: StudySettings, place: Placement = IN_TURN) -> Done:
    """Train and score every row that is not there yet; stops, to be resumed, when asked to."""
    done = plan_study(settings)
    with RunLock(settings.out), StopSignal() as stop:
        _note(settings, done)
        # All rows of the first seed, then of the next, so that a study cut short has a table.
        every = list(product(range(settings.seeds), done.study.trained))
        for seed, row in every:  # the suite may be asked for when rows are finished
            if seed in done.scores[row.name] and not stop:
                measure_more(settings, row_folder(settings, row, seed))
        left = [(seed, row) for seed, row in every if seed not in done.scores[row.name]]
        places = {(seed, row.name): index for index, (seed, row) in enumerate(left)}
        needs = {
            index: [places[seed, row.start]]
            for index, (seed, row) in enumerate(left)
            if row.start and (seed, row.start) in places
        }
        wanted = settings.seeds * len(done.study.trained)

        def finished(index: int, _: None) -> None:
            seed, row = left[index]
            scores = _scores_of(settings, done.study)
            ready = sum(len(scores[other.name]) for other in done.study.trained)
            log.info(f"{row.label}, seed {seed}: {ready} of {wanted} runs done")

        jobs = [partial(_run_row, settings, done.study, row, seed) for seed, row in left]
        with contextlib.suppress(Stopped):
            run_all(jobs, on=place, needs=needs, finished=finished, what="rows", stop=stop)
        done = replace(done, scores=_scores_of(settings, done.study))
        update_run(settings.out, status="finished" if done.complete else "stopped")
    if not done.complete:
        log.info("stopped; the same command resumes")
    return done


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


def _run_row(settings: StudySettings, study: Study, row: Row, seed: int) -> None:
    """Train a row, or resume it, and score it."""
    log.info(f"{row.label}, seed {seed}")
    folder = row_folder(settings, row, seed)
    chosen = replace(row_settings(settings, study, row, seed), resume=bool(saved_states(folder)))
    note = read_run(folder)
    if note is None or note.status not in ("finished", "diverged") or not (folder / MODEL_FOLDER).is_dir():
        if folder.exists() and not chosen.resume:
            shutil.rmtree(folder)  # killed before its first state was saved: there is nothing in it
        if pretrain(chosen).status == "stopped":
            raise Stopped("stopped; the same command resumes")
    length = chosen.recipe.batches.lengths[-1][1]
    own = chosen.recipe.order
    asked = (own, *(order for order in ORDERS if order != own)) if "nsp_accuracy" in study.metrics else (own,)
    depths = [other.depth for other in study.rows if other.model == row.name and other.depth is not None]
    store = Store.open(settings.corpus)
    score_run(folder, store, length, asked, torch.device(chosen.device), depths=depths, hides=study.hides)
    measure_more(settings, folder)
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)  # states of a finished row are of no more use
    torch._dynamo.reset()  # graphs of one row are of no use to the next, and torch keeps only so many
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _note(settings: StudySettings, done: Done) -> None:
    """Write, or compare with, the note of what this study is of."""
    facts = {**settings.facts(), "corpus": done.corpus}
    known = read_run(settings.out)
    if known is None:
        if any(path.name != LOCK_FILE for path in settings.out.iterdir()):
            raise InputError(f"{settings.out} is not empty and holds no study; name another folder")
        write_run(settings.out, "study", facts, parents=[parent_of("corpus", settings.corpus)], status="running")
        return
    for name, value in facts.items():
        if known.settings.get(name) != value:
            raise InputError(
                f"{settings.out} holds a study with {name} {known.settings.get(name)}, not {value}; use the same, or "
                "name another folder"
            )
    update_run(settings.out, status="running")


def score_run(
    run: Path,
    store: Store,
    length: int,
    orders: Sequence[Order],
    device: torch.device,
    *,
    depths: Sequence[int] = (),
    hides: bool = False,
) -> RowScores:
    """Score the model of a run, at smaller depths, too, where these are given, and leave the sums in its folder."""
    if not store.split("held_out").num_tokens:
        raise InputError(f"{store.folder} has no held-out text to judge by; build it with --held-out 5%")
    note = json.loads((run / "run.json").read_text(encoding="utf-8"))
    facts = {name: note["result"].get(name) for name in ("step", "tokens", "seconds")}
    table: Table = {}
    if note["status"] == "finished":
        network, kind = load_model(run / "model").network, precision.default_precision(device)
        table = score_network(network, store, length, orders, device, kind, depths, hides=hides)
    scores = RowScores(note["status"], table, facts)
    _write_scores(run, scores)
    return scores


def measure_more(settings: StudySettings, run: Path) -> None:
    """Add what the suite finds of a scored run to its scores, where it is asked for and not there yet."""
    scores = read_scores(run)
    if scores is None or scores.status != "finished":
        return
    if settings.blimp and scores.facts.get("pairs") != settings.pairs:
        log.info(f"{run.name}: BLiMP")
        table, facts = {**scores.table, "blimp": _blimp_rows(run, settings)}, {**scores.facts, "pairs": settings.pairs}
        _write_scores(run, replace(scores, table=table, facts=facts))


def _blimp_rows(run: Path, settings: StudySettings) -> list[list[float]]:
    """For each paradigm the pairs whose good sentence scores higher, and all."""
    assert settings.blimp
    model = litebert.load(run, device=usable_device(settings.device))
    pairs = read_blimp(settings.blimp, settings.pairs)
    shares = blimp_scores(model, pairs, judge="masked", depth=model.config.num_layers)
    return [[0.0, share * len(pairs[name]), float(len(pairs[name]))] for name, share in shares.items()]


def _write_scores(run: Path, scores: RowScores) -> None:
    note = {"status": scores.status, "table": scores.table, "facts": scores.facts}
    write_atomically(run / SCORES, json.dumps(note) + "\n")


def read_scores(run: Path) -> RowScores | None:
    """The scores of a run that was finished; None: it was not."""
    try:
        note = json.loads((run / SCORES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return RowScores(note["status"], note["table"], note["facts"])
