"""Runs that several processes divide among themselves: a run is its process's as long as that holds a lock on a file.

The lock dies with the process, however that ends; another one then takes the run over.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

CLAIMED = ".claim"
WAIT = 0.5  # seconds between looks at what other processes are at


@contextlib.contextmanager
def claimed(folder: Path, name: str) -> Iterator[bool]:
    """Whether the run is ours for as long as this lasts; False where another process has it."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / f"{name}{CLAIMED}", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        yield _lock(handle, fcntl.LOCK_EX)
    finally:
        os.close(handle)


def others_at_work(folder: Path, *, own: str = "", of: str = "") -> bool:
    """Whether any run but our own is claimed; ``of`` is what the names of those that count begin with."""
    for path in folder.glob(f"{of}*{CLAIMED}"):
        if path.name == f"{own}{CLAIMED}":
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
