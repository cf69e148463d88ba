"""LAMB as released with ALBERT: Adam's direction, then a step of each tensor in proportion to that tensor's own size.

No bias correction, decoupled weight decay inside the trust ratio, the ratio unclipped, as in ALBERT's released code. A
tensor sharded over ranks (a DTensor) has the norms of the whole tensor: norms of the shards would be wrong by as much
as the update itself. All norms of a step travel in one sum over the ranks.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, distribute_tensor


class Lamb(torch.optim.Optimizer):
    """A group has ``trust`` (False: no trust ratio) and ``parts`` (n: a ratio for each nth of the rows by itself).

    A fused query-key-value weight stands for three tensors of the paper, so it has three parts.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.00176,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "trust": True, "parts": 1}
        super().__init__(params, defaults)
        self._rows: dict[Tensor, list[tuple[int, int]]] = {}  # of each part of a tensor, on this rank

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every parameter that has a gradient; there is no closure to call."""
        steps: list[tuple[list[Tensor], list[Tensor], float]] = []
        trusted: list[tuple[Tensor, Tensor, Tensor, int]] = []  # parameter, what this rank has of it, update, parts
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not parameters:
                continue
            here = [_local(parameter) for parameter in parameters]
            updates = self._directions(group, parameters, here)
            steps.append((here, updates, group["lr"]))
            if group["trust"]:
                trusted += zip(parameters, here, updates, [group["parts"]] * len(here), strict=True)
        if trusted:
            self._scale(trusted)
        for here, updates, rate in steps:
            torch._foreach_add_(here, updates, alpha=-rate)

    def _directions(self, group: dict[str, Any], parameters: list[Tensor], here: list[Tensor]) -> list[Tensor]:
        """Adam's direction without bias correction, plus the decay of the weights."""
        beta1, beta2 = group["betas"]
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter]["mean"] = torch.zeros_like(parameter)
                self.state[parameter]["square"] = torch.zeros_like(parameter)
        means = [_local(self.state[parameter]["mean"]) for parameter in parameters]
        squares = [_local(self.state[parameter]["square"]) for parameter in parameters]
        gradients = [_local(cast(Tensor, parameter.grad)) for parameter in parameters]
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
        updates = list(torch._foreach_sqrt(squares))
        torch._foreach_add_(updates, group["eps"])
        torch._foreach_reciprocal_(updates)
        torch._foreach_mul_(updates, means)
        if group["weight_decay"]:
            torch._foreach_add_(updates, here, alpha=group["weight_decay"])
        return updates

    def _scale(self, trusted: list[tuple[Tensor, Tensor, Tensor, int]]) -> None:
        """Multiply each part of each update by ||p|| / ||update||, 1 where either is zero."""
        weights, updates = [], []
        for parameter, here, update, parts in trusted:
            for begin, end in self._parts(parameter, parts):
                weights.append(here[begin:end])
                updates.append(update[begin:end])
        squares = torch.stack(torch._foreach_norm(weights + updates)).square()
        first = trusted[0][0]
        if isinstance(first, DTensor):  # one model is sharded one way, over the ranks of one mesh
            assert all(isinstance(p, DTensor) and p.placements == first.placements for p, *_ in trusted)
            squares = DTensor.from_local(squares, first.device_mesh, [Partial()]).full_tensor()
        of_weights, of_updates = squares.sqrt().view(2, -1)
        usable = (of_weights > 0) & (of_updates > 0)
        ratios = torch.where(usable, of_weights / of_updates, 1.0)
        torch._foreach_mul_(updates, list(ratios.unbind()))

    def _parts(self, parameter: Tensor, parts: int) -> list[tuple[int, int]]:
        """Which of this rank's rows belong to each part."""
        if parameter not in self._rows:
            assert len(parameter) % parts == 0, f"{len(parameter)} rows in {parts} parts"
            first, count, size = _first_row(parameter), len(_local(parameter)), len(parameter) // parts
            edges = [min(max(part * size - first, 0), count) for part in range(parts + 1)]
            self._rows[parameter] = list(pairwise(edges))
        return self._rows[parameter]


def _local(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor; everything but norms works element by element."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _first_row(parameter: Tensor) -> int:
    """The number, in the whole tensor, of the first row that this rank holds."""
    if not isinstance(parameter, DTensor):
        return 0
    numbers = torch.arange(len(parameter), device=parameter.device)
    held = distribute_tensor(numbers, parameter.device_mesh, parameter.placements, src_data_rank=None).to_local()
    return int(held[0]) if len(held) else 0
