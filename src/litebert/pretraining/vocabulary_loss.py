"""Cross entropy over the vocabulary without ever holding all logits: what masked LM costs where nothing is compiled.

The loss of some positions and its gradients are made while their logits are in reach of the processor, then the logits
are overwritten by the next. Nothing is computed twice, and on a CPU it takes 0.6 to 0.7 of the time of the plain way.

M masked positions, V vocabulary, E width of the table.
"""

from typing import Any

import torch
from torch import Tensor

from litebert.train.objective import Part

IGNORED = -100
IN_CACHE = 128  # positions at once on a CPU


def vocabulary_loss(
    states: Tensor, table: Tensor, bias: Tensor, targets: Tensor, chunk: int, weights: Tensor | None = None
) -> Part:
    """The sums of ``cross_entropy(states @ table.T + bias, targets)`` over the targets that count, and the hits.

    ``weights`` (M) multiply the losses.
    """
    size = min(chunk, IN_CACHE) if states.device.type == "cpu" else chunk
    learns = torch.is_grad_enabled()
    counted = (targets != IGNORED).float() if weights is None else weights.float() * (targets != IGNORED)
    return Part(*_VocabularyLoss.apply(states, table, bias, targets, counted, size, _product_type(states), learns))


def _product_type(states: Tensor) -> torch.dtype:
    """bf16 under that autocast; fp32 otherwise, fp16 among them, in which these gradients would vanish."""
    kind = states.device.type
    low = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.bfloat16
    return torch.bfloat16 if low else torch.float32


class _VocabularyLoss(torch.autograd.Function):
    """Gradients are made in the forward pass, for a loss of weight one, and weighed in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        table: Tensor,
        bias: Tensor,
        targets: Tensor,
        counted: Tensor,
        size: int,
        dtype: torch.dtype,
        learns: bool,
    ) -> tuple[Tensor, Tensor]:
        with torch.autocast(states.device.type, enabled=False):
            low_table = table.to(dtype)
            gradients = [torch.zeros_like(tensor, dtype=torch.float32) for tensor in (states, table, bias)]
            loss, right = bias.new_zeros(()), targets.new_zeros(())
            for begin in range(0, targets.shape[0], size):
                place = slice(begin, begin + size)
                low_states, wanted = states[place].to(dtype), targets[place, None]
                logits = _logits(low_states, low_table, bias)
                lost, hits = _exponentials(logits, wanted, counted[place, None])
                loss += lost
                right += hits
                if learns:
                    low = logits.to(dtype)
                    gradients[0][place] = low @ low_table
                    gradients[1] += low.T @ low_states
                    gradients[2] += logits.sum(0)
        ctx.save_for_backward(*gradients)
        ctx.types = states.dtype, table.dtype, bias.dtype
        ctx.mark_non_differentiable(right)
        return loss, right

    @staticmethod
    def backward(ctx: Any, *weights: Tensor) -> tuple[Tensor | None, ...]:
        found = [(gradient * weights[0]).to(kind) for gradient, kind in zip(ctx.saved_tensors, ctx.types, strict=True)]
        return (*found, None, None, None, None, None)


def _logits(states: Tensor, table: Tensor, bias: Tensor) -> Tensor:
    """(M, V) logits in fp32."""
    if states.dtype == torch.float32:
        return torch.addmm(bias, states, table.T)
    return (states @ table.T).float().add_(bias)


def _exponentials(logits: Tensor, wanted: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """The loss and hits of logits (M, V) for ``wanted`` (M, 1), weighted by ``counted``.

    The logits turn into their own gradient.
    """
    place = wanted.clamp_min(0)
    largest, first = logits.max(-1, keepdim=True)
    wanted_logit = logits.gather(1, place)
    total = logits.sub_(largest).exp_().sum(-1, keepdim=True)
    lost = (total.log() + largest - wanted_logit) * counted
    logits.mul_(counted / total)
    logits.scatter_add_(1, place, -counted.to(logits.dtype))
    return lost.sum(), (first == wanted).sum()
