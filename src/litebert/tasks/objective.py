"""What fine-tuning learns: a batch on its device, the head's outputs for it, and their loss by the kind of task."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from litebert.nn.layout import Layout
from litebert.nn.network import Network
from litebert.tasks.batches import TaskBatch
from litebert.tasks.examples import Kind
from litebert.tasks.kinds import KINDS, Outputs
from litebert.train.objective import Part

ANSWERABLE_WEIGHT = 0.5  # of the question whether there is an answer, as in the released code


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
    """The head's outputs for a packed batch, in fp32."""
    layout = Layout(tensors["starts"], tensors["positions"], longest)
    segments = tensors["segments"] if takes_segments(network) else None
    states = network.encoder(tensors["ids"], layout, segments, depth=depth)
    return KINDS[kind].outputs(network, states, layout)


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
        """The loss of a head's outputs."""
        if not self.answerable:
            outputs = replace(outputs, answerable=None)
        return KINDS[self.kind].loss(outputs, tensors, longest=longest, options=self.options)

    def bound(self, tensors: Mapping[str, Tensor]) -> int:
        """On a CPU the batch's own longest; a GPU would have to be waited for, and kernels care little."""
        positions = tensors["positions"]
        return self.longest if positions.is_cuda else int(positions.max()) + 1
