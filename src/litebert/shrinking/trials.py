"""Scores of layers kept, by seed, as they are measured: kept in a file, so that a search that was stopped goes on.

No torch: what a score is, the caller knows.
"""

import json
import math
import os
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from litebert.errors import InputError
from litebert.shrinking.strategies import Layers

Score = Callable[[Layers, int], float]  # layers kept and a seed to a score: higher is better


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One measurement."""

    kept: Layers
    seed: int
    score: float
    seconds: float
    resumed: bool = False  # then the seconds are of its last part only


class Trials:
    """All measurements so far. ``same`` names the model that layers make: with shared blocks many make one."""

    def __init__(
        self,
        score: Score,
        *,
        file: Path | None = None,
        same: Callable[[Layers], Hashable] = lambda kept: kept,
        is_begun: Callable[[Layers, int], bool] = lambda kept, seed: False,
    ) -> None:
        self._score, self._file, self._same = score, file, same
        self._is_begun = is_begun
        self._known: dict[Hashable, dict[int, Trial]] = {}
        self.measured = 0  # in this process; the others were read
        _cut_half_line(file)
        for trial in _read(file):
            self._known.setdefault(self._same(trial.kept), {})[trial.seed] = trial

    def knows(self, kept: Layers, seed: int) -> bool:
        return seed in self._known.get(self._same(kept), {})

    def scores(self, kept: Layers) -> list[float]:
        """What is known of these layers."""
        return [trial.score for trial in self._known.get(self._same(kept), {}).values()]

    def of_seeds(self, kept: Layers, seeds: Sequence[int]) -> list[float]:
        """The scores of these layers with these seeds, all of which were measured."""
        known = self._known[self._same(kept)]
        return [known[seed].score for seed in seeds]

    def measure(self, kept: Layers, seed: int) -> float:
        """The score of these layers with a seed, measured unless it is known."""
        known = self._known.setdefault(self._same(kept), {})
        if seed not in known:
            begun, resumed = time.monotonic(), self._is_begun(kept, seed)
            score = float(self._score(kept, seed))
            if not math.isfinite(score):
                raise InputError(
                    f"layers {kept} with seed {seed} have a score of {score}; the measure must be a number"
                )
            seconds = time.monotonic() - begun
            known[seed] = Trial(kept=kept, seed=seed, score=score, seconds=seconds, resumed=resumed)
            self.measured += 1
            self._append(known[seed])
        return known[seed].score

    def seconds(self, layers: int) -> float:
        """How long a trial with so many layers may take, by those measured: time follows the number of layers."""
        every = [trial for known in self._known.values() for trial in known.values()]
        if not every:
            return 0.0
        return sum(trial.seconds / len(trial.kept) for trial in every) / len(every) * layers

    def fastest(self, layers: int) -> Trial:
        """The fastest trial with so many layers kept; one that was resumed only where there is no other."""
        every = (trial for known in self._known.values() for trial in known.values() if len(trial.kept) == layers)
        return min(every, key=lambda trial: (trial.resumed, trial.seconds))

    def deviation(self) -> float | None:
        """The standard deviation that seeds alone make, over all layers tried more than once; None: not known yet."""
        groups = [[trial.score for trial in known.values()] for known in self._known.values() if len(known) > 1]
        if not groups:
            return None
        squares = sum((score - sum(group) / len(group)) ** 2 for group in groups for score in group)
        return math.sqrt(squares / sum(len(group) - 1 for group in groups))

    def _append(self, trial: Trial) -> None:
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(trial)) + "\n")


def _cut_half_line(file: Path | None) -> None:
    """Take away a last line cut by a kill: it is a trial to do again."""
    if file is not None and file.is_file():
        text = file.read_bytes()
        if text and not text.endswith(b"\n"):
            os.truncate(file, text.rfind(b"\n") + 1)


def _read(file: Path | None) -> Iterator[Trial]:
    """The trials noted so far."""
    if file is None or not file.is_file():
        return
    text = file.read_text(encoding="utf-8")
    for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), start=1):
        try:
            row = json.loads(line)
            yield Trial(
                kept=tuple(row["kept"]),
                seed=int(row["seed"]),
                score=float(row["score"]),
                seconds=float(row["seconds"]),
                resumed=bool(row.get("resumed", False)),
            )
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{file}, line {number} is not a trial; remove the line and start again") from None
