"""Figures of a run: what is shown, what is kept, and that no sink can take a run down."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from types import SimpleNamespace

import pytest

from litebert.errors import InputError
from litebert.runs import read_run, write_run
from litebert.train import console, metrics
from litebert.train.console import ConsoleLine
from litebert.train.metrics import MetricsFile, RunRecord, Sinks, read_metrics
from litebert.train.plot import Plot
from litebert.train.trainer import TrainState

ROW = {
    "step": 600,
    "tokens": 39321600,
    "seconds": 51.0,
    "loss": 3.2109,
    "mlm_loss": 2.6,
    "order_loss": 0.6109,
    "mlm_accuracy": 0.451,
    "order_accuracy": 0.702,
    "tokens_per_second": 771234.5,
    "mfu": 0.551,
    "rate": 1e-3,
    "progress": 0.3,
}


class Recorder:
    """A sink that remembers, and fails where it is told to."""

    def __init__(self, fail=()):
        self.calls, self.fail = [], fail

    def _take(self, *call):
        self.calls.append(call)
        if call[0] in self.fail:
            raise ConnectionError("the server is gone")

    def log(self, step, row):
        self._take("log", step, row)

    def rewind(self, step):
        self._take("rewind", step)

    def close(self):
        self._take("close")


class Run:
    """Drives callbacks as a trainer would, with rows made by hand."""

    def __init__(self, folder, *names, total=None, live=False):
        reporting = [MetricsFile(folder), Sinks(names, folder), ConsoleLine(live), RunRecord(folder), Plot(folder)]
        self.callbacks, self.state = reporting, TrainState()
        self.settings = SimpleNamespace(bound=SimpleNamespace(steps=total))

    def start(self, step=0):
        self.state.step = step
        self._each("on_start")

    def step(self, row):
        self.state.step, self.state.tokens = row["step"], row.get("tokens", 0)
        self._each("on_log", row)

    def score(self, figures):
        self._each("on_score", figures)

    def rewind(self, step):
        self.state.step = step
        self._each("on_rollback")

    def end(self, status):
        self._each("on_end", status)

    def _each(self, hook, *arguments):
        for callback in self.callbacks:
            getattr(callback, hook)(self, *arguments)


def test_a_plain_line_has_all_there_is_to_know(tmp_path, messages, monkeypatch):
    now = 0.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    run = Run(tmp_path, total=2000)
    run.step({"step": 1, "progress": 0.0})
    now = 51.2
    run.step(ROW)
    assert messages == [
        "30% step 600/2,000 · 771k tokens/s · loss 3.211 · mlm 2.600 (45.1%) · order 0.611 (70.2%) · 55% of peak"
        " · 2 minutes left"
    ]


def test_plain_lines_come_every_ten_seconds_and_at_the_end(tmp_path, messages, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    write_run(tmp_path, "pretrain", {}, status="running")
    run = Run(tmp_path, total=100)
    for step in range(1, 101):
        run.step({"step": step, "progress": step / 100, "loss": 1.0})
        now += 0.5
        assert (read_run(tmp_path).result.get("step") or 0) >= step - 61, "run.json lags by more than half a minute"
    run.end("finished")
    lines = messages
    assert [line.split()[2] for line in lines] == ["1/100", "21/100", "41/100", "61/100", "81/100", "100/100"]
    assert lines[2].endswith("30 seconds left"), "40 steps of 100 took 20 seconds"
    assert len(read_metrics(tmp_path)) == 100, "every row is kept, shown or not"


def test_time_left_is_not_told_by_the_first_thousandth_of_a_run(tmp_path, messages, monkeypatch):
    """While a budget's first steps compile, its clock stands: what they took says nothing about the rest."""
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    run = Run(tmp_path)
    for progress, now in ((0.0, 20.0), (0.0001, 40.0), (0.1, 60.0)):
        clock[0] = now
        run.step({"step": 1, "progress": progress})
    lines = messages
    assert ["left" in line for line in lines] == [False, False, True]


def test_time_left_counts_from_where_this_process_began(tmp_path, messages, monkeypatch):
    now = 0.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now + 100)
    run = Run(tmp_path)
    run.step({"step": 900, "progress": 0.9})
    now = 60.0
    run.step({"step": 910, "progress": 0.91})
    first, second = messages
    assert "left" not in first and second == "91% step 910 · 9 minutes left"


def test_odd_rows_are_shown_all_the_same(tmp_path, messages):
    run = Run(tmp_path)
    run.step({"step": 1, "loss": float("nan"), "mlm_loss": None, "accuracy": 0.5, "span_accuracy": 0.25})
    assert messages == ["0% step 1 · loss nan · span 25.0% · accuracy 50.0%"]


def test_the_loss_of_a_single_task_is_told_once(tmp_path, messages):
    run = Run(tmp_path)
    run.step({"step": 1, "loss": 1.5, "task_loss": 1.5, "task_accuracy": 0.25})
    assert messages == ["0% step 1 · loss 1.500 (25.0%)"]


def test_run_json_follows(tmp_path, messages, pictures):
    write_run(tmp_path, "pretrain", {}, status="running")
    run = Run(tmp_path)
    run.step(ROW)
    run.score({"loss": 3.0, "mlm_accuracy": 0.5})
    info = read_run(tmp_path)
    assert info.status == "running"
    assert info.result == {
        "step": 600,
        "tokens": 39321600,
        "seconds": 51.0,
        "loss": 3.2109,
        "held_out_loss": 3.0,
        "held_out_mlm_accuracy": 0.5,
    }
    run.end("diverged")
    assert read_run(tmp_path).status == "diverged" and (tmp_path / "loss.png").stat().st_size > 10_000
    assert read_metrics(tmp_path)[-1] == {
        "step": 600,
        "tokens": 39321600,
        "loss": 3.0,
        "mlm_accuracy": 0.5,
        "split": "held_out",
    }
    again = Run(tmp_path)
    assert read_run(tmp_path).status == "diverged", "resuming may be refused, and then nothing has changed"
    again.start(300)
    assert read_run(tmp_path).status == "running" and not read_run(tmp_path).ended
    again.end("stopped")
    assert read_run(tmp_path).result["step"] == 300
    assert "step 600: held-out loss 3.000 · mlm 50.0%" in " ".join(messages)


def test_sinks_get_every_row_and_a_failing_one_is_let_go(tmp_path, messages, monkeypatch):
    good, bad = Recorder(), Recorder(fail=("log",))
    monkeypatch.setattr(metrics, "SINKS", {"good": lambda run: good, "bad": lambda run: bad})
    run = Run(tmp_path, "bad", "good")
    for step in (1, 2, 3):
        run.step({"step": step, "loss": 1.0})
    run.rewind(1)
    run.score({"loss": 0.5})
    run.end("finished")
    assert [call[:2] for call in good.calls] == [
        ("log", 1),
        ("log", 2),
        ("log", 3),
        ("rewind", 1),
        ("log", 1),
        ("close",),
    ]
    assert len(bad.calls) == 1 and "gets no more figures: the server is gone" in " ".join(messages)
    assert [row["step"] for row in read_metrics(tmp_path)] == [1, 1]


def test_figures_for_sinks_are_finite_and_named_after_their_split():
    row = {
        "step": 3,
        "loss": 1.5,
        "norm": float("inf"),
        "bad": float("nan"),
        "words": "x",
        "nothing": None,
        "split": "held_out",
    }
    assert metrics.numbers(row) == {"held_out/loss": 1.5}
    assert metrics.numbers({"step": 3, "loss": 1}) == {"train/loss": 1.0}


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_missing_extra_is_named_before_anything_begins(tmp_path, monkeypatch, name):
    module = "torch.utils.tensorboard" if name == "tensorboard" else name
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"{name} is not installed; .*'litebert\[{name}\]'"):
        Sinks([name], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_unknown_sink_and_one_that_does_not_start(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="'wandbb'; did you mean 'wandb'"):
        Sinks(["wandbb"], tmp_path)

    def refuse(run):
        raise RuntimeError("no login\nfound")

    monkeypatch.setitem(metrics.SINKS, "wandb", refuse)
    with pytest.raises(InputError, match="wandb could not be started: no login found"):
        Sinks(["wandb"], tmp_path)


def test_tensorboard_shows_each_step_once_after_going_back(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for resumed in (False, True):
        run = Run(tmp_path, "tensorboard")
        if resumed:
            run.start(5)
        for step in range(6 if resumed else 1, 11):
            run.step({"step": step, "loss": 1 / step})
        run.end("finished")
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("train/loss")] == list(range(1, 11))


LIVE = """
import logging, sys, time
from types import SimpleNamespace
from litebert.terminal import log_to_terminal
from litebert.train.console import ConsoleLine
log_to_terminal()
line, trainer = ConsoleLine(), SimpleNamespace(settings=SimpleNamespace(bound=SimpleNamespace(steps=2000)))
line.on_start(trainer)
time.monotonic = lambda: now
for step, now in ((1, 0.0), (600, 51.4)):
    line.on_log(trainer, ROW | {"step": step, "progress": step / 2000})
logging.getLogger("litebert.train").info("a sentence")
if sys.argv[1:] == ["fail"]:
    raise SystemExit(3)
line.on_end(trainer, "finished")
"""


def on_terminal(width, *words):
    """What a process writes to a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, width, 0, 0))
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("COLUMNS", None)
    code = LIVE.replace("ROW", repr(ROW))
    process = subprocess.Popen([sys.executable, "-c", code, *words], stderr=theirs, env=environment)
    os.close(theirs)
    written = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:
            break
        if not data:
            break
        written += data
    os.close(ours)
    process.wait()
    return written.decode()


def test_on_a_terminal_one_line_fits_whatever_its_width():
    wide, narrow = on_terminal(150), on_terminal(70, "fail")
    assert (
        "30% step 600/2,000 · 771k tokens/s · loss 3.211 · mlm 2.600 (45.1%) · order 0.611 (70.2%) · 55% of peak · 2 m"
        in wide
    )
    assert "30% step 600/2,000 · 771k tokens/s · loss 3.211 · 2 minutes left" in narrow
    assert "a sentence" in wide and "order" not in narrow
    for text in (wide, narrow):
        assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor stayed hidden"
