"""A small head for every depth of a fine-tuned model, learnt on its frozen states with one pass over training data.

A head is linear and sees the state of the pooled token beside the mean of all tokens: low down, a text's meaning has
not yet come together in one token. The last depth has the model's own head.

D depths, N inputs, F features, L labels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.errors import InputError
from litebert.nn.layout import Layout
from litebert.nn.network import Network
from litebert.shrink.tuning import packed
from litebert.tasks.encoding import Inputs
from litebert.tasks.objective import takes_segments

DECAY = 1e-3  # of a head's weights, on features of unit variance
ROUNDS = 100  # of L-BFGS
SMALLEST = 1e-5  # spread of a feature, below which it is taken for constant


@dataclass(frozen=True)
class Head:
    """Scores (N, L) are features (N, F) times ``weight`` (F, L), plus ``bias`` (L)."""

    weight: Tensor
    bias: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        return features @ self.weight + self.bias


@torch.no_grad()
def features_of(network: Network, inputs: Inputs, device: str, report: Callable[[int], None]) -> Tensor:
    """(D, N, F) what the heads see of every input, at every depth above the embeddings."""
    encoder = network.encoder
    found: list[Tensor] = []
    done = 0
    for batch in packed(inputs, device):
        segments = batch.segments if takes_segments(network) else None
        states = encoder.states(batch.ids, batch.layout, segments)[1:]
        found.append(torch.stack([_both(network, one, batch.layout) for one in states]).float().cpu())
        done += batch.texts
        report(done)
    return torch.cat(found, dim=1)


def _both(network: Network, states: Tensor, layout: Layout) -> Tensor:
    """The pooled token's state beside the mean over the tokens of each sequence."""
    token = states[layout.first if network.config.encoder.pooled_token == "first" else layout.last]
    total = torch.zeros_like(token).index_add_(0, layout.sequence_of_token(), states)
    return torch.cat([token, total / layout.lengths[:, None]], dim=1)


def learn_heads(features: Tensor, targets: Sequence[int] | Sequence[float], num_labels: int) -> list[Head]:
    """A head for every depth; ``num_labels`` 0 is for a number to predict."""
    if features.shape[1] < 2:
        raise InputError("there is one training item; heads need two or more")
    if num_labels:
        labels = torch.tensor(targets, dtype=torch.long)
        return [_learn(one, lambda scores: F.cross_entropy(scores, labels), num_labels) for one in features]
    numbers = torch.tensor(targets, dtype=torch.float32)[:, None]
    return [_learn(one, lambda scores: F.mse_loss(scores, numbers), 1, numbers.mean(0)) for one in features]


def _learn(features: Tensor, loss: Callable[[Tensor], Tensor], width: int, bias: Tensor | None = None) -> Head:
    """The head that loses least, with some decay; there is one answer, so nothing is drawn by chance."""
    mean, spread = features.mean(0), features.std(0)
    even = (features - mean) / spread.clamp(min=SMALLEST)
    weight = torch.zeros(features.shape[1], width, requires_grad=True)
    offset = (torch.zeros(width) if bias is None else bias.clone()).requires_grad_(True)
    optimiser = torch.optim.LBFGS([weight, offset], max_iter=ROUNDS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        total = loss(even @ weight + offset) + DECAY * weight.square().sum()
        total.backward()
        return total

    optimiser.step(closure)
    plain = weight.detach() / spread.clamp(min=SMALLEST)[:, None]
    return Head(plain, offset.detach() - mean @ plain)
