"""Where the figures of a run go: ``metrics.jsonl`` (one JSON object a line), ``run.json``, and other tools if asked.

Training rows have ``step``, ``tokens``, ``seconds``, ``loss`` and what else the trainer knows; rows of held-out text
also have ``"split": "held_out"``. A number that is not finite is written as null, which every JSON reader understands.
TensorBoard, Weights & Biases and MLflow are extras, imported where they are used, behind the small interface ``Sink``.
"""

import contextlib
import importlib
import json
import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from litebert.errors import InputError, nearest
from litebert.runs import DISK_FULL, Status, read_run, update_run, write_atomically
from litebert.train.callbacks import Callback

if TYPE_CHECKING:
    from litebert.train.trainer import Trainer

log = logging.getLogger(__name__)

METRICS = "metrics.jsonl"
HELD_OUT = "held_out"
UPDATE_EVERY = 30.0  # seconds between updates of run.json

Row = Mapping[str, float | int | str | None]


class MetricsFile(Callback):
    """Every row to ``metrics.jsonl`` of a run folder; one that is there already is continued."""

    def __init__(self, run: Path) -> None:
        run.mkdir(parents=True, exist_ok=True)
        self.path = run / METRICS
        self._file = self._open()

    def append(self, row: Row) -> None:
        """Add a row; it is with the system, and survives a kill, when this returns."""
        line = _line(row).encode()
        try:
            whole = self._file.write(line) == len(line)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            whole = False
        if not whole:
            raise InputError(
                f"no room left to write {self.path}; states saved before are whole; free some space and continue with "
                "--resume"
            )

    def rewind(self, step: int) -> None:
        """Drop the rows of steps after this one: the run went back to it."""
        rows = [row for row in read_metrics(self.path.parent) if (number(row, "step") or 0) <= step]
        self._file.close()
        write_atomically(self.path, "".join(map(_line, rows)))
        self._file = self._open()

    def _open(self) -> BinaryIO:
        if self.path.exists():
            os.truncate(self.path, self.path.read_bytes().rfind(b"\n") + 1)  # a full disk or a crash left half a row
        # Unbuffered, so that a row is one write: a process that is killed leaves whole rows.
        return self.path.open("ab", buffering=0)

    def on_start(self, trainer: "Trainer") -> None:
        self.rewind(trainer.state.step)  # a process that was killed may have left figures of later steps

    def on_log(self, trainer: "Trainer", row: Row) -> None:
        self.append(row)

    def on_score(self, trainer: "Trainer", figures: Mapping[str, float]) -> None:
        self.append(held_out_row(trainer, figures))

    def on_rollback(self, trainer: "Trainer") -> None:
        self.rewind(trainer.state.step)

    def on_end(self, trainer: "Trainer", status: Status) -> None:
        self._file.close()


def held_out_row(trainer: "Trainer", figures: Mapping[str, float]) -> Row:
    """The row of a held-out score."""
    return {"step": trainer.state.step, "tokens": trainer.state.tokens, **figures, "split": HELD_OUT}


def read_metrics(run: Path) -> list[dict[str, float | int | str | None]]:
    """The rows of a run in the order they were written; a line that is not a whole row is skipped."""
    path, rows = run / METRICS, []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):  # of JSON and of UTF-8
            row = json.loads(line)
            if isinstance(row, dict):
                rows.append(row)
    return rows


def number(row: Row, name: str) -> float | None:
    """A figure of a row; None where it is missing or is not a number."""
    value = row.get(name)
    return value if isinstance(value, int | float) else None


def _line(row: Row) -> str:
    finite = {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in row.items()}
    return json.dumps(finite, allow_nan=False) + "\n"


class RunRecord(Callback):
    """Keeps ``run.json``, which ``litebert runs`` lists, in step with what is known."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self._last: Row = {}
        self._held_out: Row = {}
        self._updated = time.monotonic()

    def on_start(self, trainer: "Trainer") -> None:
        self.on_rollback(trainer)
        self._update("running")

    def on_log(self, trainer: "Trainer", row: Row) -> None:
        self._last = row
        if time.monotonic() - self._updated >= UPDATE_EVERY:
            self._update(None)

    def on_score(self, trainer: "Trainer", figures: Mapping[str, float]) -> None:
        self._held_out = figures
        self._update(None)

    def on_note(self, trainer: "Trainer", sentence: str) -> None:
        known = read_run(self.run)
        if known is not None:
            update_run(self.run, result={"notes": [*known.result.get("notes", ()), sentence]})

    def on_rollback(self, trainer: "Trainer") -> None:
        self._last = {"step": trainer.state.step}

    def on_end(self, trainer: "Trainer", status: Status) -> None:
        self._update(status)

    def _update(self, status: Status | None) -> None:
        if read_run(self.run) is None:
            return
        self._updated = time.monotonic()
        known = {name: self._last[name] for name in ("step", "tokens", "seconds", "loss") if name in self._last}
        scored = {f"{HELD_OUT}_{name}": value for name, value in self._held_out.items() if name != "seconds"}
        update_run(self.run, status=status, result={**known, **scored})


class Sinks(Callback):
    """Every row to the sinks of these names; one that fails is dropped, because no run should die of a lost connection.

    Opened at once: an unknown or missing one is refused before anything begins.
    """

    def __init__(self, names: Sequence[str], run: Path) -> None:
        self._sinks: list[Sink] = []
        for name in names:
            if name not in SINKS:
                raise InputError(f"figures cannot go to '{name}'{nearest(name, SINKS)}")
            try:
                self._sinks.append(SINKS[name](run))
            except InputError:
                raise
            except Exception as error:  # no login, no server, ...: each of them has its own kinds
                raise InputError(f"{name} could not be started: {' '.join(str(error).split())}") from error

    def on_start(self, trainer: "Trainer") -> None:
        if trainer.state.step:
            self.on_rollback(trainer)

    def on_log(self, trainer: "Trainer", row: Row) -> None:
        self._each(lambda sink: sink.log(trainer.state.step, row))

    def on_score(self, trainer: "Trainer", figures: Mapping[str, float]) -> None:
        self.on_log(trainer, held_out_row(trainer, figures))

    def on_rollback(self, trainer: "Trainer") -> None:
        self._each(lambda sink: sink.rewind(trainer.state.step))

    def on_end(self, trainer: "Trainer", status: Status) -> None:
        self._each(lambda sink: sink.close())

    def _each(self, action: Callable[["Sink"], None]) -> None:
        for sink in list(self._sinks):
            try:
                action(sink)
            except Exception as error:
                self._sinks.remove(sink)
                log.warning("%s gets no more figures: %s", type(sink).__name__, " ".join(str(error).split()))


class Sink:
    """Another tool that takes rows of figures. Where nothing can be taken back, repeated steps are drawn again."""

    def __init__(self, run: Path) -> None: ...
    def log(self, step: int, row: Row) -> None: ...
    def rewind(self, step: int) -> None: ...
    def close(self) -> None: ...


class TensorBoard(Sink):
    """Event files in RUN/tensorboard."""

    def __init__(self, run: Path) -> None:
        self._folder = str(run / "tensorboard")
        self._writers = _imported("torch.utils.tensorboard", "tensorboard")
        self._writer = self._writers.SummaryWriter(self._folder)

    def log(self, step: int, row: Row) -> None:
        for name, value in numbers(row).items():
            self._writer.add_scalar(name, value, step)

    def rewind(self, step: int) -> None:
        self._writer.close()
        self._writer = self._writers.SummaryWriter(self._folder, purge_step=step + 1)  # later steps are not shown

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases(Sink):
    """A run of Weights & Biases; where to and as whom is up to its own settings (WANDB_PROJECT, WANDB_MODE...)."""

    def __init__(self, run: Path) -> None:
        wandb = _imported("wandb", "wandb")
        self._run = wandb.init(name=run.name, dir=str(run), id=_fingerprint(run), resume="allow")
        # Its own counter only goes up, and a run that is rolled back does not.
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, row: Row) -> None:
        self._run.log({"step": step, **numbers(row)})

    def close(self) -> None:
        self._run.finish()


class MLflow(Sink):
    """A run of MLflow; the server is the one that MLFLOW_TRACKING_URI names."""

    EXPERIMENT = "litebert"

    def __init__(self, run: Path) -> None:
        self._client = _imported("mlflow", "mlflow").MlflowClient()
        known = self._client.get_experiment_by_name(self.EXPERIMENT)
        experiment = known.experiment_id if known else self._client.create_experiment(self.EXPERIMENT)
        fingerprint = _fingerprint(run) or ""
        old = self._client.search_runs([experiment], f"tags.litebert = '{fingerprint}'") if fingerprint else []
        made = old[0] if old else self._client.create_run(experiment, run_name=run.name, tags={"litebert": fingerprint})
        self._run: str = made.info.run_id
        self._client.update_run(self._run, status="RUNNING")

    def log(self, step: int, row: Row) -> None:
        for name, value in numbers(row).items():
            self._client.log_metric(self._run, name, value, step=step)

    def close(self) -> None:
        self._client.set_terminated(self._run)


SINKS: dict[str, type[Sink]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases, "mlflow": MLflow}


def numbers(row: Row) -> dict[str, float]:
    """The finite figures of a row, named after the split: ``train/loss``, ``held_out/loss``."""
    split = HELD_OUT if row.get("split") == HELD_OUT else "train"
    return {
        f"{split}/{name}": float(value)
        for name, value in row.items()
        if name != "step" and isinstance(value, int | float) and abs(value) < float("inf")
    }


def _imported(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        sentence = f"{extra} is not installed; install it with pip install 'litebert[{extra}]', or do without it"
        raise InputError(sentence) from None


def _fingerprint(run: Path) -> str | None:
    """The permanent name of a run, so that a resumed run continues its curves."""
    info = read_run(run)
    return info.fingerprint or None if info else None
