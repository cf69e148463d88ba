"""How long litebert takes to start: ``import litebert`` and ``litebert --help``, each in a new process.

The fastest of several runs is reported, next to a Python that imports nothing: on a busy machine it is the figure that
says most about the code. Speed is measured here and never in a test.
"""

import subprocess
import sys
import time
from dataclasses import dataclass

COMMANDS = {
    "python, nothing imported": ("-c", "pass"),
    "import litebert": ("-c", "import litebert"),
    "litebert --help": ("-m", "litebert", "--help"),
}
WANTED = {"import litebert": 0.3, "litebert --help": 0.5}  # seconds on an idle core


@dataclass(frozen=True)
class Start:
    """Seconds of wall-clock time, the fastest of all runs, and what was aimed at."""

    what: str
    seconds: float
    wanted: float | None


def bench_start(runs: int) -> list[Start]:
    """Time each command ``runs`` times, in turns."""
    fastest = dict.fromkeys(COMMANDS, float("inf"))
    for _ in range(runs):
        for what, words in COMMANDS.items():
            begun = time.perf_counter()
            subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
            fastest[what] = min(fastest[what], time.perf_counter() - begun)
    return [Start(what, seconds, WANTED.get(what)) for what, seconds in fastest.items()]
