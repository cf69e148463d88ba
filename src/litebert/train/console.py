"""What a person sees of a run while it goes: on a terminal one live line, elsewhere a log line every ten seconds.

Messages of ``logging`` appear above the live line, because both use the one console of ``litebert.terminal``.
"""

import atexit
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.live import Live
from rich.text import Text

from litebert.parameters import format_duration
from litebert.runs import Status
from litebert.terminal import LIVE, console, expect_silence
from litebert.train.callbacks import Callback
from litebert.train.metrics import Row, number

if TYPE_CHECKING:
    from litebert.train.trainer import Trainer

log = logging.getLogger(__name__)

EVERY = 10.0  # seconds between plain lines
REFRESH = 0.25  # seconds between changes of the live line
MIN_PROGRESS = 0.01  # of a run, before the time left is shown: the first steps of a budget count next to nothing
SEPARATOR = " · "
TASK = "task"  # the part of the loss that fine-tuning has


class ConsoleLine(Callback):
    """Shows ``progress``, ``tokens_per_second``, ``mfu`` (share of the hardware's peak, 0 to 1), losses and accuracies.

    ``live`` is None to look whether there is a terminal.
    """

    def __init__(self, live: bool | None = None) -> None:
        self._console = console()
        self._live: Live | None = None
        if self._console.is_terminal if live is None else live:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._last_shown = 0.0  # on the clock
        self._begun: tuple[float, float] | None = None  # progress and clock of the first row
        self._last: Row = {}
        self._shown: Row = self._last

    def on_start(self, trainer: "Trainer") -> None:
        if self._live:
            self._live.start()
            atexit.register(self._live.stop)  # it hides the cursor, which must come back whatever happens

    def on_log(self, trainer: "Trainer", row: Row) -> None:
        self._last = row
        now = time.monotonic()
        if self._begun is None:
            self._begun = (number(row, "progress") or 0.0, now)
        if now - self._last_shown >= (REFRESH if self._live else EVERY):
            self._last_shown = now
            self._show(row, trainer.settings.bound.steps)

    def on_score(self, trainer: "Trainer", figures: Mapping[str, float]) -> None:
        log.info("step %s: held-out %s", f"{trainer.state.step:,}", in_words(figures))

    def on_rollback(self, trainer: "Trainer") -> None:
        self._begun = None
        self._last = self._shown = {}

    def on_end(self, trainer: "Trainer", status: Status) -> None:
        if self._last is not self._shown and not self._live:
            self._show(self._last, trainer.settings.bound.steps)
        if self._live:
            self._live.stop()

    def _show(self, row: Row, steps: int | None) -> None:
        self._shown = row
        parts = self._parts(row, steps)
        if self._live is None:
            log.info("%s", SEPARATOR.join(parts))
            expect_silence(2 * EVERY)
            return
        expect_silence(LIVE)
        width = self._console.width - 1
        while len(parts) > 2 and len(SEPARATOR.join(parts)) > width:
            parts.pop(-2)  # the time left, which comes last, is worth more than details
        text = Text(SEPARATOR.join(parts), no_wrap=True, overflow="ellipsis")
        self._live.update(text, refresh=True)

    def _parts(self, row: Row, steps: int | None) -> list[str]:
        """The line, in pieces from the most to the least wanted; the time left is the last."""
        progress = number(row, "progress") or 0.0
        parts = [f"{progress:.0%} step {row.get('step', 0):,}" + (f"/{steps:,}" if steps else "")]
        speed, share = number(row, "tokens_per_second"), number(row, "mfu")
        if speed is not None:
            parts.append(f"{_short(speed)} tokens/s")
        parts += _figures(row)
        if share is not None:
            parts.append(f"{share:.0%} of peak")
        if self._begun is not None and progress - self._begun[0] >= MIN_PROGRESS:
            rate = (progress - self._begun[0]) / max(time.monotonic() - self._begun[1], 1e-9)
            parts.append(f"{format_duration(round(max(1.0 - progress, 0.0) / rate))} left")
        return parts


def in_words(row: Row) -> str:
    """All figures of a row: ``loss 3.211 · mlm 2.600 (45.1%) · f1 0.912``."""
    shown = ("step", "tokens", "seconds", "loss", "accuracy", "depth")
    scores = [
        f"{name.replace('_', ' ')} {value:.3f}"
        for name, value in row.items()
        if isinstance(value, int | float) and name not in shown and not name.endswith(("_loss", "_accuracy"))
    ]
    return SEPARATOR.join([*_figures(row), *scores])


def _figures(row: Row) -> list[str]:
    """Loss, then each part with its loss and accuracy: ``loss 3.211``, ``mlm 2.600 (45.1%)``."""
    numbers = {name: float(value) for name, value in row.items() if isinstance(value, int | float)}
    endings = ("_loss", "_accuracy")
    parts = dict.fromkeys(name.removesuffix(end) for name in numbers for end in endings if name.endswith(end))
    figures = [f"loss {numbers['loss']:.3f}"] if "loss" in numbers else []
    if figures and [*parts] == [TASK]:  # the loss is that of the one task
        right = numbers.get(f"{TASK}_accuracy")
        return figures if right is None else [f"{figures[0]} ({right:.1%})"]
    for part in parts:
        loss, right = numbers.get(f"{part}_loss"), numbers.get(f"{part}_accuracy")
        figure = [f"{loss:.3f}"] if loss is not None else []
        figure += [f"({right:.1%})" if loss is not None else f"{right:.1%}"] if right is not None else []
        figures.append(" ".join([part.replace("_", " "), *figure]))
    return figures + ([f"accuracy {numbers['accuracy']:.1%}"] if "accuracy" in numbers else [])


def _short(number: float) -> str:
    """A large number to three digits: ``770k``, ``1.2M``."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"
