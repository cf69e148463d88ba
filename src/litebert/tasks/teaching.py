"""What fine-tuning asks of a teacher: another model that a run learns from, beside the labels of its task."""

from collections.abc import Mapping
from typing import Any, Protocol

import torch

from litebert.nn.network import Network
from litebert.runs import Parent
from litebert.tasks.objective import TaskObjective
from litebert.train.objective import Objective


class Teaching(Protocol):
    """A teacher and how to learn from it. The same one serves any number of runs."""

    def begin(
        self, own: TaskObjective, network: Network, device: torch.device
    ) -> tuple[Objective, Mapping[str, float]]:
        """The objective that takes the place of the task's own, and the weights of its parts.

        What it must learn besides (a projection) it adds to the heads of the network.
        """
        ...

    def end(self, network: Network) -> None:
        """Take out of the network what ``begin`` put there."""
        ...

    def facts(self) -> Mapping[str, Any]:
        """What must be the same when a run is resumed, as plain values."""
        ...

    def parents(self) -> list[Parent]:
        """The teacher, for the note of a run."""
        ...
