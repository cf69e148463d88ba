"""What torch's Muon is given for the matrices that it cannot take as they are.

It makes a parameter orthogonal as a whole, and it knows nothing of ranks. So a fused query-key-value weight goes in as
three views of it, and a matrix that is sharded over ranks as a whole copy, gathered before each step and cut up again
after it: every rank then does the same work and holds the momentum of whole matrices, which is right though not small.
"""

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate


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
