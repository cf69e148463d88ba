"""What fine-tuning learns, one objective for each kind of task; the means are those that Hugging Face's heads take.

S sequences, N longest, L labels. Filling (a label of -100, a value that is NaN) counts for nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.nn.attention import keys_allowed, pad
from litebert.nn.heads import Span
from litebert.nn.layout import Layout
from litebert.nn.network import HeadName, Network
from litebert.tasks.batches import IGNORED, TaskBatch
from litebert.tasks.examples import Kind
from litebert.train.objective import Part

HEADS: Mapping[Kind, HeadName] = {
    "classify": "classify",
    "multilabel": "classify",
    "regress": "classify",
    "choice": "choice",
    "span": "span",
}
PROBLEMS: Mapping[Kind, str] = {
    "classify": "single_label_classification",
    "multilabel": "multi_label_classification",
    "regress": "regression",
}
ANSWERABLE_WEIGHT = 0.5  # of the question whether there is an answer, as in the released code


@dataclass(frozen=True)
class Outputs:
    """What a head says: ``scores`` (S, L), (S, 1) of options; for spans of every token, and of the whole."""

    scores: Tensor
    ends: Tensor | None = None
    answerable: Tensor | None = None


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
    sizes = [len(array) for array in arrays.values()]
    together = torch.empty(sum(sizes), dtype=torch.int64, pin_memory=True)
    np.concatenate(list(arrays.values()), out=together.numpy())
    return dict(zip(arrays, together.to(device, non_blocking=True).split(sizes), strict=True))


def run_head(
    network: Network, kind: Kind, tensors: Mapping[str, Tensor], longest: int, depth: int | None = None
) -> Outputs:
    """The head's answers for a packed batch, in fp32."""
    layout = Layout(tensors["starts"], tensors["positions"], longest)
    segments = tensors["segments"] if takes_segments(network) else None
    return read_head(network, kind, network.encoder(tensors["ids"], layout, segments, depth=depth), layout)


def read_head(network: Network, kind: Kind, states: Tensor, layout: Layout) -> Outputs:
    """The head's answers for states that are known, in fp32."""
    head = network.heads[HEADS[kind]]
    if isinstance(head, Span):
        starts, ends = head(states)
        sure = head.has_answer(states, layout).float() if head.answerable is not None else None
        return Outputs(starts.float(), ends.float(), sure)
    pooled = network.pooled(states, layout)
    return Outputs((head(pooled, 1) if kind == "choice" else head(pooled)).float())


def takes_segments(network: Network) -> bool:
    """Whether the model tells segments apart: by a table of two or more, or by comparing them (XLNet)."""
    encoder = network.config.encoder
    return encoder.positions == "relative" or encoder.num_segments > 1


class TaskObjective:
    """The loss of one kind of task. ``longest`` bounds the inputs, ``options`` those of a question."""

    def __init__(self, kind: Kind, longest: int, *, options: int = 1, answerable: bool = False) -> None:
        self.kind, self.longest, self.options, self.answerable = kind, longest, options, answerable

    def counts(self, batch: TaskBatch) -> dict[str, int]:
        counted = {"task": batch.num_units}
        return counted | {"answerable": batch.num_units} if self.answerable else counted

    def tensors(self, batch: TaskBatch, device: torch.device) -> dict[str, Tensor]:
        return device_tensors(batch, device)

    def parts(self, network: Network, tensors: Mapping[str, Tensor]) -> dict[str, Part]:
        longest = self.bound(tensors)
        return self.judge(run_head(network, self.kind, tensors, longest), tensors, longest)

    def judge(self, outputs: Outputs, tensors: Mapping[str, Tensor], longest: int) -> dict[str, Part]:
        """What a head's answers lose."""
        match self.kind:
            case "classify":
                return {"task": _choose(outputs.scores, tensors["labels"])}
            case "multilabel":
                return {"task": _many(outputs.scores, tensors["values"])}
            case "regress":
                return {"task": _number(outputs.scores.squeeze(-1), tensors["values"])}
            case "choice":
                labels = tensors["labels"]
                grid = _grid(outputs.scores, tensors["cells"], len(labels), self.options)
                return {"task": _choose(grid, labels)}
            case "span":
                return self._span(outputs, tensors, longest)

    def bound(self, tensors: Mapping[str, Tensor]) -> int:
        """On a CPU the batch's own longest; a GPU would have to be waited for, and kernels care little."""
        positions = tensors["positions"]
        return self.longest if positions.is_cuda else int(positions.max()) + 1

    def _span(self, outputs: Outputs, tensors: Mapping[str, Tensor], longest: int) -> dict[str, Part]:
        """First and last token, each chosen among the tokens of its sequence; half of each counts."""
        assert outputs.ends is not None
        layout = Layout(tensors["starts"], tensors["positions"], longest)
        start, end = (_rows(scores, layout) for scores in (outputs.scores, outputs.ends))
        first, last = _choose(start, tensors["labels"]), _choose(end, tensors["ends"])
        both = (start.argmax(-1) == tensors["labels"]) & (end.argmax(-1) == tensors["ends"])
        parts = {"task": Part((first.loss + last.loss) / 2, both.sum())}
        if self.answerable and outputs.answerable is not None:
            parts["answerable"] = _yes_or_no(outputs.answerable, tensors["answered"])
        return parts


def _rows(scores: Tensor, layout: Layout) -> Tensor:
    """(T) scores of tokens as (S, N), with no weight on what is no token."""
    lowest = torch.finfo(scores.dtype).min
    return pad(scores, layout).masked_fill(~keys_allowed(layout), lowest)


def _grid(scores: Tensor, cells: Tensor, units: int, options: int) -> Tensor:
    """(S, 1) scores of options as (units, options); a question with fewer options has no weight on the others."""
    lowest = torch.finfo(scores.dtype).min
    flat = scores.new_full((units * options + 1,), lowest)  # the last cell is for filling
    return flat.index_copy(0, cells, scores.squeeze(-1))[:-1].view(units, options)


def _choose(scores: Tensor, labels: Tensor) -> Part:
    loss = F.cross_entropy(scores, labels, ignore_index=IGNORED, reduction="sum")
    return Part(loss, (scores.detach().argmax(-1) == labels).sum())


def _many(scores: Tensor, wanted: Tensor) -> Part:
    """Any number of labels; an item's loss is the mean over them, and it is right where all of them are."""
    real = ~wanted.isnan()
    lost = F.binary_cross_entropy_with_logits(scores, wanted.nan_to_num(), reduction="none")
    right = ((scores.detach() > 0) == (wanted > 0.5)) & real
    return Part(lost.masked_fill(~real, 0.0).mean(-1).sum(), right.all(-1).sum())


def _number(found: Tensor, wanted: Tensor) -> Part:
    real = ~wanted.isnan()
    lost = F.mse_loss(found, wanted.nan_to_num(), reduction="none").masked_fill(~real, 0.0).sum()
    return Part(lost, torch.full_like(lost.detach(), float("nan")))


def _yes_or_no(scores: Tensor, wanted: Tensor) -> Part:
    real = ~wanted.isnan()
    lost = F.binary_cross_entropy_with_logits(scores, wanted.nan_to_num(), reduction="none")
    return Part(lost.masked_fill(~real, 0.0).sum(), (((scores.detach() > 0) == (wanted > 0.5)) & real).sum())
