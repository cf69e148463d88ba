"""What a command shows a person at a terminal: log messages, progress, a prompt for typed text, the width to use.

The library reports through ``logging`` under ``litebert``; the command line installs the handler below, which prints
messages without decoration. A live progress line uses the same console, so that messages appear above it. Where nothing
has been said for a while, the heartbeat says what is being done: what is slow may be an import, a read or a first step.
"""

import logging
import math
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

EVERY = 0.2  # seconds
PATIENCE = 2.0  # seconds before a bar is shown, or the heartbeat speaks up
LINES = 10.0  # seconds between lines that say no more than that work goes on
MOST_SILENCE = 60.0  # seconds between them when a command has taken minutes
LIVE = 60.0  # seconds for which what is on the screen says enough
# Control characters, those that turn the direction of writing, and halves of characters.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
WIDEST = 120  # columns that a table or a paragraph takes, however wide the window is


@cache
def console() -> "Console":
    """The one console on standard error, shared by log messages and live lines."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


class TerminalHandler(logging.Handler):
    """Prints log messages on standard error: information as it is, anything worse with its level in front."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message, above a live line where there is one."""
        text = visible(self.format(record), keep="\n\t")
        if record.levelno > logging.INFO:
            text = f"{record.levelname.lower()}: {text}"
        if sys.stderr.isatty():
            from rich.text import Text

            if _line:
                _clear_line()
            console().print(Text(text))
        else:
            print(text, file=sys.stderr, flush=True)
        expect_silence(PATIENCE)


def visible(text: str, keep: str = "") -> str:
    """A message in one piece: what steers a terminal, which data and names may hold, as a programmer would write it."""
    return CONTROL.sub(lambda found: found[0] if found[0] in keep else ascii(found[0])[1:-1], text)


def log_to_terminal(level: int = logging.INFO, package: str = "litebert") -> None:
    """Print the messages of a package; called once by the command line, never by the library."""
    log = logging.getLogger(package)
    log.setLevel(level)
    if not any(isinstance(handler, TerminalHandler) for handler in log.handlers):
        log.addHandler(TerminalHandler())


_doing: list[Callable[[], str]] = []  # words for the heartbeat; the last are those of the innermost work
_due = 0.0  # on the clock: when it says them


@contextmanager
def heartbeat(words: Callable[[], str]) -> Iterator[None]:
    """Log ``words`` while nothing else is said: after two seconds, then every ten, in long commands every minute."""
    _doing.append(words)
    done = threading.Event()
    if len(_doing) == 1:
        expect_silence(PATIENCE)
        threading.Thread(target=_beat, args=(done,), daemon=True).start()
    try:
        yield
    finally:
        done.set()
        _doing.remove(words)


def expect_silence(seconds: float) -> None:
    """Something was just said, so for this long nothing else needs to be."""
    global _due
    _due = time.monotonic() + seconds


def _beat(done: threading.Event) -> None:
    begun = time.monotonic()
    while not done.wait(EVERY):
        words = _doing[-1]() if _doing and time.monotonic() >= _due else ""
        if words:
            elapsed = time.monotonic() - begun
            logging.getLogger("litebert").info("%s (%.0f s so far)", words, elapsed)
            expect_silence(min(max(LINES, elapsed / 4), MOST_SILENCE))


_line = False  # whether words of ``progress`` stand where the next message goes


def _clear_line() -> None:
    global _line
    print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    _line = False


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A function that shows a few words in place of those before; where nobody watches, the heartbeat says them."""
    shown, last = 0.0, ""
    watched = sys.stderr.isatty()

    def show(words: str) -> None:
        global _line
        nonlocal shown, last
        last = words
        if watched and time.monotonic() - shown >= EVERY:
            shown, _line = time.monotonic(), True
            expect_silence(LIVE)
            print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)

    try:
        with nullcontext() if watched else heartbeat(lambda: last or "working"):
            yield show
    finally:
        if shown:
            expect_silence(PATIENCE)
            _clear_line()


@contextmanager
def stages() -> Iterator[Callable[[str], None]]:
    """A function that reports what is being done ("counting: 10 MB"): live on a terminal, else logged.

    Elsewhere a line is logged for each new stage, the part before the colon, and every ten seconds.
    """
    if sys.stderr.isatty():
        with console().status("starting") as status:
            expect_silence(math.inf)
            yield status.update
        expect_silence(PATIENCE)
        return
    last, shown = "starting", 0.0

    def report(message: str) -> None:
        nonlocal last, shown
        stage, before = message.split(":")[0], last.split(":")[0]
        last = message
        if stage != before or time.monotonic() - shown > LINES:
            logging.getLogger("litebert").info(message)
            shown = time.monotonic()

    with heartbeat(lambda: last):
        yield report


def text_width() -> int:
    """Columns to write in: those of the terminal, or as many as we ever take where there is none."""
    return min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns)


def prompt_for_texts() -> None:
    """Where texts are read from a keyboard, print a prompt: a command that waits silently looks as if it hung."""
    if sys.stdin.isatty():
        expect_silence(math.inf)
        print("type texts, one a line, and end with Ctrl-D", file=sys.stderr, flush=True)


class ProgressBar:
    """A bar with the time left, on standard error or in a notebook.

    ``show`` None: only where a person watches, and only for work that lasts longer than ``PATIENCE`` seconds.
    """

    def __init__(self, what: str, total: int, show: bool | None = None) -> None:
        self.what, self.total, self.show = what, total, show
        self._begun = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            expect_silence(PATIENCE)

    def update(self, done: int) -> None:
        """Show how much is done."""
        if self._bar is None and self._is_due():
            self._start()
        if self._bar is not None:
            expect_silence(LIVE)
            self._bar.update(self._task, completed=done)

    def _start(self) -> None:
        from rich.errors import LiveError
        from rich.progress import Progress

        bar = Progress(console=console(), transient=self.show is None)
        self._task = bar.add_task(self.what, total=self.total)
        try:
            bar.start()
        except LiveError:  # another thread, or another command, shows something
            self.show = False
        else:
            self._bar = bar

    def _is_due(self) -> bool:
        if self.show is not None:
            return self.show
        if time.monotonic() - self._begun <= PATIENCE or find_spec("rich") is None:  # litebert-runtime lacks it
            return False
        return console().is_terminal or console().is_jupyter
