"""The watch: what it shows, what it keeps, and that nothing of it can take a run down."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest

from litebert.errors import InputError
from litebert.runs import read_run, write_run
from litebert.train import sinks
from litebert.train import watch as watching
from litebert.train.metrics import read_metrics
from litebert.train.watch import Watch

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


def test_a_plain_line_has_all_there_is_to_know(tmp_path, capsys, monkeypatch):
    now = 0.0
    monkeypatch.setattr(watching.time, "monotonic", lambda: now)
    watch = Watch(tmp_path, total=2000, live=False)
    watch.step({"step": 1, "progress": 0.0})
    now = 51.2
    watch.step(ROW)
    assert capsys.readouterr().err == (
        "30% step 600/2,000 · 771k tokens/s · loss 3.211 · mlm 2.600 (45.1%) · order 0.611 (70.2%) · 55% of peak"
        " · 2 minutes left\n"
    )


def test_plain_lines_come_every_ten_seconds_and_at_the_end(tmp_path, capsys, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(watching.time, "monotonic", lambda: now)
    write_run(tmp_path, "pretrain", {}, status="running")
    watch = Watch(tmp_path, total=100, live=False)
    for step in range(1, 101):
        watch.step({"step": step, "progress": step / 100, "loss": 1.0})
        now += 0.5
        assert (read_run(tmp_path).result.get("step") or 0) >= step - 61, "run.json lags by more than half a minute"
    watch.close("finished")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[2] for line in lines] == ["1/100", "21/100", "41/100", "61/100", "81/100", "100/100"]
    assert lines[2].endswith("30 seconds left"), "40 steps of 100 took 20 seconds"
    assert len(read_metrics(tmp_path)) == 100, "every row is kept, shown or not"


def test_time_left_is_not_told_by_the_first_thousandth_of_a_run(tmp_path, capsys, monkeypatch):
    """While a budget's first steps compile, its clock stands: what they took says nothing about the rest."""
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    watch = Watch(tmp_path, live=False)
    for progress, now in ((0.0, 20.0), (0.0001, 40.0), (0.1, 60.0)):
        clock[0] = now
        watch.step({"step": 1, "progress": progress})
    lines = capsys.readouterr().err.splitlines()
    assert ["left" in line for line in lines] == [False, False, True]


def test_time_left_counts_from_where_this_process_began(tmp_path, capsys, monkeypatch):
    now = 0.0
    monkeypatch.setattr(watching.time, "monotonic", lambda: now + 100)
    watch = Watch(tmp_path, live=False)
    watch.step({"step": 900, "progress": 0.9})
    now = 60.0
    watch.step({"step": 910, "progress": 0.91})
    first, second = capsys.readouterr().err.splitlines()
    assert "left" not in first and second == "91% step 910 · 9 minutes left"


def test_odd_rows_are_shown_all_the_same(tmp_path, capsys):
    watch = Watch(tmp_path, live=False)
    watch.step({"step": 1, "loss": float("nan"), "mlm_loss": None, "accuracy": 0.5, "span_accuracy": 0.25})
    assert capsys.readouterr().err == "0% step 1 · loss nan · span 25.0% · accuracy 50.0%\n"


def test_the_loss_of_a_single_task_is_told_once(tmp_path, capsys):
    watch = Watch(tmp_path, live=False)
    watch.step({"step": 1, "loss": 1.5, "task_loss": 1.5, "task_accuracy": 0.25})
    assert capsys.readouterr().err == "0% step 1 · loss 1.500 (25.0%)\n"


def test_run_json_follows(tmp_path, capsys):
    write_run(tmp_path, "pretrain", {}, status="running")
    watch = Watch(tmp_path, live=False)
    watch.step(ROW)
    watch.held_out({"step": 600, "loss": 3.0, "mlm_accuracy": 0.5})
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
    watch.close("diverged")
    assert read_run(tmp_path).status == "diverged" and (tmp_path / "loss.png").stat().st_size > 10_000
    assert read_metrics(tmp_path)[-1] == {"step": 600, "loss": 3.0, "mlm_accuracy": 0.5, "split": "held_out"}
    again = Watch(tmp_path, live=False)
    assert read_run(tmp_path).status == "diverged", "resuming may be refused, and then nothing has changed"
    again.rewind(300)
    assert read_run(tmp_path).status == "running" and not read_run(tmp_path).ended
    again.close("stopped")
    assert read_run(tmp_path).result["step"] == 300
    assert "step 600: held-out loss 3.000 · mlm 50.0%" in capsys.readouterr().err


def test_sinks_get_every_row_and_a_failing_one_is_let_go(tmp_path, capsys, monkeypatch):
    good, bad = Recorder(), Recorder(fail=("log",))
    monkeypatch.setattr(sinks, "SINKS", {"good": lambda run: good, "bad": lambda run: bad})
    watch = Watch(tmp_path, live=False, sinks=["bad", "good"])
    for step in (1, 2, 3):
        watch.step({"step": step, "loss": 1.0})
    watch.rewind(1)
    watch.held_out({"step": 1, "loss": 0.5})
    watch.close("finished")
    assert [call[:2] for call in good.calls] == [
        ("log", 1),
        ("log", 2),
        ("log", 3),
        ("rewind", 1),
        ("log", 1),
        ("close",),
    ]
    assert len(bad.calls) == 1 and "gets no more figures: the server is gone" in capsys.readouterr().err
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
    assert sinks.numbers(row) == {"held_out/loss": 1.5}
    assert sinks.numbers({"step": 3, "loss": 1}) == {"train/loss": 1.0}


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_missing_extra_is_named_before_anything_begins(tmp_path, monkeypatch, name):
    module = "torch.utils.tensorboard" if name == "tensorboard" else name
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"{name} is not installed; .*'litebert\[{name}\]'"):
        Watch(tmp_path / "run", sinks=(name,))
    assert not (tmp_path / "run").exists()


def test_an_unknown_sink_and_one_that_does_not_start(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="'wandbb'; did you mean 'wandb'"):
        Watch(tmp_path, sinks=["wandbb"])

    def refuse(run):
        raise RuntimeError("no login\nfound")

    monkeypatch.setitem(sinks.SINKS, "wandb", refuse)
    with pytest.raises(InputError, match="wandb could not be started: no login found"):
        Watch(tmp_path, sinks=["wandb"])


def test_tensorboard_shows_each_step_once_after_going_back(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for resumed in (False, True):
        watch = Watch(tmp_path, live=False, sinks=("tensorboard",))
        if resumed:
            watch.rewind(5)
        for step in range(6 if resumed else 1, 11):
            watch.step({"step": step, "loss": 1 / step})
        watch.close("finished")
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("train/loss")] == list(range(1, 11))


LIVE = """
import sys, time
from pathlib import Path
from litebert.train.watch import Watch
watch = Watch(Path(sys.argv[1]), total=2000)
time.monotonic = lambda: now
for step, now in ((1, 0.0), (600, 51.4)):
    watch.step(ROW | {"step": step, "progress": step / 2000})
watch.say("a sentence")
if sys.argv[2:] == ["fail"]:
    raise SystemExit(3)
watch.close("finished")
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


def test_on_a_terminal_one_line_fits_whatever_its_width(tmp_path):
    wide, narrow = on_terminal(150, str(tmp_path / "a")), on_terminal(70, str(tmp_path / "b"), "fail")
    assert (
        "30% step 600/2,000 · 771k tokens/s · loss 3.211 · mlm 2.600 (45.1%) · order 0.611 (70.2%) · 55% of peak · 2 m"
        in wide
    )
    assert "30% step 600/2,000 · 771k tokens/s · loss 3.211 · 2 minutes left" in narrow
    assert "a sentence" in wide and "order" not in narrow
    for text in (wide, narrow):
        assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor stayed hidden"
