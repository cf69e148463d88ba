"""Being asked to stop: SIGTERM or Ctrl-C ends the run after the step at hand, with everything saved."""

import signal
import sys
import threading
from types import FrameType


class StopSignal:
    """True once the process was asked to stop; a second Ctrl-C stops at once. Inside another, it tells that one."""

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
        print("stopping after this step; the state will be saved (Ctrl-C again to stop at once)", file=sys.stderr)
