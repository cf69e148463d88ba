"""A bound on how long something may take: what is not finished by then is broken off."""

import contextlib
import signal
import threading
from collections.abc import Iterator


class TooLong(BaseException):
    """Not an Exception, which a compiler might take for its own."""


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Break off what takes longer (where a signal can reach it: in the main thread)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_number: int, _frame: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
