"""What fine-tuning learns: a batch on its device, what the head gives for it, and the loss of every kind of task.

This is the half of a kind of task that needs torch. Losses are sums; divided by the number of units they are the means
that Hugging Face's heads take. Filling (a label of -100, a value that is NaN) counts for nothing.

T tokens, S sequences, L labels, U units of learning, O inputs of a unit, H width, C candidates.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.nn.attention import keys_allowed, pad
from litebert.nn.heads import MultipleChoice, Span
from litebert.nn.layout import Layout
from litebert.nn.network import Network
from litebert.pooling import pool
from litebert.tasks.encoding import IGNORED, TaskBatch
from litebert.tasks.examples import Kind
from litebert.tasks.kinds import KINDS
from litebert.train.objective import Part

ANSWERABLE_WEIGHT = 0.5  # of the question whether there is an answer, as in the released code

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Outputs:
    """What a head gives: ``scores`` (S, L), (S, 1) of options; for spans of every token, and of the whole.

    Without a head (embed) they are the means of the states, (S, H).
    """

    scores: Tensor
    ends: Tensor | None = None
    answerable: Tensor | None = None


class TaskObjective:
    """The loss of one kind of task. ``longest`` bounds the inputs, ``options`` those of a question."""

    def __init__(
        self, kind: Kind, longest: int, *, options: int = 1, answerable: bool = False, scale: float = 20.0
    ) -> None:
        self.kind, self.longest, self.options, self.answerable = kind, longest, options, answerable
        self.scale = scale  # of cosines

    def counts(self, batch: TaskBatch) -> dict[str, int]:
        counted = {"task": batch.num_units}
        return counted | {"answerable": batch.num_units} if self.answerable else counted

    def tensors(self, batch: TaskBatch, device: torch.device) -> dict[str, Tensor]:
        return device_tensors(batch, device)

    def parts(self, network: Network, tensors: Tensors) -> dict[str, Part]:
        longest = self.bound(tensors)
        return self.judge(run_head(network, self.kind, tensors, longest), tensors, longest)

    def judge(self, outputs: Outputs, tensors: Tensors, longest: int) -> dict[str, Part]:
        """The loss of a head's outputs."""
        if not self.answerable:
            outputs = replace(outputs, answerable=None)
        if self.kind == "embed":
            return {"task": pair_loss(by_unit(outputs.scores, tensors, self.options), tensors, self.scale)}
        return LOSSES[self.kind](outputs, tensors, longest, self.options)

    def bound(self, tensors: Tensors) -> int:
        """On a CPU the batch's own longest; a GPU would have to be waited for, and kernels care little."""
        positions = tensors["positions"]
        return self.longest if positions.is_cuda else int(positions.max()) + 1


def device_tensors(batch: TaskBatch, device: torch.device) -> dict[str, Tensor]:
    """The arrays of a batch on a device. To a GPU whole numbers go as one copy: each would cost as much as all."""
    whole = {
        name: array
        for name in ("ids", "segments", "positions", "starts", "labels", "ends", "cells")
        if len(array := getattr(batch, name))
    }
    tensors = _copied(whole, device)
    tensors["starts"] = tensors["starts"].int()
    for name in ("values", "answered"):
        array = getattr(batch, name)
        if len(array):
            tensor = torch.from_numpy(array)
            tensors[name] = tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
    return tensors


def _copied(arrays: Mapping[str, npt.NDArray[np.int64]], device: torch.device) -> dict[str, Tensor]:
    if device.type != "cuda":
        return {name: torch.from_numpy(array) for name, array in arrays.items()}
    sizes = [array.size for array in arrays.values()]
    together = torch.empty(sum(sizes), dtype=torch.int64, pin_memory=True)
    np.concatenate([array.ravel() for array in arrays.values()], out=together.numpy())
    parts = together.to(device, non_blocking=True).split(sizes)
    return {name: part.view(array.shape) for (name, array), part in zip(arrays.items(), parts, strict=True)}


def run_head(network: Network, kind: Kind, tensors: Tensors, longest: int, depth: int | None = None) -> Outputs:
    """The head's outputs for a packed batch, in fp32."""
    layout = Layout(tensors["starts"], tensors["positions"], longest)
    segments = tensors["segments"] if takes_segments(network) else None
    return head_outputs(network, kind, network.encoder(tensors["ids"], layout, segments, depth=depth), layout)


def head_outputs(network: Network, kind: Kind, states: Tensor, layout: Layout) -> Outputs:
    """What the head of a kind gives for states, in fp32."""
    if not KINDS[kind].head:
        return Outputs(pool(network, states, layout, "mean"))
    head = network.heads[KINDS[kind].head]
    if isinstance(head, Span):
        starts, ends = head(states)
        sure = head.has_answer(states, layout).float() if head.answerable is not None else None
        return Outputs(starts.float(), ends.float(), sure)
    pooled = network.pooled(states, layout)
    return Outputs((head(pooled, 1) if isinstance(head, MultipleChoice) else head(pooled)).float())


def takes_segments(network: Network) -> bool:
    """Whether the model tells segments apart: by a table of two or more, or by comparing them (XLNet)."""
    encoder = network.config.encoder
    return encoder.positions == "relative" or encoder.num_segments > 1


# --- losses


def _classify(outputs: Outputs, tensors: Tensors, longest: int, options: int) -> dict[str, Part]:
    return {"task": _class_loss(outputs.scores, tensors["labels"])}


def _multilabel(outputs: Outputs, tensors: Tensors, longest: int, options: int) -> dict[str, Part]:
    """An item's loss is the mean over its labels, and it is right where all of them are."""
    lost, right = _binary_loss(outputs.scores, tensors["values"])
    return {"task": Part(lost.mean(-1).sum(), right.all(-1).sum())}


def _regress(outputs: Outputs, tensors: Tensors, longest: int, options: int) -> dict[str, Part]:
    found, wanted = outputs.scores.squeeze(-1), tensors["values"]
    lost = F.mse_loss(found, wanted.nan_to_num(), reduction="none").masked_fill(wanted.isnan(), 0.0).sum()
    return {"task": Part(lost, torch.full_like(lost.detach(), float("nan")))}


def _choice(outputs: Outputs, tensors: Tensors, longest: int, options: int) -> dict[str, Part]:
    """Cross-entropy over the options of a question; one with fewer options has no weight on the others."""
    lowest = torch.finfo(outputs.scores.dtype).min
    grid = by_unit(outputs.scores, tensors, options, missing=lowest).squeeze(-1)
    return {"task": _class_loss(grid, tensors["labels"])}


def _span(outputs: Outputs, tensors: Tensors, longest: int, options: int) -> dict[str, Part]:
    """First and last token, each chosen among the tokens of a window; half of each counts."""
    assert outputs.ends is not None
    layout = Layout(tensors["starts"], tensors["positions"], longest)
    start, end = (
        pad(scores, layout).masked_fill(~keys_allowed(layout), torch.finfo(scores.dtype).min)
        for scores in (outputs.scores, outputs.ends)
    )
    first, last = _class_loss(start, tensors["labels"]), _class_loss(end, tensors["ends"])
    both = (start.argmax(-1) == tensors["labels"]) & (end.argmax(-1) == tensors["ends"])
    parts = {"task": Part((first.loss + last.loss) / 2, both.sum())}
    if outputs.answerable is not None:
        lost, right = _binary_loss(outputs.answerable, tensors["answered"])
        parts["answerable"] = Part(lost.sum(), right.sum())
    return parts


def by_unit(scores: Tensor, tensors: Tensors, options: int, missing: float = 0.0) -> Tensor:
    """(S, L) scores of inputs as (U, O, L) of units; what a unit does not have is ``missing``."""
    units = len(tensors["labels"] if "labels" in tensors else tensors["values"])
    cells = scores.new_full((units * options + 1, scores.shape[1]), missing)  # the last one is for filling
    return cells.index_copy(0, tensors["cells"], scores)[:-1].view(units, options, -1)


def pair_loss(vectors: Tensor, tensors: Tensors, scale: float) -> Part:
    """Of the vectors (U, O, H) of pairs: how far cosines are from scores, else how well partners are found."""
    with torch.autocast(vectors.device.type, enabled=False):
        vectors = F.normalize(vectors.float(), dim=-1)
        if "labels" in tensors:
            return _contrast(vectors, tensors["labels"], scale)
        wanted = tensors["values"]
        cosines = (vectors[:, 0] * vectors[:, 1]).sum(-1)
        lost = (cosines - wanted.nan_to_num()).square().masked_fill(wanted.isnan(), 0.0).sum()
        return Part(lost, torch.full_like(lost.detach(), float("nan")))


def _contrast(vectors: Tensor, texts: Tensor, scale: float) -> Part:
    """Each first text finds its second among those of the batch and all negatives, each second its first; the mean.

    ``texts`` (U, O) are numbers of texts. What is the same text as one of the pair, or the partner of the same text in
    another pair, is no wrong answer and left out. A unit without a second text takes part in nothing.
    """
    first, second = texts[:, 0], texts[:, 1]
    paired = (first != IGNORED) & (second != IGNORED)
    places = torch.arange(len(texts), device=texts.device)
    target = torch.where(paired, places, IGNORED)
    same_first, same_second = first[:, None] == first, second[:, None] == second  # (U, U)
    partner = same_first | same_second
    own = torch.eye(len(texts), dtype=torch.bool, device=texts.device)
    lowest = torch.finfo(vectors.dtype).min

    def told(queries: Tensor, answers: Tensor, numbers: Tensor, partners: Tensor) -> Tensor:
        """(U, C) similarities, those that are neither right nor wrong left out."""
        same = (numbers == first[:, None]) | (numbers == second[:, None]) | (numbers == IGNORED)
        same[:, : len(texts)] |= partners | ~paired
        same[:, : len(texts)] &= ~own
        return (scale * queries @ answers.T).masked_fill(same, lowest)

    options = vectors.shape[1]
    answers = vectors.transpose(0, 1)[1:].reshape(-1, vectors.shape[2])  # the seconds, then the negatives
    numbers = texts.T[1:].reshape(-1)
    assert len(answers) == (options - 1) * len(texts)
    forward = told(vectors[:, 0], answers, numbers, partner)
    back = told(vectors[:, 1], vectors[:, 0], first, partner)
    losses = [F.cross_entropy(scores, target, ignore_index=IGNORED, reduction="sum") for scores in (forward, back)]
    return Part((losses[0] + losses[1]) / 2, (forward.detach().argmax(-1) == target).sum())


def _class_loss(scores: Tensor, labels: Tensor) -> Part:
    """Cross-entropy with one label a row."""
    loss = F.cross_entropy(scores, labels, ignore_index=IGNORED, reduction="sum")
    return Part(loss, (scores.detach().argmax(-1) == labels).sum())


def _binary_loss(scores: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Loss of every cell, and whether it is right."""
    real = ~wanted.isnan()
    lost = F.binary_cross_entropy_with_logits(scores, wanted.nan_to_num(), reduction="none")
    return lost.masked_fill(~real, 0.0), ((scores.detach() > 0) == (wanted > 0.5)) & real


LOSSES: Mapping[Kind, Callable[[Outputs, Tensors, int, int], dict[str, Part]]] = {
    "classify": _classify,
    "multilabel": _multilabel,
    "regress": _regress,
    "choice": _choice,
    "span": _span,
}


# --- losses of a student: how far scores are from a teacher's at a temperature. Softened losses are multiplied by the
# squared temperature, or their gradients would shrink with it.


def _soft_classify(found: Tensor, taught: Tensor, tensors: Tensors, temperature: float) -> Tensor:
    target, ours = (taught / temperature).log_softmax(-1), (found / temperature).log_softmax(-1)
    lost = F.kl_div(ours, target, reduction="none", log_target=True).sum(-1)
    return temperature**2 * lost.masked_fill(tensors["labels"] == IGNORED, 0.0).sum()


def _soft_multilabel(found: Tensor, taught: Tensor, tensors: Tensors, temperature: float) -> Tensor:
    target = (taught / temperature).sigmoid()
    lost = F.binary_cross_entropy_with_logits(found / temperature, target, reduction="none")
    return temperature**2 * lost.masked_fill(tensors["values"].isnan(), 0.0).mean(-1).sum()


def _soft_regress(found: Tensor, taught: Tensor, tensors: Tensors, temperature: float) -> Tensor:
    """Numbers have no temperature."""
    lost = F.mse_loss(found, taught, reduction="none")[:, 0]
    return lost.masked_fill(tensors["values"].isnan(), 0.0).sum()


SOFT_LOSSES: Mapping[Kind, Callable[[Tensor, Tensor, Tensors, float], Tensor]] = {  # the kinds that can be distilled
    "classify": _soft_classify,
    "multilabel": _soft_multilabel,
    "regress": _soft_regress,
}
