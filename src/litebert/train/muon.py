"""torch's Muon with the matrices of one shape made orthogonal together, and what it is given for some of them.

Its state, settings and results are torch's. Torch takes matrices one at a time, some 35 small kernels for each, and an
unshared BERT has 72. And always in bf16, which most laptops do not multiply in: there it takes longer than all the rest
of a step. Here it is fp32 then.

Muon makes a parameter orthogonal as a whole, and knows nothing of ranks. So a fused query-key-value weight goes in as
three views of it, and a matrix that is sharded over ranks as a whole copy, gathered before each step and cut up again
after it: every rank then does the same work and holds the momentum of whole matrices, which is right though not small.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate

from litebert.train.precision import has_bf16


class Substitutes:
    """The tensors that stand for one matrix, ``names`` and ``tensors`` side by side."""

    def __init__(self, name: str, source: nn.Parameter, parts: int) -> None:
        self.source, self.parts = source, parts
        if isinstance(source, DTensor):
            self.whole: Tensor = torch.empty(source.shape, dtype=source.dtype, device=source.device)
        else:
            self.whole = source.detach()
        self.tensors = list(self.whole.chunk(parts))
        self.names = [name] if parts == 1 else [f"{name}.{number}" for number in range(parts)]

    def before_step(self) -> None:
        """Take over the weights and gradients of the matrix."""
        gradient = self.source.grad
        if isinstance(self.source, DTensor) and isinstance(gradient, DTensor):
            self.whole.copy_(self.source.full_tensor())
            gradient = gradient.full_tensor()
        elif self.whole.data_ptr() != self.source.data_ptr():
            raise RuntimeError("a network must be on its device before its optimiser is built")
        pieces = [None] * self.parts if gradient is None else list(gradient.chunk(self.parts))
        for tensor, piece in zip(self.tensors, pieces, strict=True):
            tensor.grad = piece

    def after_step(self) -> None:
        """Give the weights back; views have changed the matrix itself."""
        for tensor in self.tensors:
            tensor.grad = None
        if isinstance(self.source, DTensor) and self.source.grad is not None:
            mesh, places = self.source.device_mesh, self.source.placements
            everywhere = DTensor.from_local(self.whole, mesh, [Replicate()] * mesh.ndim, run_check=False)
            self.source.copy_(everywhere.redistribute(mesh, places))


class StackedMuon(torch.optim.Muon):
    """Muon by the stack; Nesterov's momentum, rates adjusted as by Muon's author (torch's defaults)."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every matrix that has a gradient; there is nothing to call."""
        for group in self.param_groups:
            self._update(group)

    def _update(self, group: dict[str, Any]) -> None:
        matrices = [matrix for matrix in group["params"] if matrix.grad is not None]
        if not matrices:
            return
        gradients, momenta = [matrix.grad for matrix in matrices], [self._momentum(matrix) for matrix in matrices]
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        ahead = torch._foreach_lerp(gradients, momenta, group["momentum"])
        dtype = torch.bfloat16 if has_bf16(ahead[0].device) else torch.float32
        directions = orthogonal(ahead, dtype, group["ns_coefficients"], group["ns_steps"], group["eps"])
        torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
        for matrix, direction in zip(matrices, directions, strict=True):
            rows, columns = matrix.shape
            matrix.add_(direction, alpha=-group["lr"] * max(1.0, rows / columns) ** 0.5)

    def _momentum(self, matrix: Tensor) -> Tensor:
        state = self.state[matrix]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        buffer: Tensor = state["momentum_buffer"]
        return buffer


def orthogonal(
    matrices: Sequence[Tensor], dtype: torch.dtype, coefficients: tuple[float, float, float], steps: int, eps: float
) -> list[Tensor]:
    """Each matrix with all its singular values near 1, by Newton and Schulz's iteration."""
    wide = [matrix.T if matrix.shape[0] > matrix.shape[1] else matrix for matrix in matrices]
    found = list(wide)
    for shape in {tuple(matrix.shape) for matrix in wide}:
        places = [place for place, matrix in enumerate(wide) if tuple(matrix.shape) == shape]
        stack = _iterate(torch.stack([wide[place].to(dtype) for place in places]), coefficients, steps, eps)
        for place, result in zip(places, stack.unbind(), strict=True):
            found[place] = result
    return [
        result.T if matrix.shape[0] > matrix.shape[1] else result
        for matrix, result in zip(matrices, found, strict=True)
    ]


def _iterate(stack: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    a, b, c = coefficients
    stack = stack / torch.linalg.vector_norm(stack, dim=(1, 2), keepdim=True).clamp(min=eps)
    for _ in range(steps):
        gram = stack @ stack.mT
        stack = torch.baddbmm(stack, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), stack, beta=a)
    return stack
