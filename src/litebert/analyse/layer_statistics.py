"""How much a layer changes what passes through it: distance and angle (ALBERT, figure 1), and contribution.

Contribution is Poor Man's BERT's measure: the mean cosine between the ``[CLS]`` state that goes into a layer and the
one that comes out. A cosine near 1 means that the layer changes little, so it goes first.

T tokens, S sequences, H width, L layers.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from litebert.analyse.inputs import Inputs
from litebert.nn.encoder import Encoder
from litebert.nn.layout import Layout


class Mean:
    """The mean of rows that arrive in batches, summed in double precision."""

    def __init__(self) -> None:
        self._sum: Tensor | None = None
        self._count = 0

    def add(self, rows: Tensor) -> None:
        """(n, ...) more rows."""
        total = rows.double().sum(0).cpu()
        self._sum = total if self._sum is None else self._sum + total
        self._count += rows.shape[0]

    def value(self) -> Tensor:
        assert self._sum is not None, "nothing was added"
        return self._sum / self._count


def distances(states: Sequence[Tensor]) -> Tensor:
    """(T, L) the length of the step each layer takes with each token."""
    return torch.stack([(after - before).norm(dim=-1) for before, after in _steps(states)], dim=-1)


def angles(states: Sequence[Tensor]) -> Tensor:
    """(T, L) the angle in degrees between each token's state before a layer and after it."""
    return torch.stack([angle(before, after) for before, after in _steps(states)], dim=-1)


def angle(a: Tensor, b: Tensor) -> Tensor:
    """Degrees between vectors; by half angles, since an arc cosine loses half its digits where vectors are alike."""
    a, b = (x / x.norm(dim=-1, keepdim=True).clamp(min=1e-30) for x in (a, b))
    return torch.rad2deg(2 * torch.atan2((a - b).norm(dim=-1), (a + b).norm(dim=-1)))


def cls_states(states: Sequence[Tensor], layout: Layout, pooled_token: str) -> list[Tensor]:
    """For each depth the states (S, H) of the token that stands for a text: the first, in XLNet the last."""
    places = layout.first if pooled_token == "first" else layout.last
    return [depth[places].double() for depth in states]


def cosines(states: Sequence[Tensor]) -> Tensor:
    """(S, L) the cosine between the states before and after each layer."""
    return torch.stack([torch.cosine_similarity(before, after, dim=-1) for before, after in _steps(states)], dim=-1)


def _steps(states: Sequence[Tensor]) -> Iterable[tuple[Tensor, Tensor]]:
    return pairwise(states)


@torch.no_grad()
def contribution(encoder: Encoder, batches: Iterable[Inputs]) -> list[float]:
    """The mean ``[CLS]`` cosine of every layer over a text, the bottom layer first."""
    mean = Mean()
    for inputs in batches:
        states = encoder.states(inputs.ids, inputs.layout, inputs.segments)
        mean.add(cosines(cls_states(states, inputs.layout, encoder.config.pooled_token)))
    return [float(cosine) for cosine in mean.value()]
