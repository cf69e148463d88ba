"""Where a run is: all that a saved state has to say of it besides weights, optimiser and random numbers."""

from dataclasses import dataclass, field

from litebert.train.objective import Position


@dataclass
class Place:
    """Where a run is."""

    step: int = 0
    tokens: int = 0
    flops: float = 0.0  # arithmetic of all ranks; counted where it bounds the run
    seconds: float = 0.0
    lead: float = 0.0  # of those, what passed before the first step was done (imports, compiling): not in the schedule
    rate_scale: float = 1.0  # lowered by rollbacks
    rollbacks: int = 0
    positions: dict[str, Position] = field(default_factory=dict)  # of each stream of batches, by its stages' name
    stage: int = 0  # of the losses that the guard was told of last
