"""What a verb shows a person at a terminal: how far it is, that it waits for texts, tables as wide as the window."""

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY = 0.2  # seconds
WIDEST = 120  # columns that a table or a paragraph takes, however wide the window is


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A function that shows a few words in place of those before; silent where nobody watches."""
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


def text_width() -> int:
    """Columns to write in: those of the terminal, or as many as we ever take where there is none."""
    return min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns)


def tell_typing() -> None:
    """Where texts are read from a keyboard, say so, or a verb that waits for them would look as if it hung."""
    if sys.stdin.isatty():
        print("type texts, one a line, and end with Ctrl-D", file=sys.stderr, flush=True)
