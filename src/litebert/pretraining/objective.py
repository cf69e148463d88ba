"""The losses of pretraining: masked LM at the masked positions only, and sentence order (ALBERT section 3.1).

T tokens, S sequences, M masked positions, V vocabulary. A label of -100 counts for nothing.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.corpus.batches import Batch
from litebert.nn.config import EncoderConfig
from litebert.nn.layout import Layout
from litebert.nn.network import Network
from litebert.planning.arithmetic import flops_per_token, head_flops
from litebert.pretraining.order import even_weights, with_pull
from litebert.pretraining.vocabulary_loss import IGNORED, vocabulary_loss
from litebert.train.objective import Part, on_device

LOGIT_CHUNK = 4096  # masked positions whose logits are held at once outside a compiled graph


class Pretraining:
    """Masked LM, and order where the network has a head for it, after ``depth`` layers (None: all of them).

    ``chunk`` bounds the positions whose logits are held at once; 0: all of them, for a compiled graph. ``pull`` keeps
    the order loss alive (``order.py``); 0: as the paper has it.
    """

    def __init__(self, longest: int, chunk: int = 0, depth: int | None = None, pull: float = 0.0) -> None:
        self.longest = longest
        self.chunk = chunk
        self.depth = depth
        self.pull = pull

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"mlm": batch.num_masked, "order": int((batch.order_labels != IGNORED).sum())}

    def tensors(self, batch: Batch, device: torch.device) -> dict[str, Tensor]:
        arrays = {
            "ids": batch.ids,
            "segments": batch.segments,
            "positions": batch.positions,
            "starts": batch.starts,
            "order_labels": batch.order_labels,
            "mask_positions": batch.mask_positions,
            "mask_targets": batch.mask_targets,
        }
        tensors = {}
        for name, array in arrays.items():
            tensor = on_device(torch.from_numpy(array), device)
            tensors[name] = tensor if name == "starts" else tensor.long()
        return tensors

    def parts(self, network: Network, tensors: Mapping[str, Tensor]) -> dict[str, Part]:
        layout = Layout(tensors["starts"], tensors["positions"], self.longest)
        states = network.encoder(tensors["ids"], layout, tensors["segments"], depth=self.depth)
        return self.heads(network, states, layout, tensors)

    def heads(self, network: Network, states: Tensor, layout: Layout, tensors: Mapping[str, Tensor]) -> dict[str, Part]:
        """What the heads lose on the states of some depth."""
        words, order = with_pull(states, states, self.pull)
        parts = {"mlm": self.masked_lm(network, words, tensors["mask_positions"], tensors["mask_targets"])}
        if "order" in network.heads:
            parts["order"] = order_sums(network, order, layout, tensors["order_labels"], even=self.pull > 0)
        return parts

    def masked_lm(self, network: Network, states: Tensor, positions: Tensor, targets: Tensor) -> Part:
        """The sums over positions whose targets count."""
        if not self.chunk:
            return part_sums(network.masked_lm(states, positions).float(), targets)
        return vocabulary_loss(*network.masked_lm_factors(states[positions]), targets, self.chunk)


class AtDepths:
    """The losses at several depths out of one pass, for scoring; a part is named after its depth: ``depth_3_mlm``."""

    def __init__(self, longest: int, chunk: int, depths: Sequence[int]) -> None:
        self.inner = Pretraining(longest, chunk)
        self.depths = tuple(depths)

    def counts(self, batch: Batch) -> dict[str, int]:
        counts = self.inner.counts(batch)
        return {f"depth_{depth}_{name}": count for depth in self.depths for name, count in counts.items()}

    def tensors(self, batch: Batch, device: torch.device) -> dict[str, Tensor]:
        return self.inner.tensors(batch, device)

    def parts(self, network: Network, tensors: Mapping[str, Tensor]) -> dict[str, Part]:
        layout = Layout(tensors["starts"], tensors["positions"], self.inner.longest)
        states = network.encoder.states(tensors["ids"], layout, tensors["segments"], depth=max(self.depths))
        return {
            f"depth_{depth}_{name}": part
            for depth in self.depths
            for name, part in self.inner.heads(network, states[depth], layout, tensors).items()
        }


def order_sums(network: Network, states: Tensor, layout: Layout, labels: Tensor, *, even: bool) -> Part:
    """What the order head loses on the pooled tokens; ``even``: both answers count the same."""
    logits = network.heads["order"](network.pooled(states, layout)).float()
    return part_sums(logits, labels, even_weights(labels) if even else None)


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
