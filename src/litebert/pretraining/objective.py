"""The losses of pretraining: masked LM at the masked positions only, and sentence order (ALBERT section 3.1).

Sentence order is a weak signal at first, and two things are stronger. The first tokens of all inputs are nearly the
same vector, so a batch that happens to have more swapped pairs than not moves the pooler towards "swapped" for
everything, further than anything about order moves it. And as long as an answer is no better than a coin the quickest
way to a lower loss is to answer less firmly: the head shrinks, and with it the gradient that reaches the layers, until
there is none. With an ``order_grad_ratio`` both answers count the same in every batch, and the gradient of the order
loss at the states is kept in proportion to that of masked words, whatever the size of its head. Pooler and head
themselves learn by the loss as it is.

T tokens, S sequences, M masked positions, V vocabulary. A label of -100 counts for nothing.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.corpus.batches import Batch
from litebert.nn.config import EncoderConfig
from litebert.nn.layout import Layout
from litebert.nn.network import Network
from litebert.planning.arithmetic import flops_per_token, head_flops
from litebert.pretraining.vocabulary_loss import IGNORED, vocabulary_loss
from litebert.train.objective import Part, on_device

LOGIT_CHUNK = 4096  # masked positions whose logits are held at once outside a compiled graph
TINY = 1e-20  # added to a norm that may be zero


class Pretraining:
    """Masked LM, and order where the network has a head for it, after ``depth`` layers (None: all of them).

    ``chunk`` bounds the positions whose logits are held at once; 0: all of them, for a compiled graph.
    """

    def __init__(self, longest: int, chunk: int = 0, depth: int | None = None, order_grad_ratio: float = 0.0) -> None:
        self.longest, self.chunk, self.depth, self.order_grad_ratio = longest, chunk, depth, order_grad_ratio

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"mlm": batch.num_masked, "order": int((batch.order_labels != IGNORED).sum())}

    def tensors(self, batch: Batch, device: torch.device) -> dict[str, Tensor]:
        names = ("ids", "segments", "positions", "order_labels", "mask_positions", "mask_targets")
        tensors = {name: on_device(torch.from_numpy(getattr(batch, name)), device).long() for name in names}
        if batch.mask_weights is not None:
            tensors["mask_weights"] = on_device(torch.from_numpy(batch.mask_weights), device)
        return {**tensors, "starts": on_device(torch.from_numpy(batch.starts), device)}

    def parts(self, network: Network, tensors: Mapping[str, Tensor]) -> dict[str, Part]:
        layout = Layout(tensors["starts"], tensors["positions"], self.longest)
        states = network.encoder(tensors["ids"], layout, tensors["segments"], depth=self.depth)
        return self.heads(network, states, layout, tensors)

    def heads(self, network: Network, states: Tensor, layout: Layout, tensors: Mapping[str, Tensor]) -> dict[str, Part]:
        """The losses of the heads on the states of some depth."""
        words, order = scale_order_gradient(states, states, self.order_grad_ratio)
        places, targets = tensors["mask_positions"], tensors["mask_targets"]
        parts = {"mlm": self.masked_lm(network, words, places, targets, tensors.get("mask_weights"))}
        return {**parts, **self.order(network, order, layout, tensors["order_labels"])}

    def masked_lm(
        self, network: Network, states: Tensor, positions: Tensor, targets: Tensor, weights: Tensor | None = None
    ) -> Part:
        """The sums over positions whose targets count, the losses times ``weights``."""
        if self.chunk:
            return vocabulary_loss(*network.masked_lm_factors(states[positions]), targets, self.chunk, weights)
        logits = network.masked_lm(states, positions).float()
        if weights is None:
            return part_sums(logits, targets)
        loss = F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="none")
        return Part((loss * weights).sum(), (logits.detach().argmax(-1) == targets).sum())

    def order(
        self, network: Network, states: Tensor, layout: Layout, labels: Tensor, name: str = "order"
    ) -> dict[str, Part]:
        """The loss of the order head on the pooled tokens under this name; nothing where there is no such head."""
        if "order" not in network.heads:
            return {}
        logits = network.heads["order"](network.pooled(states, layout)).float()
        return {name: part_sums(logits, labels, balanced_weights(labels) if self.order_grad_ratio > 0 else None)}


class AtDepths:
    """The losses at several depths out of one pass, for scoring; a part is named after its depth: ``depth_3_mlm``."""

    def __init__(self, longest: int, chunk: int, depths: Sequence[int]) -> None:
        self.inner = Pretraining(longest, chunk)
        self.depths = tuple(depths)

    def counts(self, batch: Batch) -> dict[str, int]:
        counts = self.inner.counts(batch)
        return {at_depth(depth, name): count for depth in self.depths for name, count in counts.items()}

    def tensors(self, batch: Batch, device: torch.device) -> dict[str, Tensor]:
        return self.inner.tensors(batch, device)

    def parts(self, network: Network, tensors: Mapping[str, Tensor]) -> dict[str, Part]:
        layout = Layout(tensors["starts"], tensors["positions"], self.inner.longest)
        states = network.encoder.states(tensors["ids"], layout, tensors["segments"], depth=max(self.depths))
        return {
            at_depth(depth, name): part
            for depth in self.depths
            for name, part in self.inner.heads(network, states[depth], layout, tensors).items()
        }


def at_depth(depth: int, part: str) -> str:
    """The name of a part at a depth."""
    return f"depth_{depth}_{part}"


def balanced_weights(labels: Tensor) -> Tensor:
    """Weights for labels 0 and 1 with which both count the same, and all together as much as without."""
    counts = torch.stack([(labels == label).sum() for label in (0, 1)]).float()
    return counts.sum() / (2 * counts.clamp(min=1))


def scale_order_gradient(words: Tensor, order: Tensor, ratio: float) -> tuple[Tensor, Tensor]:
    """States for masked words, and for order, whose gradient is made ``ratio`` times as large as theirs; 0: left."""
    if not ratio:
        return words, order
    # A view, as both may be one tensor: with the same one twice, torch 2.11 compiles a backward pass that loses words'.
    return cast(tuple[Tensor, Tensor], _ScaledGradient.apply(words, order.view_as(order), ratio))


class _ScaledGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, words: Tensor, order: Tensor, ratio: float) -> tuple[Tensor, Tensor]:
        ctx.ratio = ratio
        return words.view_as(words), order.view_as(order)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        words, order = gradients
        scale = ctx.ratio * words.float().norm() / (order.float().norm() + TINY)
        return words, (scale * order.float()).to(order.dtype), None


def part_sums(logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Part:
    """Cross entropy, with ``weights`` of the labels, and hits over those that count."""
    loss = F.cross_entropy(logits, labels, weights, ignore_index=IGNORED, reduction="sum")
    return Part(loss, (logits.detach().argmax(-1) == labels).sum())


def batch_flops(config: EncoderConfig, batch: Batch, depth: int | None = None, heads: float = 1.0) -> float:
    """Arithmetic of one training step on a batch as plan counts it, at the real lengths; padding counts nothing.

    ``heads`` is how often the masked-LM head runs at each masked position.
    """
    if depth is not None and depth != config.num_layers:
        config = dataclasses.replace(config, num_layers=depth, num_groups=1, layers_per_group=1, custom_plan=())
    lengths = np.diff(batch.starts[: batch.num_sequences + 1]).astype(np.float64)
    # Scores grow with the length of the sequence a token is in, so the mean over tokens is what counts.
    length = round(float((lengths**2).sum() / max(batch.num_tokens, 1)))
    return batch.num_tokens * flops_per_token(config, length, "finetune") + 3 * heads * batch.num_masked * head_flops(
        config
    )
