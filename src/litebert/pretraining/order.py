"""What keeps the order loss alive until there is something to learn from it.

Sentence order is a weak signal at first, and two things are stronger. The first tokens of all inputs are nearly the
same vector, so a batch that happens to have more swapped pairs than not moves the pooler towards "swapped" for
everything, further than anything about order moves it. And as long as an answer is no better than a coin the quickest
way to a lower loss is to answer less firmly: the head shrinks, and with it what comes through to the layers, until
nothing does. Here both answers count the same in every batch, and order pulls at the states as hard as it should
whatever the size of its head. Pooler and head themselves learn by the loss as it is.
"""

from typing import Any, cast

import torch
from torch import Tensor

NOTHING = 1e-20  # added to a norm that may be zero


def even_weights(labels: Tensor) -> Tensor:
    """Weights for labels 0 and 1 with which both count the same, and all together as much as without."""
    counts = torch.stack([(labels == label).sum() for label in (0, 1)]).float()
    return counts.sum() / (2 * counts.clamp(min=1))


def with_pull(words: Tensor, order: Tensor, pull: float) -> tuple[Tensor, Tensor]:
    """States for masked words, and for order, whose gradient is made ``pull`` times as large as theirs; 0: as it is."""
    if not pull:
        return words, order
    # A view, as both may be one tensor: with the same one twice, torch 2.11 compiles a backward pass that loses words'.
    return cast(tuple[Tensor, Tensor], _Pulled.apply(words, order.view_as(order), pull))


class _Pulled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, words: Tensor, order: Tensor, pull: float) -> tuple[Tensor, Tensor]:
        ctx.pull = pull
        return words.view_as(words), order.view_as(order)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        words, order = gradients
        scale = ctx.pull * words.float().norm() / (order.float().norm() + NOTHING)
        return words, (scale * order.float()).to(order.dtype), None
