"""Runs that several processes divide among themselves: a run is its process's as long as that holds a lock on a file.

The lock dies with the process, however that ends; another one then takes the run over.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

from litebert.errors import InputError
from litebert.runs import RunLock, is_in_use

CLAIMED = ".claim"


class Claim:
    """``with Claim(path) as ours``: whether the run is ours for as long as this lasts; not where another has it.

    With ``wait`` it is ours once the other one has let go.
    """

    def __init__(self, path: Path, *, wait: bool = False) -> None:
        self.path, self.wait = path, wait
        self._handle = -1

    def __enter__(self) -> bool:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        if self.wait:
            fcntl.flock(self._handle, fcntl.LOCK_EX)
            return True
        return _lock(self._handle, fcntl.LOCK_EX)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._handle)


@contextlib.contextmanager
def seen_at_work(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder that several processes share, unless one of them does, so that it counts as running."""
    with contextlib.ExitStack() as stack:
        if not is_in_use(folder):
            with contextlib.suppress(InputError):  # another one was a moment earlier
                stack.enter_context(RunLock(folder))
        yield


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
