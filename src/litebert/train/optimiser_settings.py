"""The settings of an optimiser, checked when they are made. No torch here, so that recipes are shown in an instant."""

import math
from dataclasses import dataclass
from typing import Literal

from litebert.errors import InputError, nearest

OptimiserName = Literal["adamw", "lamb", "muon"]
OPTIMISERS: tuple[OptimiserName, ...] = ("adamw", "lamb", "muon")
PARTS = ("embeddings", "attention", "feed_forward", "pooler", "heads")


@dataclass(frozen=True, kw_only=True)
class OptimiserSettings:
    """Which optimiser, and its numbers; those of the paper's recipe unless said otherwise (PAPERS.md, section 3).

    ``part_rates`` multiplies the rate of parts of the model, such as (("attention", 0.1), ("embeddings", 3.0)). The
    pooler's part has the order head in it, too.
    """

    name: OptimiserName = "adamw"
    rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6
    weight_decay: float = 0.01  # never on norms and biases
    part_rates: tuple[tuple[str, float], ...] = ()
    muon_rate: float = 0.02  # of the matrices inside the blocks, where the name is muon; all else has ``rate``
    muon_momentum: float = 0.95

    def __post_init__(self) -> None:
        if self.name not in OPTIMISERS:
            raise InputError(f"there is no optimiser '{self.name}'{nearest(self.name, OPTIMISERS)}")
        for name in ("rate", "muon_rate", "eps"):
            if not (0 < getattr(self, name) < math.inf):
                raise InputError(f"{name} is {getattr(self, name)} but must be a number above 0")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise InputError(f"betas is {self.betas} but must be two numbers from 0 to below 1, such as 0.9 and 0.999")
        if not 0 <= self.weight_decay < math.inf:
            raise InputError(f"weight_decay is {self.weight_decay} but must be 0 or more")
        if not 0 <= self.muon_momentum < 1:
            raise InputError(f"muon_momentum is {self.muon_momentum} but must lie from 0 to below 1")
        self._check_part_rates()

    def _check_part_rates(self) -> None:
        seen = set()
        for part, factor in self.part_rates:
            if part not in PARTS:
                raise InputError(f"part_rates names the part '{part}', which no model has{nearest(part, PARTS)}")
            if part in seen:
                raise InputError(f"part_rates names the part '{part}' twice; give it one factor")
            if not 0 <= factor < math.inf:
                raise InputError(f"part_rates has {factor} for {part} but a factor must be 0 or more")
            seen.add(part)

    def part_rate(self, part: str) -> float:
        """The factor of a part of the model."""
        return dict(self.part_rates).get(part, 1.0)
