"""How alike the states of two depths are: linear CKA, which asks whether they place the same tokens near each other.

CKA ignores rotation, scale and the common direction that all states of a model share, and which makes plain cosines of
different depths look alike. It is estimated without bias from small groups of tokens (HSIC_1 of Song et al., summed
over groups before dividing, as Nguyen, Raghu and Kornblith do), so memory does not grow with the text.

T tokens, n tokens of a group, H width, D depths.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

GROUP = 256
FEWEST = 4  # below, the unbiased estimate does not exist


def group_hsic(states: Tensor) -> Tensor:
    """(D, n, H) states of one group of tokens to the unbiased HSIC (D, D) of every pair of depths."""
    centred = states - states.mean(1, keepdim=True)  # changes nothing but the rounding
    products = centred @ centred.mT
    products.diagonal(dim1=1, dim2=2).zero_()
    n = products.shape[-1]
    rows = products.sum(-1)
    totals = rows.sum(-1)
    flat = products.flatten(1)
    same = flat @ flat.mT
    return (same + torch.outer(totals, totals) / ((n - 1) * (n - 2)) - 2 / (n - 2) * rows @ rows.mT) / (n * (n - 3))


class Similarity:
    """Linear CKA between all depths, over batches."""

    def __init__(self) -> None:
        self._hsic: Tensor | None = None

    def add(self, states: Sequence[Tensor]) -> None:
        """The states (T, H) of a batch at every depth. Groups take their tokens from all over the batch."""
        groups = -(-states[0].shape[0] // GROUP)
        for group in range(groups):
            some = torch.stack([depth[group::groups] for depth in states]).double()
            if some.shape[1] >= FEWEST:
                hsic = group_hsic(some).cpu() * some.shape[1]
                self._hsic = hsic if self._hsic is None else self._hsic + hsic

    def value(self) -> list[list[float]]:
        """The matrix, embeddings first; empty where there were too few tokens to tell."""
        if self._hsic is None:
            return []
        own = self._hsic.diagonal().clamp(min=1e-30).sqrt()
        return [[float(x) for x in row] for row in (self._hsic / torch.outer(own, own)).clamp(0, 1)]
