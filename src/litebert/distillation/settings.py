"""How a student learns from its teacher. No torch."""

from dataclasses import dataclass
from typing import Literal, get_args

from litebert.errors import InputError, nearest

States = Literal["none", "final", "depths"]


@dataclass(frozen=True, kw_only=True)
class DistillSettings:
    """The parts of the loss. ``hard`` is the share of the labels; the teacher's answers have the rest."""

    temperature: float = 2.0
    hard: float = 0.5
    states: States = "none"
    states_weight: float = 1.0

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise InputError(f"--temperature is {self.temperature:g} but must be more than 0; 2 is usual")
        if not 0 <= self.hard <= 1:
            raise InputError(f"--hard is {self.hard:g} but is a share: 0 (only the teacher) to 1 (only the labels)")
        if self.states_weight <= 0:
            raise InputError(f"--states-weight is {self.states_weight:g} but must be more than 0")
        if self.hard == 1 and self.states == "none":
            raise InputError("--hard 1 learns nothing from the teacher; that is what `litebert finetune` does")

    def weights(self) -> dict[str, float]:
        """Of the parts of the loss, by name."""
        found = {"task": self.hard, "soft": 1 - self.hard}
        return found if self.states == "none" else {**found, "states": self.states_weight}


def parse_states(word: str) -> States:
    """What ``--states`` names."""
    for states in get_args(States):
        if states == word:
            return states
    raise InputError(f"--states is '{word}' but must be none, final or depths{nearest(word, get_args(States))}")
