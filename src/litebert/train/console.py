"""What a person sees of a run while it goes, and where its figures are kept.

On a terminal one live line; elsewhere a plain line every ten seconds or so. Every row goes to ``metrics.jsonl`` and to
the sinks asked for; at the end the curves are drawn as a picture.
"""

import atexit
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from litebert.durations import format_duration
from litebert.runs import Status, read_run, update_run
from litebert.train.metrics import HELD_OUT, Metrics, Row
from litebert.train.plot import PICTURE, draw_run
from litebert.train.sinks import Sink, open_sinks

EVERY = 10.0  # seconds between plain lines
NOTE_EVERY = 30.0  # seconds between updates of run.json
REFRESH = 0.25  # seconds between changes of the live line
LEAST_PROGRESS = 0.01  # of a run, before the time left is told: the first steps of a budget count next to nothing
SEPARATOR = " · "
TASK = "task"  # the part of the loss that fine-tuning has


class Watch:
    """Follows one run. ``total`` is its number of steps, where that is known.

    Rows need ``step``; shown are ``progress``, ``tokens_per_second``, ``mfu`` (share of the hardware's peak, 0 to 1),
    ``loss``, ``*_loss``, ``*_accuracy``. ``live`` is None to look whether there is a terminal.
    """

    def __init__(
        self,
        run: Path,
        *,
        total: int | None = None,
        live: bool | None = None,
        sinks: Sequence[str] = (),
        unigram: float | None = None,
    ) -> None:
        self.run, self.total, self.unigram = run, total, unigram
        self._sinks: list[Sink] = open_sinks(sinks, run)  # first: it may refuse
        self.metrics = Metrics(run)
        self._console = Console(stderr=True, highlight=False)
        self._live: Live | None = None
        if self._console.is_terminal if live is None else live:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
            atexit.register(self._live.stop)  # it hides the cursor, which must come back whatever happens
        self._told = 0.0
        self._held_out: Row = {}
        self._begun: tuple[float, float] | None = None  # progress and clock of the first row
        self._last: Row = {}
        self._shown: Row = self._last
        self._noted = time.monotonic()
        self._going_on = False

    def step(self, row: Row) -> None:
        """Take a row of training figures."""
        self._go_on()
        self.metrics.append(row)
        self._log(row)
        self._last = row
        now = time.monotonic()
        if self._begun is None:
            self._begun = (_progress(row), now)
        if now - self._told >= (REFRESH if self._live else EVERY):
            self._told = now
            self._show(row)
        if now - self._noted >= NOTE_EVERY:
            self._note(None)

    def held_out(self, row: Row) -> None:
        """Take a row of figures on held-out text."""
        row = {**row, "split": HELD_OUT}
        self.metrics.append(row)
        self._log(row)
        self._held_out = row
        self._note(None)
        self.say(f"step {row.get('step', 0):,}: held-out {in_words(row)}")

    def say(self, sentence: str) -> None:
        """A sentence that stays on the screen."""
        if self._live:
            self._console.print(Text(sentence))
        else:
            print(sentence, file=sys.stderr, flush=True)

    def note(self, sentence: str) -> None:
        """A sentence that ``run.json`` keeps, too."""
        self.say(sentence)
        known = read_run(self.run)
        if known is not None:
            update_run(self.run, result={"notes": [*known.result.get("notes", ()), sentence]})

    def rewind(self, step: int) -> None:
        """The run went back to this step: forget what came after it."""
        self.metrics.rewind(step)
        self._begun = None
        self._last = {"step": step}
        self._go_on()
        self._shown = self._last
        self._with_sinks(lambda sink: sink.rewind(step))

    def close(self, status: Status) -> None:
        """The run has ended like this; the picture is drawn and ``run.json`` says so."""
        if self._last is not self._shown and not self._live:
            self._show(self._last)
        if self._live:
            self._live.stop()
        self.metrics.close()
        self._with_sinks(lambda sink: sink.close())
        self._note(status)
        self._draw()

    def _go_on(self) -> None:
        """A run that is resumed is running again, once it has its state or takes a step: before, it may be refused."""
        if not self._going_on:
            self._going_on = True
            self._note("running")

    def _log(self, row: Row) -> None:
        step = row.get("step")
        number = int(step) if isinstance(step, int | float) else 0
        self._with_sinks(lambda sink: sink.log(number, row))

    def _with_sinks(self, action: Callable[[Sink], None]) -> None:
        """Do something with every sink; one that fails is let go, because no run should die of a lost connection."""
        for sink in list(self._sinks):
            try:
                action(sink)
            except Exception as error:
                self._sinks.remove(sink)
                self.say(f"{type(sink).__name__} gets no more figures: {' '.join(str(error).split())}")

    def _note(self, status: Status | None) -> None:
        """Keep ``run.json``, which ``litebert runs`` lists, in step with what is known."""
        if read_run(self.run) is None:
            return
        self._noted = time.monotonic()
        known = {name: self._last[name] for name in ("step", "tokens", "seconds", "loss") if name in self._last}
        scored = {
            f"{HELD_OUT}_{name}": value
            for name, value in self._held_out.items()
            if name not in ("step", "tokens", "seconds", "split")
        }
        update_run(self.run, status=status, result={**known, **scored})

    def _draw(self) -> None:
        try:
            draw_run(self.run, unigram=self.unigram)
        except OSError as error:  # the run is safe; a picture can be drawn again
            self.say(f"could not draw {self.run / PICTURE}: {error.strerror or error}")

    def _show(self, row: Row) -> None:
        self._shown = row
        parts = self._parts(row)
        if self._live is None:
            print(SEPARATOR.join(parts), file=sys.stderr, flush=True)
            return
        width = self._console.width - 1
        while len(parts) > 2 and len(SEPARATOR.join(parts)) > width:
            parts.pop(-2)  # the time left, which comes last, is worth more than details
        text = Text(SEPARATOR.join(parts), no_wrap=True, overflow="ellipsis")
        self._live.update(text, refresh=True)

    def _parts(self, row: Row) -> list[str]:
        """The line, in pieces from the most to the least wanted; the time left is the last."""
        progress = _progress(row)
        of_all = f"/{self.total:,}" if self.total else ""
        parts = [f"{progress:.0%} step {row.get('step', 0):,}{of_all}"]
        speed, share = row.get("tokens_per_second"), row.get("mfu")
        if isinstance(speed, int | float):
            parts.append(f"{_short(speed)} tokens/s")
        parts += _figures(row)
        if isinstance(share, int | float):
            parts.append(f"{share:.0%} of peak")
        left = self._seconds_left(progress)
        return parts if left is None else [*parts, f"{format_duration(round(left))} left"]

    def _seconds_left(self, progress: float) -> float | None:
        if self._begun is None or progress - self._begun[0] < LEAST_PROGRESS:
            return None
        rate = (progress - self._begun[0]) / max(time.monotonic() - self._begun[1], 1e-9)
        return max(1.0 - progress, 0.0) / rate


def _progress(row: Row) -> float:
    progress = row.get("progress")
    return float(progress) if isinstance(progress, int | float) else 0.0


def in_words(row: Row) -> str:
    """All figures of a row: ``loss 3.211 · mlm 2.600 (45.1%) · f1 0.912``."""
    return SEPARATOR.join([*_figures(row), *_scores(row)])


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


def _scores(row: Row) -> list[str]:
    """Figures of a task that are neither losses nor accuracies: ``f1 0.912``."""
    others = {
        name: value
        for name, value in row.items()
        if name not in ("step", "tokens", "seconds", "loss", "accuracy", "depth")
    }
    return [
        f"{name.replace('_', ' ')} {value:.3f}"
        for name, value in others.items()
        if isinstance(value, int | float) and not name.endswith(("_loss", "_accuracy"))
    ]


def _short(number: float) -> str:
    """A large number to three digits: ``770k``, ``1.2M``."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"
