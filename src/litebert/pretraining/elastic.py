"""Elastic depth: one set of weights that works at many depths, because every step trains two of them.

The deepest and a random shallower one come out of one pass: the states of the shallower depth are on the way. Both
learn from the labels, and the shallower also from what the deeper one predicts. Which depth is drawn follows from the
seed and the batch's place in the stream, so that a resumed run, or one with more ranks, draws the same. It reaches the
network as a tensor: one compiled graph does for all depths.

M masked positions, D depths to choose from, H width.
"""

import random
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from litebert.corpus.batches import Batch
from litebert.nn.layout import Layout
from litebert.nn.network import Network
from litebert.pretraining.objective import Pretraining, part_sums, scale_order_gradient
from litebert.pretraining.vocabulary_loss import IGNORED
from litebert.train.objective import Part, on_device

MIN_DEPTH = 3  # layers; fewer where a quarter of all is fewer
EVERY = 2  # the shallower depth learns at every second masked position: its logits cost more time than its layers
WEIGHTS = {"shallow_mlm": 0.5, "taught": 0.5, "shallow_order": 0.5}  # beside 1 for the deepest depth's own losses


def shallower_depths(in_force: int, full: int) -> tuple[int, ...]:
    """The depths that may be drawn beside the one in force."""
    return tuple(range(min(MIN_DEPTH, max(1, round(full / 4))), in_force))


def quarters(full: int) -> tuple[int, ...]:
    """The depths that figures are given for: a quarter, half, three quarters and all of the layers."""
    return tuple(sorted({max(1, round(full * quarter / 4)) for quarter in (1, 2, 3, 4)}))


class Elastic:
    """Pretraining's losses at one depth and, half the weight, at a random one of ``shallower``."""

    def __init__(self, deep: Pretraining, shallower: Sequence[int], seed: int) -> None:
        assert shallower and deep.depth is not None
        self.deep, self.shallower, self.seed = deep, tuple(shallower), seed
        self.depth, self.longest = deep.depth, deep.longest

    def choice(self, batch: Batch) -> int:
        """Which of the shallower depths a batch trains, the shallowest most often: it has most to learn by itself."""
        draw = random.Random(f"{self.seed} {batch.epoch} {batch.index}")
        return draw.choices(range(len(self.shallower)), [1 / depth for depth in self.shallower])[0]

    def counts(self, batch: Batch) -> dict[str, int]:
        some = int((batch.mask_targets[::EVERY] != IGNORED).sum())
        counts = self.deep.counts(batch)
        return {**counts, "shallow_mlm": some, "taught": some, "shallow_order": counts["order"]}

    def tensors(self, batch: Batch, device: torch.device) -> dict[str, Tensor]:
        chosen = torch.tensor([self.choice(batch)])
        return {**self.deep.tensors(batch, device), "shallower": on_device(chosen, device)}

    def parts(self, network: Network, tensors: Mapping[str, Tensor]) -> dict[str, Part]:
        layout = Layout(tensors["starts"], tensors["positions"], self.longest)
        states = network.encoder.states(tensors["ids"], layout, tensors["segments"], depth=self.depth)
        deep, shallow = states[self.depth], [states[depth] for depth in self.shallower]
        places, chosen, ratio = tensors["mask_positions"], tensors["shallower"], self.deep.order_grad_ratio
        student, other = (_chosen([each[some] for each in shallow], chosen) for some in (places[::EVERY], layout.first))
        teacher, first = scale_order_gradient(deep[places], deep[layout.first], ratio)
        student, other = scale_order_gradient(student, other, ratio)
        parts = self._masked_lm(network, teacher, student, tensors["mask_targets"])
        for name, pooled in (("order", first), ("shallow_order", other)):
            parts |= self.deep.order(network, pooled, _one_token_each(pooled), tensors["order_labels"], name)
        return parts

    def _masked_lm(self, network: Network, deep: Tensor, student: Tensor, targets: Tensor) -> dict[str, Part]:
        """Both depths' sums at (M, H) and (M / EVERY, H) states, in chunks as ``Pretraining`` has them."""

        def some(deep: Tensor, student: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
            logits, shown = (network.masked_lm_at(states).float() for states in (deep, student))
            wanted = targets[::EVERY]
            found = part_sums(logits, targets), part_sums(shown, wanted), _taught(shown, logits[::EVERY], wanted)
            return tuple(tensor for part in found for tensor in (part.loss, part.right))

        chunk = self.deep.chunk
        if not chunk or targets.shape[0] <= chunk:
            sums = some(deep, student, targets)
        else:
            pieces = zip(deep.split(chunk), student.split(chunk // EVERY), targets.split(chunk), strict=True)
            rows = [checkpoint(some, *piece, use_reentrant=False) for piece in pieces]
            sums = tuple(torch.stack(column).sum() for column in zip(*rows, strict=True))
        return {name: Part(*sums[2 * n : 2 * n + 2]) for n, name in enumerate(("mlm", "shallow_mlm", "taught"))}


def _chosen(tensors: Sequence[Tensor], index: Tensor) -> Tensor:
    """One of several tensors of one shape by a tensor of one index, so that the graph is the same for each."""
    return torch.stack(list(tensors)).index_select(0, index).squeeze(0)


def _one_token_each(states: Tensor) -> Layout:
    """The layout of states (S, H) that are one token of each sequence."""
    count = states.shape[0]
    starts = torch.arange(count + 1, dtype=torch.int32, device=states.device)
    return Layout(starts, torch.zeros(count, dtype=torch.int64, device=states.device), 1)


def _taught(logits: Tensor, teacher: Tensor, targets: Tensor) -> Part:
    """Divergence from the teacher's predictions, and how often both have the same first choice."""
    teacher, counted = teacher.detach(), targets != IGNORED
    wanted = F.log_softmax(teacher, -1)
    lost = F.kl_div(F.log_softmax(logits, -1), wanted, reduction="none", log_target=True).sum(-1)
    same = logits.detach().argmax(-1) == teacher.argmax(-1)
    return Part((lost * counted).sum(), (same & counted).sum())
