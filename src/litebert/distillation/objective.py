"""What a student learns: its task's labels, its teacher's answers, and if asked for its teacher's states.

The teacher runs in the step, on the very batch that the student sees, without gradients and without dropout. Answers
are compared at a temperature (Hinton et al., section 2); states by the cosine of the final ones (DistilBERT, section 2)
or by their squared difference at mapped depths (TinyBERT, section 3.1), through a learned projection where the widths
differ. Unlike TinyBERT's, a difference counts as a share of the teacher's variance at that depth: the last states of a
fine-tuned model differ twenty times less from each other than the first, and would count for nothing. TinyBERT also
compares attention weights, which the fast kernels never have in hand; that part is left out.

T tokens, S sequences, L labels, H width. Filling counts for nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from litebert.errors import InputError
from litebert.nn.layout import Layout
from litebert.nn.network import Network
from litebert.tasks.encoding import TaskBatch
from litebert.tasks.objective import SOFT_LOSSES, Outputs, TaskObjective, head_outputs, takes_segments
from litebert.train.objective import Part, on_device

MIN_VARIANCE = 1e-6  # one token has none
PROJECTION = "projection"  # a head, so that it is trained and saved with the rest


@dataclass(frozen=True, kw_only=True)
class DistillSettings:
    """The parts of the loss. ``hard`` is the share of the labels; the teacher's answers have the rest."""

    temperature: float = 2.0
    hard: float = 0.5
    states: Literal["none", "final", "depths"] = "none"
    states_weight: float = 1.0

    def __post_init__(self) -> None:
        if self.states_weight <= 0:
            raise InputError(f"states_weight is {self.states_weight:g} but must be above 0", parameter="states_weight")
        if self.hard == 1 and self.states == "none":
            raise InputError("hard=1 learns nothing from the teacher; that is what finetune does", parameter="hard")

    def weights(self) -> dict[str, float]:
        """Of the parts of the loss, by name."""
        found = {"task": self.hard, "soft": 1 - self.hard}
        return found if self.states == "none" else {**found, "states": self.states_weight}


class DistillObjective:
    """The loss of a student. ``own`` is its task's; ``teacher`` is frozen."""

    def __init__(self, own: TaskObjective, teacher: Network, settings: DistillSettings) -> None:
        self.own, self.teacher, self.settings = own, teacher, settings

    def counts(self, batch: TaskBatch) -> dict[str, int]:
        counted = {**self.own.counts(batch), "soft": batch.num_units}
        return counted if self.settings.states == "none" else {**counted, "states": batch.num_tokens}

    def tensors(self, batch: TaskBatch, device: torch.device) -> dict[str, Tensor]:
        tensors = self.own.tensors(batch, device)
        if self.settings.states != "none":
            tensors["real"] = on_device(torch.arange(len(batch.ids)) < batch.num_tokens, device)
        return tensors

    def parts(self, network: Network, tensors: Mapping[str, Tensor]) -> dict[str, Part]:
        longest = self.own.bound(tensors)
        answers, states = self._run(network, tensors, longest)
        with torch.no_grad():
            taught, wanted = self._run(self.teacher, tensors, longest)
        parts = self.own.judge(answers, tensors, longest)
        parts["soft"] = _without_accuracy(
            SOFT_LOSSES[self.own.kind](answers.scores, taught.scores, tensors, self.settings.temperature)
        )
        if self.settings.states != "none":
            projection = cast(nn.ModuleDict, network.heads[PROJECTION]) if PROJECTION in network.heads else None
            parts["states"] = _without_accuracy(_distance(states, wanted, tensors["real"], projection))
        return parts

    def _run(self, network: Network, tensors: Mapping[str, Tensor], longest: int) -> tuple[Outputs, list[Tensor]]:
        """A network's answers and the states to compare: the final ones, or those of every depth."""
        layout = Layout(tensors["starts"], tensors["positions"], longest)
        segments = tensors["segments"] if takes_segments(network) else None
        if self.settings.states == "depths":
            states = network.encoder.states(tensors["ids"], layout, segments)
        else:
            states = [network.encoder(tensors["ids"], layout, segments)]
        return head_outputs(network, self.own.kind, states[-1], layout), states


def mapped_depths(student: int, teacher: int) -> list[int]:
    """For each depth of a student, the embeddings first, the teacher's depth that is as far up."""
    return [round(depth * teacher / student) for depth in range(student + 1)]


def make_projection(student: Network, teacher: Network, settings: DistillSettings) -> nn.ModuleDict | None:
    """What turns a student's states into as wide ones as its teacher's; None where they are as wide already.

    As in TinyBERT there is one for the embeddings and one for all layers.
    """
    ours, theirs = student.config.encoder.width, teacher.config.encoder.width
    if settings.states == "none" or ours == theirs:
        return None
    names = ("embeddings", "layers") if settings.states == "depths" else ("layers",)
    return nn.ModuleDict({name: nn.Linear(ours, theirs, bias=False) for name in names})


def _distance(states: list[Tensor], wanted: list[Tensor], real: Tensor, projection: nn.ModuleDict | None) -> Tensor:
    """Distance of states (T, H) from the teacher's, summed over the tokens: of the final ones, or at all depths."""
    if len(states) == 1:
        found = states[0] if projection is None else projection["layers"](states[0])
        apart = 1 - F.cosine_similarity(found.float(), wanted[0].float(), dim=-1)
        return apart.masked_fill(~real, 0.0).sum()
    total = states[0].new_zeros((), dtype=torch.float32)
    for depth, other in enumerate(mapped_depths(len(states) - 1, len(wanted) - 1)):
        found = states[depth]
        if projection is not None:
            found = projection["layers" if depth else "embeddings"](found)
        target = wanted[other].float()
        apart = (found.float() - target).square().mean(-1)
        total = total + apart.masked_fill(~real, 0.0).sum() / _variance(target, real)
    return total / len(states)


def _variance(states: Tensor, real: Tensor) -> Tensor:
    """The variance of states (T, H), averaged over the width."""
    count, outside = real.sum(), ~real[:, None]
    centre = states.masked_fill(outside, 0.0).sum(0) / count
    away = (states - centre).square().mean(-1).masked_fill(~real, 0.0)
    return (away.sum() / count).clamp_min(MIN_VARIANCE)


def _without_accuracy(loss: Tensor) -> Part:
    """A part of the loss without right and wrong predictions."""
    return Part(loss, torch.full_like(loss.detach(), float("nan")))
