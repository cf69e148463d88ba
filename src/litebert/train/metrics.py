"""The figures of a run: ``metrics.jsonl``, one JSON object a line, written as they come.

Training rows have ``step``, ``tokens``, ``seconds``, ``loss`` and what else the loop knows; rows of held-out text also
have ``"split": "held_out"``. A number that is not finite is written as null, which every JSON reader understands.
"""

import contextlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from litebert.errors import InputError
from litebert.runs import DISK_FULL, write_atomically

METRICS = "metrics.jsonl"
HELD_OUT = "held_out"

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
                f"no room left to write {self.path}; the states saved before are whole; free some space and go on with "
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
