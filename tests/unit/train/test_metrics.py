"""metrics.jsonl: every row that was written is there, also after a kill, a rollback or half a line."""

import json
import math
import os
import random
import subprocess
import sys

import pytest

from litebert.errors import InputError
from litebert.train.metrics import MetricsFile, read_metrics


def test_rows_come_back_to_the_last_bit(tmp_path):
    metrics = MetricsFile(tmp_path / "run")
    rows = [{"step": step, "loss": random.Random(step).random(), "split": "held_out"} for step in range(50)]
    for number, row in enumerate(rows):
        metrics.append(row)
        assert read_metrics(tmp_path / "run") == rows[: number + 1]


def test_numbers_that_json_lacks_are_null(tmp_path):
    MetricsFile(tmp_path).append({"step": 1, "loss": math.nan, "norm": math.inf, "low": -math.inf, "fine": 0.0})
    text = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == {
        "step": 1,
        "loss": None,
        "norm": None,
        "low": None,
        "fine": 0,
    }


def test_rewind_drops_what_came_after_and_goes_on(tmp_path):
    metrics = MetricsFile(tmp_path)
    for step in range(1, 11):
        metrics.append({"step": step, "loss": 1.0})
        if step % 5 == 0:
            metrics.append({"step": step, "split": "held_out"})
    metrics.rewind(5)
    metrics.append({"step": 6, "loss": 2.0})
    rows = read_metrics(tmp_path)
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 5, 6] and rows[-1]["loss"] == 2.0
    metrics.rewind(0)
    assert read_metrics(tmp_path) == []


@pytest.mark.parametrize("cut", range(1, 26, 3))
def test_half_a_line_is_passed_over_and_mended(tmp_path, cut):
    metrics = MetricsFile(tmp_path)
    for step in (1, 2, 3):
        metrics.append({"step": step, "loss": 0.125})
    path = tmp_path / "metrics.jsonl"
    os.truncate(path, path.stat().st_size - cut)
    assert [row["step"] for row in read_metrics(tmp_path)] == ([1, 2, 3] if cut == 1 else [1, 2])
    again = MetricsFile(tmp_path)
    again.append({"step": 4})
    assert [row["step"] for row in read_metrics(tmp_path)] == [1, 2, 4]
    assert path.read_bytes().count(b"\n") == 3


def test_a_rewind_that_dies_leaves_the_old_rows(tmp_path, monkeypatch):
    metrics = MetricsFile(tmp_path)
    for step in (1, 2, 3):
        metrics.append({"step": step})

    def die(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", die)
    with pytest.raises(KeyboardInterrupt):
        metrics.rewind(1)
    assert [row["step"] for row in read_metrics(tmp_path)] == [1, 2, 3]


def test_no_run_has_no_rows_and_odd_lines_are_passed_over(tmp_path):
    assert read_metrics(tmp_path) == []
    (tmp_path / "metrics.jsonl").write_bytes(b'\n[1]\n{"step": 1}\n\xff\xfe\n{"step": 2}\n')
    assert [row["step"] for row in read_metrics(tmp_path)] == [1, 2]


def test_a_killed_process_leaves_whole_rows(tmp_path):
    code = (
        "import sys\nfrom pathlib import Path\nfrom litebert.train.metrics import MetricsFile\n"
        "metrics = MetricsFile(Path(sys.argv[1]))\n"
        "for step in range(10**9):\n    metrics.append({'step': step, 'loss': 1 / 3})\n    print(flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    for _ in range(500):
        process.stdout.readline()
    process.kill()
    process.communicate()
    rows = read_metrics(tmp_path)
    assert len(rows) >= 500 and [row["step"] for row in rows] == list(range(len(rows)))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_a_full_disk_is_said(tmp_path):
    metrics = MetricsFile(tmp_path)
    metrics._file.close()
    metrics._file = open("/dev/full", "ab", buffering=0)  # noqa: PTH123, SIM115
    with pytest.raises(InputError, match=r"no room left to write .*metrics.jsonl.*--resume"):
        metrics.append({"step": 1})
