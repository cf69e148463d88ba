"""Two processes and their exchange of gradients: the bytes are those that the plan counts."""

import json
import subprocess
import sys

import pytest

import litebert


@pytest.mark.slow
def test_two_ranks_send_what_the_plan_counts():
    models = ("albert-tiny", "distilbert-base")
    command = [sys.executable, "-m", "litebert_lab", "bench", "ranks", *models, "--tokens", "64", "--steps", "1"]
    done = subprocess.run([*command, "--length", "32", "--json"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout[done.stdout.index("{") :])
    assert found["ranks"] == 2
    for row, model in zip(found["rows"], models, strict=True):
        run = litebert.plan(model, device="h200", gpus=2).paper_run
        assert row["sent"] == 4 * row["parameters"] == run.gradient_bytes
        assert row["together"] > 0 and row["plain"] > 0
