"""The fewest layers whose score stays within a tolerance, found with few measurements. No torch.

For each strategy the number of layers is halved in on (a model with more layers dropped is taken to be no better); a
later strategy is tried only where it would beat the best so far. A seed is spent only while the verdict is open. What
seeds alone make is measured, too: a loss smaller than that is not a loss, and the verdict says so.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from litebert.errors import InputError
from litebert.shrink.strategies import Layers, layers_in_words
from litebert.shrink.trials import Trials

Reason = Literal["within the tolerance", "smaller than the noise", "too much is lost"]
CERTAIN = 2.0  # standard errors: about 95%


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether layers may go. Losses are in the units of the score; ``noise`` is two standard errors of the loss."""

    strategy: str
    kept: Layers
    dropped: int
    mean: float
    loss: float
    noise: float
    seeds: int
    fits: bool
    reason: Reason


@dataclass(frozen=True, kw_only=True)
class Found:
    """The answer: ``best`` drops most within the tolerance; without one, ``closest`` lost least of all tried."""

    whole: float  # the score of all layers, mean over the seeds
    noise: float  # of a loss when every seed is used
    seeds: int
    best: Verdict | None
    closest: Verdict
    verdicts: tuple[Verdict, ...]
    measured: int

    def sentences(self, tolerance: float) -> list[str]:
        """The answer in words."""
        if self.best is None:
            first = (
                f"no layer can go within {tolerance:g}: the least lost was {self.closest.loss:.4g}, by dropping "
                f"{self.closest.dropped} ({self.closest.strategy})"
            )
        else:
            first = (
                f"{layers_in_words(self.best.dropped)} can go ({self.best.strategy}): the score is "
                f"{self.best.mean:.4g}, with all layers {self.whole:.4g}, so the loss is {self.best.loss:.4g}: "
                f"{self.best.reason}"
            )
        if self.seeds == 1:
            return [first, "one seed says nothing about the noise: this loss may be chance; use three or more"]
        if self.noise > tolerance:
            return [first, noise_warning(self.noise, tolerance, self.seeds)]
        return [first]


def noise_warning(noise: float, tolerance: float, seeds: int) -> str:
    """What to do where seeds differ by more than the tolerance."""
    needed = math.ceil(seeds * (noise / tolerance) ** 2) if tolerance > 0 else 0
    more = f"use about {needed} seeds, or " if needed else ""
    return (
        f"with {seeds} seeds losses under {noise:.4g} cannot be told from chance, which is more than the tolerance of "
        f"{tolerance:g}; {more}allow more"
    )


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a search is: candidates judged, how many there may still be, and the seconds those may take."""

    judged: int
    left: int
    seconds_left: float
    last: Verdict


class Search:
    """One search. ``keeping[name](k)`` gives the layers that a strategy keeps when k go; the first is tried first."""

    def __init__(
        self,
        depth: int,
        keeping: Mapping[str, Callable[[int], Layers]],
        trials: Trials,
        *,
        tolerance: float,
        seeds: Sequence[int],
        report: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        if not seeds or len(set(seeds)) != len(seeds):
            raise InputError(f"the seeds are {list(seeds)} but must be one or more, each of them once")
        if tolerance < 0:
            raise InputError(f"the tolerance is {tolerance} but must be 0 or more")
        if depth < 2 or not keeping:
            raise InputError(f"there is nothing to search in {depth} layers with {len(keeping)} strategies")
        self._depth, self._keeping, self._trials = depth, keeping, trials
        self._tolerance, self._seeds, self._report = tolerance, list(seeds), report
        self._verdicts: dict[tuple[str, int], Verdict] = {}
        self._whole: list[float] = []

    def run(self) -> Found:
        """Search; what the trials know already costs nothing."""
        everything = tuple(range(1, self._depth + 1))
        self._whole = [self._trials.measure(everything, seed) for seed in self._seeds]
        while True:
            best = self._pass()
            if best is not None:
                best = self._confirm(best)
            if best is None or best.fits:
                break  # otherwise all seeds together said no: look again, knowing that
        closest = min(self._verdicts.values(), key=lambda verdict: (verdict.loss, -verdict.dropped))
        return Found(
            whole=_mean(self._whole),
            noise=self._noise(len(self._seeds)),
            seeds=len(self._seeds),
            best=best,
            closest=closest,
            verdicts=tuple(self._verdicts.values()),
            measured=self._trials.measured,
        )

    def _pass(self) -> Verdict | None:
        """The best over all strategies, each halved in on above what the ones before it reached."""
        best: Verdict | None = None
        for place, name in enumerate(self._keeping):
            low, high = best.dropped if best else 0, self._depth
            others = len(self._keeping) - place - 1
            first = best is not None  # one look above the best shows whether this strategy can beat it
            while high - low > 1:
                middle = low + 1 if first else (low + high) // 2
                first = False
                known = (name, middle) in self._verdicts
                verdict = self._judge(name, middle)
                if verdict.fits:
                    best, low = verdict, middle
                else:
                    high = middle
                if not known:
                    beatable = low + 1 < self._depth
                    self._tell(verdict, math.ceil(math.log2(high - low)) + (others if beatable else 0))
        return best

    def _judge(self, name: str, count: int) -> Verdict:
        """The verdict on a strategy and a number; seeds are used until it is plain."""
        if (name, count) in self._verdicts:
            return self._verdicts[name, count]
        kept = self._keeping[name](count)
        assert len(kept) == self._depth - count, "a strategy keeps as many layers as it is asked to"
        for used, seed in enumerate(self._seeds, start=1):
            self._trials.measure(kept, seed)
            verdict = self._verdict(name, kept)
            if used < len(self._seeds) and self._plain(verdict):
                break
        self._verdicts[name, count] = verdict
        return verdict

    def _tell(self, verdict: Verdict, left: int) -> None:
        """Say how far it is; ``left`` candidates may follow, at half the layers and with every seed."""
        seconds = left * len(self._seeds) * self._trials.seconds(self._depth // 2)
        self._report(Progress(judged=len(self._verdicts), left=left, seconds_left=seconds, last=verdict))

    def _verdict(self, name: str, kept: Layers) -> Verdict:
        scores = self._trials.scores(kept)
        loss = _mean(self._whole) - _mean(scores)
        noise = self._noise(len(scores))
        reason: Reason = "too much is lost"
        if loss <= self._tolerance:
            reason = "within the tolerance"
        elif loss <= self._noise(len(self._seeds)):
            reason = "smaller than the noise"
        return Verdict(
            strategy=name,
            kept=kept,
            dropped=self._depth - len(kept),
            mean=_mean(scores),
            loss=loss,
            noise=noise,
            seeds=len(scores),
            fits=reason != "too much is lost",
            reason=reason,
        )

    def _noise(self, seeds: int) -> float:
        """Two standard errors of the difference between all layers and a candidate with so many seeds.

        By what seeds do to the whole model alone: a candidate that falls apart with some seeds earns no licence by it.
        """
        return CERTAIN * _deviation(self._whole) * math.sqrt(1 / len(self._whole) + 1 / seeds)

    def _plain(self, verdict: Verdict) -> bool:
        """Whether more seeds could not turn the verdict, as far as all that was measured tells."""
        bound = max(self._tolerance, self._noise(len(self._seeds)))
        deviation = max(_deviation(self._whole), self._trials.deviation() or 0.0)
        doubt = CERTAIN * deviation * math.sqrt(1 / len(self._whole) + 1 / verdict.seeds)
        return abs(verdict.loss - bound) > doubt

    def _confirm(self, verdict: Verdict) -> Verdict:
        """The verdict on a winner with every seed."""
        for seed in self._seeds:
            self._trials.measure(verdict.kept, seed)
        final = self._verdict(verdict.strategy, verdict.kept)
        self._verdicts[verdict.strategy, verdict.dropped] = final
        return final


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _deviation(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / max(1, len(values) - 1))
