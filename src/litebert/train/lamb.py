"""LAMB as released with ALBERT: Adam's direction, then a step of each tensor in proportion to that tensor's own size.

No bias correction, decoupled weight decay inside the trust ratio, the ratio unclipped (PAPERS.md, section 3). A
tensor sharded over ranks (a DTensor) has the norms of the whole tensor: norms of the shards would be wrong by as much
as the update itself. All norms of a step travel in one sum over the ranks.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast, overload

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor

Bounds = list[tuple[int, int]]  # the rows of each part of a tensor


@dataclass(frozen=True)
class _Move:
    """A tensor and where it is to go, both as this rank holds them, before the trust ratio."""

    parameter: Tensor  # the optimiser's own, whole or sharded
    here: Tensor
    update: Tensor
    parts: int
    rate: float


class Lamb(torch.optim.Optimizer):
    """Groups may say ``trust`` (False: no trust ratio) and ``parts`` (n: a ratio for each nth of the rows by itself).

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
        self._bounds: dict[Tensor, Bounds] = {}

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One update of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        trusted: list[_Move] = []
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not parameters:
                continue
            here = [_local(parameter) for parameter in parameters]
            updates = self._directions(group, parameters, here)
            if group["trust"]:
                moves = zip(parameters, here, updates, strict=True)
                trusted += [_Move(p, local, update, group["parts"], group["lr"]) for p, local, update in moves]
            else:
                torch._foreach_add_(here, updates, alpha=-group["lr"])
        self._move(trusted)
        return loss

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

    def _move(self, moves: list[_Move]) -> None:
        """Scale each part of each update by ||p|| / ||update||, 1 where either is zero, and take the steps."""
        if not moves:
            return
        weights: list[Tensor] = []
        updates: list[Tensor] = []
        for move in moves:
            for begin, end in self._rows(move.parameter, move.parts):
                weights.append(move.here[begin:end])
                updates.append(move.update[begin:end])
        norms = torch.stack(torch._foreach_norm(weights + updates))
        of_weights, of_updates = _summed(norms.square(), moves).sqrt().view(2, -1)
        usable = (of_weights > 0) & (of_updates > 0)
        ratios = torch.where(usable, of_weights / of_updates, 1.0)
        torch._foreach_mul_(updates, list(ratios.unbind()))  # in place, so the moves' updates are scaled
        by_rate: dict[float, list[_Move]] = {}
        for move in moves:
            by_rate.setdefault(move.rate, []).append(move)
        for rate, some in by_rate.items():
            torch._foreach_add_([move.here for move in some], [move.update for move in some], alpha=-rate)

    def _rows(self, parameter: Tensor, parts: int) -> Bounds:
        """Which of this rank's rows belong to each part."""
        if parts == 1:
            return [(0, len(_local(parameter)))]
        if parameter not in self._bounds:
            assert len(parameter) % parts == 0, f"{len(parameter)} rows in {parts} parts"
            first, count, size = _first_row(parameter), len(_local(parameter)), len(parameter) // parts
            edges = [min(max(part * size - first, 0), count) for part in range(parts + 1)]
            self._bounds[parameter] = list(pairwise(edges))
        return self._bounds[parameter]


def _local(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor; everything but norms works element by element."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _first_row(parameter: Tensor) -> int:
    """The number, in the whole tensor, of the first row that this rank holds."""
    if not isinstance(parameter, DTensor):
        return 0
    numbers = torch.arange(len(parameter), device=parameter.device)
    by_row = [place if place.is_shard(0) else Replicate() for place in parameter.placements]
    held = distribute_tensor(numbers, parameter.device_mesh, by_row, src_data_rank=None).to_local()
    return int(held[0]) if len(held) else 0


def _summed(squares: Tensor, moves: list[_Move]) -> Tensor:
    """Sums of squares (two rows: weights, updates) added up over the ranks that hold shards."""
    first = moves[0].parameter
    if not any(isinstance(move.parameter, DTensor) for move in moves):
        return squares
    assert isinstance(first, DTensor)
    # One model is sharded one way; parts of it sharded in several would need a sum for each.
    assert all(
        isinstance(move.parameter, DTensor)
        and move.parameter.device_mesh == first.device_mesh
        and _shards(move.parameter) == _shards(first)
        for move in moves
    ), "LAMB needs all parameters sharded over the same ranks"
    partial: list[Placement] = [Partial() if shards else Replicate() for shards in _shards(first)]
    return DTensor.from_local(squares, first.device_mesh, partial).full_tensor()


def _shards(tensor: DTensor) -> list[bool]:
    """Along which dimensions of the mesh a tensor is cut."""
    return [isinstance(place, Shard) for place in tensor.placements]
