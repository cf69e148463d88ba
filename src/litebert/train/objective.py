"""What is learnt, as the trainer sees it. Pretraining and fine-tuning differ in nothing else."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from litebert.nn.network import Network

Position = tuple[int, int]  # (epoch, index) of a micro-batch
Sums = dict[str, tuple[Tensor, Tensor]]  # loss and right of every part


class Source(Protocol):
    """Micro-batches (of a type that its objective knows) by position: the same for any number of ranks."""

    def stream(self, start: Position, *, rank: int, world: int, workers: int) -> Iterator[Any]: ...
    def advance(self, position: Position, count: int) -> Position: ...


@dataclass(frozen=True)
class Part:
    """One part of the loss over a micro-batch: sums, so that ranks and micro-batches can be added up."""

    loss: Tensor
    right: Tensor


class Objective(Protocol):
    """A loss with named parts, each a sum divided by the number of items in the whole batch."""

    def counts(self, batch: Any) -> Mapping[str, int]:
        """How many items each part has; known on the host, so that nothing waits for the device."""
        ...

    def tensors(self, batch: Any, device: torch.device) -> Mapping[str, Tensor]:
        """What goes to the device."""
        ...

    def parts(self, network: Network, tensors: Mapping[str, Tensor]) -> dict[str, Part]:
        """The sums of every part. Compiled as a whole."""
        ...


# What the network in training loses on the tensors of a batch.
SumsOf = Callable[[Objective, Mapping[str, Tensor]], Sums]


class Choice(Protocol):
    """Makes the micro-batch that is trained on out of more candidates, perhaps by asking the network."""

    def __call__(self, sums: SumsOf, candidates: Any, device: torch.device) -> tuple[Any, float]:
        """The micro-batch, and the arithmetic that choosing took. No gradients are kept."""
        ...


@dataclass(frozen=True)
class Stage:
    """A source of micro-batches and how to learn from them, from some progress on (a sequence length, say)."""

    name: str  # of its stream: stages of one name and source continue one stream of batches
    begin: float  # progress at which this stage begins
    source: Source
    objective: Objective
    flops: Callable[[Any], float] | None = None  # arithmetic of a step on one micro-batch
    weights: Mapping[str, float] = field(default_factory=dict)  # of the parts of the loss; default: 1
    missing: str = ""  # why it cannot be trained here: the run stops before it
    choice: Choice | None = None  # what the source has are candidates for it

    def weight(self, part: str) -> float:
        """What a part of the loss counts for."""
        return self.weights.get(part, 1.0)


def on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on its way to a device; nothing waits for it."""
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


class Learner(nn.Module):
    """Network and objective as one module, so that it can be compiled, copied to ranks and sharded."""

    def __init__(self, network: Network, objective: Objective) -> None:
        super().__init__()
        self.network = network
        self.objective = objective

    def forward(self, tensors: Mapping[str, Tensor]) -> Sums:
        return {name: (part.loss, part.right) for name, part in self.objective.parts(self.network, tensors).items()}


def prepare_compiler(stages: int) -> None:
    """Room for a graph of every stage (beyond its limit torch runs uncompiled, and slowly), and no idle warnings."""
    warnings.filterwarnings("ignore", r"\s*Online softmax is disabled", UserWarning)  # of no use to who trains
    # Else a graph with a function of our own in it is traced again at every start, though its kernels are kept.
    if hasattr(torch._functorch.config, "autograd_cache_allow_custom_autograd_functions"):
        torch._functorch.config.autograd_cache_allow_custom_autograd_functions = True
    config = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, 2 * stages + 6)
