"""Runs that several processes divide among themselves: a run is its process's as long as that holds a lock on a file.

The lock dies with the process, however that ends; another one then takes the run over.
"""

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

CLAIMED = ".claim"


class Claim:
    """``with Claim(path) as ours``: whether the run is ours for as long as this lasts; not where another has it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = -1

    def __enter__(self) -> bool:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        return _lock(self._handle, fcntl.LOCK_EX)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._handle)


def others_at_work(paths: Iterable[Path], own: Path | None = None) -> bool:
    """Whether any of these runs, but our own, is claimed."""
    for path in paths:
        if path == own:
            continue
        handle = os.open(path, os.O_RDONLY)
        try:
            if not _lock(handle, fcntl.LOCK_SH):
                return True
        finally:
            os.close(handle)
    return False


def _lock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
