"""When a run ends: its clock, and being asked to stop.

SIGTERM or Ctrl-C ends a run after the step at hand, with everything saved.
"""

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Literal

log = logging.getLogger(__name__)

SCORING_SHARE = 0.05  # of the time so far that held-out scores may have taken


class Clock:
    """``begun`` is the monotonic clock when the command was given; None: the run begins when the clock is started."""

    def __init__(self, begun: float | None = None) -> None:
        self._begun = begun
        self._zero = 0.0
        self._longest = {"start": 0.0, "score": 0.0, "save": 0.0}  # seconds that one of them took
        self._scoring = 0.0

    def start(self, before: float) -> None:
        """Continue from the seconds that a resumed run had ``before``."""
        now = time.monotonic()
        begun = now if self._begun is None else self._begun
        self._longest["start"] = now - begun
        self._zero = begun - before

    def seconds(self) -> float:
        """Since the run began, not counting the time between its processes."""
        return time.monotonic() - self._zero

    @contextlib.contextmanager
    def timing(self, what: Literal["score", "save"]) -> Iterator[None]:
        """Remember how long it takes."""
        begun = time.monotonic()
        yield
        took = time.monotonic() - begun
        self._longest[what] = max(self._longest[what], took)
        self._scoring += took if what == "score" else 0.0

    def may_score(self, seconds: float) -> bool:
        """Whether held-out scores have taken only a small share of ``seconds`` of training."""
        return self._scoring <= SCORING_SHARE * seconds

    def reserve(self, budget: float | None) -> float:
        """Seconds of a budget that the end will need: the last score and state, then the model and the picture."""
        picture = 0.25 * self._longest["start"]  # mostly imports, as at the start; the share was seen on a CPU
        return self._longest["score"] + 2 * self._longest["save"] + min(picture, 0.02 * (budget or 0.0))


class StopSignal:
    """True once the process was asked to stop; a second Ctrl-C stops at once. Nested, it passes that on outwards."""

    def __init__(self) -> None:
        self._asked = False
        self._before: dict[int, object] = {}

    def __bool__(self) -> bool:
        return self._asked

    def __enter__(self) -> "StopSignal":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
            outer = getattr(handler, "__self__", None)
            if self._asked and isinstance(outer, StopSignal):
                outer._asked = True  # a run that was at its end has finished; what comes after it must not begin

    def _ask(self, number: int, _frame: FrameType | None) -> None:
        if self._asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._asked = True
        log.warning("stopping after this step; the state will be saved (Ctrl-C again to stop at once)")
