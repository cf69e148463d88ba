"""The figures of a run: ``metrics.jsonl``, one JSON object a line, written as they come; and ``run.json``.

Training rows have ``step``, ``tokens``, ``seconds``, ``loss`` and what else the trainer knows; rows of held-out text
also have ``"split": "held_out"``. A number that is not finite is written as null, which every JSON reader understands.
"""

import contextlib
import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from litebert.errors import InputError
from litebert.runs import DISK_FULL, Status, read_run, update_run, write_atomically
from litebert.train.callbacks import Callback

if TYPE_CHECKING:
    from litebert.train.trainer import Trainer

METRICS = "metrics.jsonl"
HELD_OUT = "held_out"
UPDATE_EVERY = 30.0  # seconds between updates of run.json

Row = Mapping[str, float | int | str | None]


class Metrics:
    """The growing file of a run's figures; going on with an old one is the normal case."""

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
        rows = [row for row in read_metrics(self.path.parent) if _step(row) <= step]
        self._file.close()
        write_atomically(self.path, "".join(_line(row) for row in rows))
        self._file = self._open()

    def close(self) -> None:
        """Nothing more is coming."""
        self._file.close()

    def _open(self) -> BinaryIO:
        # Unbuffered, so that a row is one write: a process that is killed leaves whole rows.
        file = self.path.open("ab", buffering=0)
        if self.path.stat().st_size and not _ends_with_newline(self.path):
            keep = self.path.read_bytes().rfind(b"\n") + 1
            os.truncate(self.path, keep)  # half a row, of a full disk or a lost machine
        return file


def held_out_row(trainer: "Trainer", figures: Mapping[str, float]) -> Row:
    """The row of a held-out score."""
    return {"step": trainer.state.step, "tokens": trainer.state.tokens, **figures, "split": HELD_OUT}


class MetricsFile(Callback):
    """Every row to ``metrics.jsonl`` of a run folder."""

    def __init__(self, run: Path) -> None:
        self.metrics = Metrics(run)

    def on_start(self, trainer: "Trainer") -> None:
        self.metrics.rewind(trainer.state.step)  # a process that was killed may have left figures of later steps

    def on_log(self, trainer: "Trainer", row: Row) -> None:
        self.metrics.append(row)

    def on_score(self, trainer: "Trainer", figures: Mapping[str, float]) -> None:
        self.metrics.append(held_out_row(trainer, figures))

    def on_rollback(self, trainer: "Trainer") -> None:
        self.metrics.rewind(trainer.state.step)

    def on_end(self, trainer: "Trainer", status: Status) -> None:
        self.metrics.close()


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


def read_metrics(run: Path) -> list[dict[str, float | int | str | None]]:
    """The rows of a run in the order they were written; a line that is not a whole row is passed over."""
    rows = []
    try:
        data = (run / METRICS).read_bytes()
    except FileNotFoundError:
        return []
    for line in data.splitlines():
        with contextlib.suppress(ValueError):  # of JSON and of UTF-8
            row = json.loads(line)
            if isinstance(row, dict):
                rows.append(row)
    return rows


def _line(row: Row) -> str:
    return json.dumps({name: _finite(value) for name, value in row.items()}, allow_nan=False) + "\n"


def _finite(value: float | int | str | None) -> float | int | str | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _step(row: Row) -> float:
    step = row.get("step")
    return step if isinstance(step, int | float) else 0


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
