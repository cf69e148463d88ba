"""Pretraining runs that are killed or asked to stop go on as if nothing had happened."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from toy_pretraining import RECIPE, WORDS, weights

from litebert.checkpoints.training import saved_states

COMMAND = [
    "pretrain",
    "albert-tiny",
    *WORDS,
    *RECIPE,
    "--recipe",
    "paper",
    "--steps",
    "30",
    "--save-every",
    "3",
    "--device",
    "cpu",
]


def start(store: Path, out: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "litebert", *COMMAND, "--corpus", str(store), "--out", str(out), *more]
    return subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )


@pytest.mark.slow
def test_killed_at_20_random_moments_and_resumed_ends_the_same(store, tmp_path):
    long = ("--steps", "2500", "--save-every", "25")
    assert start(store, tmp_path / "whole", *long).wait() == 0
    draw, kills = random.Random(0), 0
    running = start(store, tmp_path / "killed", *long)
    while kills < 20:
        time.sleep(draw.uniform(2, 6))
        assert running.poll() is None, "the run ended before it could be killed often enough"
        running.send_signal(signal.SIGKILL)
        running.wait()
        kills += 1
        resume = ["--resume"] if saved_states(tmp_path / "killed") else []
        if not resume:  # killed before there was anything to go on with
            shutil.rmtree(tmp_path / "killed", ignore_errors=True)
        running = start(store, tmp_path / "killed", *long, *resume)
    assert running.wait() == 0, running.stderr.read().decode()
    for name, tensor in weights(tmp_path / "whole").items():
        assert torch.equal(tensor, weights(tmp_path / "killed")[name]), name


def test_asked_to_stop_it_saves_and_can_go_on(store, tmp_path):
    running = start(store, tmp_path / "run", "--steps", "100000", "--save-every", "1h")
    metrics = tmp_path / "run" / "metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size):
        assert running.poll() is None
        time.sleep(0.1)
    running.send_signal(signal.SIGTERM)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 0 and b"stopped after" in out, err.decode()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "stopped"
    assert saved_states(tmp_path / "run")[-1].step > 0
