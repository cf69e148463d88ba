"""An average of the weights over the steps of a run: often a better model than the last step's, and nearly for nothing.

The average is kept in fp32 beside the weights, on their device and sharded as they are. How far back it reaches is a
share of the run, so that a recipe suits runs of any length, also those that end by the clock. It never touches
training: it is read off after each step, and changes places with the weights only to be scored or saved.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from litebert.nn.network import Network
from litebert.train import parallel
from litebert.train.callbacks import Callback
from litebert.train.objective import Objective, SumsOf
from litebert.train.settings import AverageSettings

if TYPE_CHECKING:
    from litebert.train.trainer import Evaluate, Trainer

PREFIX = "averaged_"  # of the average's figures on held-out text


class WeightAverage(Callback):
    """Averages the weights of a network in training."""

    name = "average"

    def __init__(self, network: Network, settings: AverageSettings) -> None:
        self.network, self.settings = network, settings
        self._trained: dict[str, Tensor] = {}  # the weights in training, or this rank's shards
        self._averages: dict[str, Tensor] = {}  # empty until averaging has begun
        self._seen = 0  # steps in the average
        self._progress = 0.0  # at the last of them

    @property
    def has_begun(self) -> bool:
        """Whether there is an average."""
        return bool(self._averages)

    @torch.no_grad()
    def on_update(self, trainer: "Trainer") -> None:
        progress = trainer.progress_of_step
        if self.settings.kind == "uniform" and progress < 1 - self.settings.span:
            return
        if not self._trained:
            self._trained = self._tensors()
        if not self._averages:
            self._averages = {name: tensor.clone() for name, tensor in self._trained.items()}
            self._seen, self._progress = 1, progress
            return
        self._seen += 1
        if self.settings.kind == "uniform":
            weight = 1 / self._seen
        else:
            weight = 1 - math.exp(-max(progress - self._progress, 0.0) / self.settings.span)
        self._progress = progress
        torch._foreach_lerp_(list(self._averages.values()), list(self._trained.values()), weight)

    def scored_too(self, evaluate: "Evaluate") -> "Evaluate":
        """The same figures, and those of the average under names that begin with ``PREFIX``."""

        def both(sums: SumsOf, objective: Objective) -> Mapping[str, float]:
            figures = dict(evaluate(sums, objective))
            if self.has_begun:
                with self.in_place():
                    again = evaluate(sums, objective)
                figures |= {f"{PREFIX}{name}": value for name, value in again.items() if name != "depth"}
            return figures

        return both

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """The network has the average for its weights; all ranks must do this together."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for name, weight in self._tensors().items():
            before = weight.clone()
            weight.copy_(self._averages[name])
            self._averages[name].copy_(before)

    def _tensors(self) -> dict[str, Tensor]:
        """Every parameter by name, once, in the memory it is trained in; of a sharded one this rank's part."""
        whole = self.network.state_dict()  # also gives up what was gathered of shards for the last pass
        return {name: parallel.local_tensor(whole[name]) for name, _ in self.network.named_parameters()}

    def state_dict(self) -> dict[str, Any]:
        patterns = self.network.state_dict()
        averages = {name: parallel.with_layout_of(patterns[name], local) for name, local in self._averages.items()}
        return {"seen": self._seen, "progress": self._progress, "weights": parallel.full_state(averages)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._seen, self._progress = state["seen"], state["progress"]
        patterns = self.network.state_dict()
        self._averages = {
            name: parallel.local_tensor(parallel.shard_like(tensor, patterns[name])).clone()
            for name, tensor in state["weights"].items()
        }
