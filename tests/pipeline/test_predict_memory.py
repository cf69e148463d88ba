"""A million predictions take no more memory than a hundred thousand."""

import subprocess
import sys
from pathlib import Path

import pytest
from toy_answers import shard_lines, tuned, write_table

PREDICT = """
import sys
import litebert
from litebert.system import peak_resident_bytes
litebert.predict(*sys.argv[1:], device="cpu")
print(peak_resident_bytes())
"""


def peak_of(folder: Path, rows: int) -> int:
    """The most memory in which a process predicts this many rows; each must be there, once and in order."""
    table, out = write_table(folder / f"{rows}.csv", rows), folder / f"out-{rows}"
    command = [sys.executable, "-c", PREDICT, str(folder / "tuned"), str(table), str(out)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert [line.partition(",")[0] for line in shard_lines(out)] == [f"r{number}" for number in range(rows)]
    return int(done.stdout)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path):
    """900,000 more rows; were they kept, each would take a hundred bytes or more, 90 MB in all."""
    tuned(tmp_path / "tuned")
    assert peak_of(tmp_path, 1_000_000) < peak_of(tmp_path, 100_000) + (60 << 20)
