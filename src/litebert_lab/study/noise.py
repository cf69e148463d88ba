"""Is a difference more than noise? Verdicts from figures alone.

A figure is a ratio of sums over batches of held-out text, the same batches for every row. What differs from batch to
batch is the noise of the text; with two seeds or more, what differs from seed to seed (its variance pooled over all
rows) is the noise of training, and both count. A claim is a number that is above zero where it holds: it is called
reproduced, or not, where it is further from zero than a 95% interval reaches, and otherwise too small to tell. With one
seed the noise of training is not seen, so that no difference below a hundredth of the figures themselves is called.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import norm, t

Verdict = Literal["reproduced", "not reproduced", "too small to tell"]
Sums = npt.NDArray[np.float64]  # (batches, 2): a sum and how many items it is over

UNSEEN = 0.01  # of a figure: what another seed is taken to change where there is none


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A claim's number, the half-width of its 95% interval, and what follows."""

    verdict: Verdict
    value: float | None
    interval: float | None
    why: str


def ratio(sums: Sums) -> float:
    """The figure itself."""
    return float(sums[:, 0].sum() / sums[:, 1].sum())


def judge(weights: Mapping[str, float], constant: float, figures: Mapping[str, Sequence[Sums]]) -> Judged:
    """Weigh the figures of rows, each given by seed; rows that are missing leave the claim open."""
    missing = [name for name in weights if not figures.get(name)]
    if missing:
        return Judged(
            verdict="too small to tell", value=None, interval=None, why=f"no figures for {', '.join(missing)}"
        )
    value = constant + sum(weight * mean_of(figures[name]) for name, weight in weights.items())
    text = _text_error(weights, figures)
    spread, freedom = _seed_spread(figures)
    if spread is None:
        interval = max(t95(None) * text, UNSEEN * max(abs(mean_of(figures[name])) for name in weights))
        how = f"the interval is that of held-out text, {UNSEEN:.0%} at the least, as other seeds were not tried"
    else:
        seeds = math.sqrt(sum(w**2 * spread**2 / len(figures[name]) for name, w in weights.items()))
        interval = t95(freedom) * math.hypot(seeds, text)
        how = "the interval is that of seeds and held-out text"
    if math.isnan(text):
        return Judged(verdict="too small to tell", value=value, interval=None, why="too little held-out text")
    verdict: Verdict = "too small to tell"
    if abs(value) > interval:
        verdict = "reproduced" if value > 0 else "not reproduced"
    return Judged(verdict=verdict, value=value, interval=interval, why=how)


def error_of(figures: Sequence[Sums]) -> float | None:
    """The standard error of one row's figure: over its seeds, or over the text where there is one seed."""
    if len(figures) > 1:
        return float(np.std([ratio(sums) for sums in figures], ddof=1)) / math.sqrt(len(figures))
    error = _text_error({"": 1.0}, {"": figures})
    return None if math.isnan(error) else error


def t95(freedom: int | None) -> float:
    """How many standard errors a 95% interval reaches to either side; None: the noise is known well."""
    return float(norm.ppf(0.975) if freedom is None else t.ppf(0.975, freedom))


def mean_of(figures: Sequence[Sums]) -> float:
    """A figure's mean over seeds."""
    return sum(map(ratio, figures)) / len(figures)


def _text_error(weights: Mapping[str, float], figures: Mapping[str, Sequence[Sums]]) -> float:
    """The standard error that comes from which text was held out: rows see the same batches, so they are paired."""
    shapes = {sums.shape for name in weights for sums in figures[name]}
    batches = next(iter(shapes))[0]
    if len(shapes) > 1 or batches < 2:
        return math.nan
    influence = np.zeros(batches)
    for name, weight in weights.items():
        for sums in figures[name]:
            apart = (sums[:, 0] - ratio(sums) * sums[:, 1]) / sums[:, 1].sum()
            influence += weight * apart / len(figures[name])
    return float(np.sqrt((influence**2).sum() * batches / (batches - 1)))


def _seed_spread(figures: Mapping[str, Sequence[Sums]]) -> tuple[float | None, int]:
    """The standard deviation between seeds, pooled over all rows that have several, and its degrees of freedom."""
    several = [[ratio(sums) for sums in found] for found in figures.values() if len(found) > 1]
    freedom = sum(len(values) - 1 for values in several)
    if not freedom:
        return None, 0
    squares = sum(float(np.var(values)) * len(values) for values in several)
    return math.sqrt(squares / freedom), freedom
