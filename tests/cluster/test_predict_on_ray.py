"""A million predictions on Ray, after a worker is killed, then the command: the bytes are those of a plain run."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from toy_answers import shard_lines, tuned, write_table

import litebert

psutil = pytest.importorskip("psutil", reason="needs psutil")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nodes")]
ROWS, SHARD = 1_000_000, 1 << 16


def complete(out: Path) -> int:
    """How many shards are listed."""
    manifest = out / "_shards.json"
    return len(json.loads(manifest.read_text())["shards"]) if manifest.is_file() else 0


def workers_of_ray() -> list[psutil.Process]:
    """The processes that answer, all of them started by the cluster of this test."""
    children = psutil.Process().children(recursive=True)
    return [one for one in children if one.name().startswith("ray::_Worker")]


def begin(cluster, *words: str, cwd: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "RAY_ADDRESS": cluster.address}
    command = [sys.executable, "-m", "litebert", "predict", *words, "--on", "ray", "--shard-rows", str(SHARD)]
    return subprocess.Popen(command, cwd=cwd, env=environment, stderr=subprocess.PIPE, text=True)


def wait_until(process: subprocess.Popen[str], out: Path, count: int) -> None:
    while complete(out) < count:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def test_a_million_rows_after_kills_of_a_worker_and_of_the_command(nodes, tmp_path):
    tuned(tmp_path / "tuned")
    write_table(tmp_path / "rows.csv", ROWS)
    words, out = ("tuned", "rows.csv", "-o", "out"), tmp_path / "out"
    process = begin(nodes, *words, cwd=tmp_path)
    wait_until(process, out, 1)
    first = workers_of_ray()[0]
    first.kill()
    wait_until(process, out, 3)
    assert first.pid not in [one.pid for one in workers_of_ray()]
    process.kill()
    process.communicate()
    done = complete(out)
    assert 3 <= done < ROWS // SHARD
    process = begin(nodes, *words, cwd=tmp_path)
    _, said = process.communicate()
    assert process.returncode == 0, said
    assert f"wrote {ROWS:,} predictions" in said and f"{done * SHARD:,} of them were there already" in said
    assert [line.partition(",")[0] for line in shard_lines(out)] == [f"r{number}" for number in range(ROWS)]
    litebert.predict(tmp_path / "tuned", tmp_path / "rows.csv", tmp_path / "alone", shard_rows=SHARD)
    for path in sorted(out.glob("part-*")):
        assert path.read_bytes() == (tmp_path / "alone" / path.name).read_bytes()
