"""What compiling costs and gains: seconds until the first step of a pretraining run, and tokens a second at each depth.

Each way to compile (all layers at once, a layer for all, not at all) has a cache of its own, empty at the first start
and as the first start left it at the next ones. Every start is ``litebert pretrain`` in a new process, so that imports
and everything else before a step count, as they do in a budget.
"""

import json
import logging
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from litebert.config import parse_overrides
from litebert.errors import InputError
from litebert.report import Report, Section, Table
from litebert.runs import read_run
from litebert.train.metrics import read_metrics
from litebert.train.settings import value_at

WAYS = {"whole": ["--compile"], "layers": ["--compile", "--graph-per-layer"], "none": ["--no-compile"]}

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Start:
    """One run."""

    way: str
    number: int  # 1: with nothing compiled before
    ready: float  # seconds from the command to the first step
    seconds: float  # of the whole command
    tokens_per_second: dict[str, float]  # by depth


def bench_compiling(
    model: str, corpus: Path, words: Sequence[str], *, ways: Sequence[str], starts: int, steps: int, device: str
) -> Report:
    """Start each way several times."""
    if unknown := [way for way in ways if way not in WAYS]:
        raise InputError(f"--way is '{unknown[0]}' but must be {', '.join(WAYS)}")
    parse_overrides(words)
    rows: list[Start] = []
    for way in ways:
        with TemporaryDirectory() as folder:
            for number in range(1, starts + 1):
                log.info("%s, start %d ...", way, number)
                rows.append(_start(model, corpus, words, way, number, Path(folder), steps, device))
                log.info("  %s", json.dumps(asdict(rows[-1])))
    depths = list(rows[0].tokens_per_second)
    table = [["way", "start", "ready after", "in all", *(f"tokens/s, {depth} layers" for depth in depths)]]
    for row in rows:
        speeds = [f"{row.tokens_per_second.get(depth, float('nan')):,.0f}" for depth in depths]
        table.append([row.way, str(row.number), f"{row.ready:.1f} s", f"{row.seconds:.1f} s", *speeds])
    title = f"{model} on {device}, {steps} steps: start, compile, train"
    return Report(title=title, sections=[Section(title="", items=[Table(rows=table)])], data=[asdict(r) for r in rows])


def _start(
    model: str, corpus: Path, words: Sequence[str], way: str, number: int, folder: Path, steps: int, device: str
) -> Start:
    """A run in a process of its own, with this folder's caches."""
    out, cache = folder / f"run{number}", folder / "cache"
    command = [sys.executable, "-m", "litebert", "pretrain", model, *words, "--corpus", str(corpus), "--out", str(out)]
    command += ["--steps", str(steps), "--device", device, "--save-every", "1h", *WAYS[way]]
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"), "TRITON_CACHE_DIR": str(cache / "triton")}
    begun = time.monotonic()
    done = subprocess.run(command, env={**os.environ, **caches}, capture_output=True, text=True)
    seconds = time.monotonic() - begun
    if done.returncode:
        raise InputError(f"{way} has failed: {' '.join(done.stderr.split()[-60:])}")
    rows, run = [row for row in read_metrics(out) if "rate" in row], read_run(out)
    assert run is not None
    layers = run.settings["encoder"]["num_layers"]
    stages = [(begin, depth) for begin, depth in run.settings["recipe"]["growth"]["depths"]] or [(0.0, layers)]
    found: dict[str, list[float]] = {}
    for before, row in pairwise(rows):
        depth, was = (value_at(float(one["progress"] or 0.0), stages) for one in (row, before))
        if depth == was and int(row["step"] or 0) % 10 == 0:  # a whole stretch of steps at one depth
            whole = max(1, round(depth * layers)) if isinstance(depth, float) else depth
            found.setdefault(str(whole), []).append(float(row["tokens_per_second"] or 0.0))
    speeds = {depth: statistics.median(some) for depth, some in found.items()}
    ready = float(rows[0]["seconds"] or 0.0)
    return Start(way=way, number=number, ready=ready, seconds=seconds, tokens_per_second=speeds)
