"""One line on standard error that says how far a pass over a text is; silent where nobody watches."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY = 0.2  # seconds


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A function that shows a few words in place of those before."""
    shown = 0.0
    watched = sys.stderr.isatty()

    def say(words: str) -> None:
        nonlocal shown
        if watched and time.monotonic() - shown >= EVERY:
            shown = time.monotonic()
            print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)

    try:
        yield say
    finally:
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
