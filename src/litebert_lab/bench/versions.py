"""One command of litebert with this code and with another checkout's, in turns: time, memory, and what they write.

For changes that should not make anything slower: the two take turns, so that a busy machine is busy for both. Time is
that of the whole command, its start included. Memory is what all its processes hold together (PSS, so that shared pages
count once), read a few times a second.
"""

import logging
import math
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import file_digest
from pathlib import Path
from statistics import median

import litebert
from litebert.errors import InputError
from litebert.report import Report, Section, Table, note

OUT = "{out}"  # in the command, where it writes: a new folder or file for each turn
PERIOD = 0.2  # seconds between two readings of memory
SIDES = ("before", "now")

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What one run of the command took."""

    seconds: float
    cpu_seconds: float  # of all its processes
    peak: int  # bytes that all its processes held together
    files: dict[str, str]  # what it wrote: the digest of each file, by path


def bench_versions(before: Path, command: str, turns: int) -> Report:
    """Run ``litebert COMMAND`` with the code in ``before`` (a checkout's ``src``) and with this, ``turns`` times."""
    if not (before / "litebert").is_dir():
        raise InputError(f"{before} has no folder litebert; give the src folder of the other checkout")
    try:
        words = shlex.split(command)
    except ValueError:
        raise InputError(f"command is '{command}' but must be words, with an end to each quotation") from None
    sources = dict(zip(SIDES, (before.resolve(), Path(litebert.__file__).parents[1]), strict=True))
    done: dict[str, list[Turn]] = {side: [] for side in SIDES}
    for turn in range(turns):
        # Who begins changes from turn to turn: the second finds files in memory that the first read from the disk.
        for side in SIDES if turn % 2 else SIDES[::-1]:
            done[side].append(_run(sources[side], words))
            log.info("%s: %.2f s, turn %d of %d", side, done[side][-1].seconds, turn + 1, turns)
    return _report(done, command)


def _run(source: Path, command: Sequence[str]) -> Turn:
    with tempfile.TemporaryDirectory(prefix="litebert-versions-") as folder:
        out = Path(folder) / "out"
        words = [word.replace(OUT, str(out)) for word in command]
        with (Path(folder) / "said").open("w+") as said:
            begun = time.perf_counter()
            process = subprocess.Popen(
                [sys.executable, "-m", "litebert", *words],
                env=os.environ | {"PYTHONPATH": str(source)},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            ended, held = threading.Event(), [0]

            def watch() -> None:
                while not ended.wait(PERIOD):
                    held.append(_held_by_session(process.pid))

            watcher = threading.Thread(target=watch)
            watcher.start()
            try:
                _, status, usage = os.wait4(process.pid, 0)
            except BaseException:  # Ctrl-C
                os.killpg(process.pid, signal.SIGKILL)
                raise
            finally:
                seconds = time.perf_counter() - begun
                ended.set()
                watcher.join()
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                said.seek(0)
                last = (said.read().strip().splitlines() or ["it printed nothing"])[-1]
                raise InputError(
                    f"litebert {shlex.join(command)} of {source} ended with status {process.returncode}: {last}"
                )
        files = {str(path.relative_to(out)): _digest(path) for path in sorted(out.rglob("*")) if path.is_file()}
        if out.is_file():
            files = {out.name: _digest(out)}
    return Turn(seconds=seconds, cpu_seconds=usage.ru_utime + usage.ru_stime, peak=max(held), files=files)


def _held_by_session(session: int) -> int:
    """Bytes of memory of all processes of a session; those that end meanwhile count for nothing."""
    held = 0
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and os.getsid(int(entry.name)) == session:
                lines = (entry / "smaps_rollup").read_text().splitlines()
                held += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
        except OSError:
            continue
    return held


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _report(done: dict[str, list[Turn]], command: str) -> Report:
    before, now = (done[side] for side in SIDES)
    table = [["", *SIDES, "now / before", "by turn"]]
    for name, unit, scale in (("seconds", "s", 1.0), ("cpu_seconds", "s", 1.0), ("peak", "MB", 1e-6)):
        pairs = [(getattr(old, name) * scale, getattr(new, name) * scale) for old, new in zip(before, now, strict=True)]
        ratios = [new / old if old else math.nan for old, new in pairs]  # too short for a reading of memory
        middle = [f"{median(side):.4g}" for side in zip(*pairs, strict=True)]
        label = {"seconds": "time", "cpu_seconds": "processor time", "peak": "memory at its highest"}[name]
        table.append([f"{label}, {unit}", *middle, f"{median(ratios):.3f}", " ".join(f"{one:.2f}" for one in ratios)])
    return Report(
        title=f"litebert {command}",
        sections=[Section(items=[Table(rows=table), note(_compared(before, now))])],
        data={side: [asdict(turn) for turn in done[side]] for side in SIDES},
    )


def _compared(before: Sequence[Turn], now: Sequence[Turn]) -> str:
    """Whether both wrote the same files; those that differ between two turns of one version say nothing."""
    every = [turn.files for turn in (*before, *now)]
    names = sorted(set().union(*every))
    steady = [
        name for name in names if all(len({turn.files.get(name) for turn in side}) == 1 for side in (before, now))
    ]
    other = [name for name in steady if before[0].files.get(name) != now[0].files.get(name)]
    medians = f"medians of {len(now)} turns; the ratio is the median of the turns' ratios. "
    if not names:
        return medians + "Nothing was written to {out}."
    same = f"{len(steady) - len(other)} of {len(names)} files have the same bytes in all turns and in both versions"
    changing = [name for name in names if name not in steady]
    return (
        medians
        + same
        + (f"; other bytes now: {', '.join(other)}" if other else "")
        + (f"; not the same in every turn of one version: {', '.join(changing)}" if changing else "")
        + "."
    )
