"""What is learnt in the same minutes: plain ``transformers`` code, and recipes of ours, measured by the same code.

Every row trains a model for each seed: "transformers" a BERT-base (``plain_pretraining.py``), all others a preset of
ours with fields of their own. All are then scored on the same held-out rows with the same masks, on minimal pairs and
on tasks of GLUE, fine-tuned with the same settings. The work is cut into pieces (train, held-out, blimp, a task), each
in a process of its own and kept in the folder when it is done: the command may be stopped, or given a limit, and
repeated.
"""

import json
import logging
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from litebert.errors import InputError
from litebert.report import Report, Section, Table, note
from litebert.runs import MODEL_FOLDER, RunLock, write_atomically
from litebert.train.callbacks import Callback
from litebert.train.settings import Bound
from litebert.train.trainer import Trainer

THEIRS = "transformers"
RESULTS, SETTINGS = "results.json", "settings.json"
TASKS = ("cola", "stsb", "sst2", "mrpc")
EXPECTED = {"train": 90.0, "held_out": 60.0, "blimp": 90.0}  # seconds beside those of training, for the limit; else:
OF_A_TASK = 120.0
LONG = 1e9  # seconds
RUN = "import sys; from litebert_lab.bench.learning import run_piece; run_piece(*sys.argv[1:])"

log = logging.getLogger(__name__)
Results = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class LearningSettings:
    """What is compared."""

    corpus: str
    seconds: float
    compiling: Literal["inside", "outside"] = "inside"  # of these seconds, with imports and all else before a step
    rows: Mapping[str, Sequence[str]] = field(default_factory=dict)  # words of ours, by row; corpus=STORE: other text
    theirs: bool = True
    preset: str = "albert-base"
    source: str | None = None  # a model that ours start from
    plain: Mapping[str, Any] = field(default_factory=dict)  # changes of ``PlainSettings``
    seeds: int = 3
    blimp: str | None = None
    pairs: int = 0
    glue: str | None = None
    tasks: Sequence[str] = TASKS
    finetune: Sequence[str] = ()  # fields of fine-tuning, for all
    device: str = "cpu"

    @property
    def engines(self) -> list[str]:
        """The rows of the table."""
        return [*([THEIRS] if self.theirs else []), *self.rows]

    def pieces(self) -> list[str]:
        """What is done for a model, in this order."""
        return ["train", "held_out", *(["blimp"] if self.blimp else []), *(self.tasks if self.glue else [])]


def bench_learning(settings: LearningSettings, out: Path, limit: float | None = None, *, keep: bool = False) -> Report:
    """Do what is missing, for at most about ``limit`` seconds, and report what there is."""
    if not settings.engines:
        raise InputError("there is nothing to compare; name rows of ours, or leave theirs in")
    begun = time.monotonic()
    with RunLock(out):
        _keep_settings(settings, out)
        for seed in range(settings.seeds):  # the first seed of every row first
            for engine in settings.engines:
                if not _work_on(settings, out, engine, seed, begun, limit, keep):
                    return learning_report(settings, out)
    return learning_report(settings, out)


def _keep_settings(settings: LearningSettings, out: Path) -> None:
    """Write the settings down, or compare them with those before; seeds may be added."""
    now = json.loads(json.dumps(asdict(settings)))
    path = out / SETTINGS
    before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else now
    places = ("seeds", "corpus", "blimp", "glue", "device")
    changed = [name for name in now if name not in places and before.get(name) != now[name]]
    if changed:
        raise InputError(f"{out} was begun with other {', '.join(changed)}; repeat them, or name another folder")
    write_atomically(path, json.dumps(now, indent=1) + "\n")


def _work_on(
    settings: LearningSettings, out: Path, engine: str, seed: int, begun: float, limit: float | None, keep: bool
) -> bool:
    """The pieces that a model lacks; False when there is no time for the next one."""
    folder = piece_folder(out, engine, seed)
    folder.mkdir(parents=True, exist_ok=True)
    for piece in settings.pieces():
        done = read_results(folder)
        if piece in done:
            continue
        if piece != "train" and not (folder / MODEL_FOLDER / "config.json").is_file():
            raise InputError(f"{folder} has results of a model that is gone; delete it to train it again")
        expected = EXPECTED.get(piece, OF_A_TASK) + (settings.seconds if piece == "train" else 0.0)
        if limit is not None and time.monotonic() - begun + expected > limit:
            log.info("no time left for %s of %s, seed %d; repeat the command to continue", piece, engine, seed)
            return False
        log.info("%s of %s, seed %d ...", piece, engine, seed)
        if piece == "train":
            for part in folder.iterdir():  # of a training that was broken off: by the clock there is no resuming
                shutil.rmtree(part) if part.is_dir() else part.unlink()
        words = [json.dumps(asdict(settings)), str(folder), engine, str(seed), piece, str(time.monotonic())]
        ended = subprocess.run([sys.executable, "-c", RUN, *words])
        if ended.returncode or piece not in read_results(folder):
            raise InputError(
                f"{piece} of {engine}, seed {seed}, has failed (see above); repeat the command to try again"
            )
    if not keep:
        shutil.rmtree(folder / MODEL_FOLDER, ignore_errors=True)
    return True


def piece_folder(out: Path, engine: str, seed: int) -> Path:
    """Where a model and its results are."""
    return out / f"{engine}-seed{seed}"


def read_results(folder: Path) -> Results:
    """What is known of a model."""
    path = folder / RESULTS
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


# In a process of its own


def run_piece(settings: str, folder: str, engine: str, seed: str, piece: str, begun: str) -> None:
    """Do a piece and add what came out to the results."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    asked, place, started = LearningSettings(**json.loads(settings)), Path(folder), time.monotonic()
    if piece == "train":
        found = _train(asked, place, engine, int(seed), float(begun))
    elif piece == "held_out":
        found = _held_out(asked, place)
    elif piece == "blimp":
        found = _blimp(asked, place)
    else:
        found = _task(asked, place, piece, int(seed))
    took = {"took": round(time.monotonic() - started, 1)}
    write_atomically(place / RESULTS, json.dumps({**read_results(place), piece: {**found, **took}}, indent=1) + "\n")


class CompilingOutside(Callback):
    """Gives a run ``seconds`` from when its first step is done; until then its bound is far away."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def on_update(self, trainer: Trainer) -> None:
        if trainer.state.step == 1:
            bound = Bound(seconds=self.seconds + trainer.state.lead)
            trainer.settings = replace(trainer.settings, bound=bound)


def _train(settings: LearningSettings, folder: Path, engine: str, seed: int, begun: float) -> Results:
    if engine == THEIRS:
        from litebert_lab.bench.plain_pretraining import PlainSettings, pretrain_plain

        fields = dict(settings.plain)
        plain = PlainSettings(**{"model": {}, **fields})
        counted = begun if settings.compiling == "inside" else None
        how: dict[str, Any] = {"seed": seed, "device": settings.device, "begun": counted}
        found = pretrain_plain(Path(settings.corpus), folder, settings.seconds, plain, **how)
        shutil.rmtree(folder / "theirs")
        return found
    from litebert.pretraining.run import pretrain, settings_from
    from litebert.runs import read_run
    from litebert.train.metrics import read_metrics

    words = [word for word in settings.rows[engine] if not word.startswith("corpus=")]
    texts = [word.removeprefix("corpus=") for word in settings.rows[engine] if word.startswith("corpus=")]
    run, bound = folder / "run", Bound(seconds=settings.seconds)
    corpora = [Path(text) for text in texts] or [Path(settings.corpus)]
    read = settings_from(settings.preset, words, corpora, run, bound=bound, device=settings.device)
    asked = replace(read, seed=seed, source=settings.source, save_seconds=1e9, begun=begun)
    if settings.compiling == "inside":
        result = pretrain(asked)
    else:
        asked = replace(asked, bound=Bound(seconds=LONG), fit_to=bound)
        result = pretrain(asked, [CompilingOutside(settings.seconds)])
    spent = time.monotonic() - begun
    if not result.step:
        raise InputError(f"the budget of {settings.seconds:g} s was up before the first step; give it longer")
    rows, info = [row for row in read_metrics(run) if "rate" in row], read_run(run)
    (run / MODEL_FOLDER).rename(folder / MODEL_FOLDER)
    shutil.rmtree(run / "checkpoints")
    weights = info.result.get("weights", "last") if info else "last"
    facts = {"steps": result.step, "tokens": rows[-1]["tokens"], "seconds": spent, "ready": rows[0]["seconds"]}
    return {**facts, "status": result.status, "notes": list(result.notes), "weights": weights}


def _held_out(settings: LearningSettings, folder: Path) -> Results:
    import litebert
    from litebert_lab.suite import held_out_scores

    model = litebert.load(folder / MODEL_FOLDER, device=settings.device)
    by_depth = held_out_scores(model, Path(settings.corpus), ())
    return dict(by_depth[model.config.num_layers])


def _blimp(settings: LearningSettings, folder: Path) -> Results:
    import litebert
    from litebert_lab.suite import blimp_scores, read_blimp

    assert settings.blimp is not None
    model = litebert.load(folder / MODEL_FOLDER, device=settings.device)
    paradigms = read_blimp(Path(settings.blimp), settings.pairs)
    shares = blimp_scores(model, paradigms, judge="masked", depth=model.config.num_layers)
    return {"mean": statistics.fmean(shares.values()), "paradigms": shares}


def _task(settings: LearningSettings, folder: Path, task: str, seed: int) -> Results:
    """A task, fine-tuned once: seeds of pretraining are those of fine-tuning, too."""
    from litebert.tasks.finetune import finetune
    from litebert.tasks.prepare import FinetuneSettings
    from litebert.tasks.recipes import read_finetune_recipe
    from litebert.tasks.sources import read_task

    assert settings.glue is not None
    data, out = read_task(task, Path(settings.glue)), folder / task
    shutil.rmtree(out, ignore_errors=True)
    asked = FinetuneSettings(
        model=str(folder / MODEL_FOLDER),
        out=out,
        recipe=read_finetune_recipe("budget", data.name, data.kind, settings.finetune),
        device=settings.device,
        seed=seed,
        watched=False,
    )
    found = finetune(asked, data)
    shutil.rmtree(out)
    return {"metric": data.metrics[0], "score": found.score, "figures": found.figures}


# The table


def learning_report(settings: LearningSettings, out: Path) -> Report:
    """The medians of what is done, with the lowest and the highest seed."""
    done = {
        engine: [read_results(piece_folder(out, engine, seed)) for seed in range(settings.seeds)]
        for engine in settings.engines
    }
    columns = dict(_columns(done))
    table = [["", *columns]]
    data: dict[str, Any] = {}
    for engine, results in done.items():
        cells = [engine]
        for heading, (piece, name, factor) in columns.items():
            values = sorted(factor * found[piece][name] for found in results if name in found.get(piece, {}))
            data.setdefault(engine, {})[heading] = values
            cells.append(_cell(values))
        table.append(cells)
    wanted = len(settings.engines) * settings.seeds * len(settings.pieces())
    finished = sum(piece in found for results in done.values() for found in results for piece in settings.pieces())
    title = f"the same {settings.seconds:g} s of {settings.device}, compiling {settings.compiling}: what is learnt"
    lines = f"{finished} of {wanted} pieces done; medians of {settings.seeds} seeds, lowest and highest in brackets"
    everything = {"settings": asdict(settings), "figures": data, "results": done, "finished": finished, "of": wanted}
    return Report(title=title, sections=[Section(title="", items=[note(lines), Table(rows=table)])], data=everything)


def _columns(done: Mapping[str, Sequence[Results]]) -> Iterator[tuple[str, tuple[str, str, float]]]:
    """Headings with the piece, the figure of it and a factor."""
    fixed: dict[str, tuple[str, str, float]] = {
        "seconds": ("train", "seconds", 1.0),
        "ready after": ("train", "ready", 1.0),
        "Mtokens": ("train", "tokens", 1e-6),
        "held-out loss": ("held_out", "mlm_loss", 1.0),
        "masked words %": ("held_out", "mlm_accuracy", 100.0),
        "order %": ("held_out", "order_accuracy", 100.0),
        "BLiMP": ("blimp", "mean", 100.0),
    }
    everything = [found for results in done.values() for found in results]
    for heading, (piece, name, factor) in fixed.items():
        if any(name in found.get(piece, {}) for found in everything):
            yield heading, (piece, name, factor)
    for piece in dict.fromkeys(piece for found in everything for piece in found if "score" in found[piece]):
        metric = next(found[piece]["metric"] for found in everything if piece in found)
        yield f"{piece} {metric}", (piece, "score", 100.0)


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "-"
    middle = f"{statistics.median(values):.4g}"
    return middle if len(values) == 1 else f"{middle} ({values[0]:.4g} to {values[-1]:.4g})"
