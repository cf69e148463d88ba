"""Passes and updates of a small network recorded as CUDA graphs, one pair for each shape of batch, and replayed.

A small model on a fast GPU waits for Python: hundreds of kernels of a few microseconds each. Replayed, a forward pass
is one call and a backward pass another. Gradients keep their places in memory, so that every recording adds to the same
ones. Clipping and AdamW's step cost a small model as much as both passes, so they are recorded, too: the learning rate
is a number on the device that is set before each replay. What cannot be recorded runs eagerly, which is logged once.
"""

import gc
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from litebert.train.objective import Sums
from litebert.train.optimisers import Optimiser
from litebert.train.parallel import gradient_norm

log = logging.getLogger(__name__)

MAX_SHAPES = 64  # shapes that are recorded; rarer ones run as they come
RECORD_AT = 2  # a shape is recorded when it comes again: what comes once would cost more than it saves
WARM_UP = 2  # passes before a recording, in which kernels are chosen

Shape = tuple[tuple[str, torch.Size, torch.dtype], ...]


@dataclass(frozen=True)
class _Recording:
    """Both passes over one shape, and the places in memory that they read and write."""

    inputs: dict[str, Tensor]
    sums: Sums
    factors: tuple[Tensor, ...]  # the gradients of the losses
    forward: torch.cuda.CUDAGraph
    backward: torch.cuda.CUDAGraph


class CudaGraphPasses(nn.Module):
    """Takes the place of a learner on one GPU; ``plain`` is the learner as it would run otherwise."""

    def __init__(self, learner: nn.Module, plain: nn.Module) -> None:
        super().__init__()
        self._learner, self._plain = [learner], plain  # in a list: it is a part of ``plain`` already
        self._parameters_trained = [parameter for parameter in learner.parameters() if parameter.requires_grad]
        self._gradients: list[Tensor] = []
        self.recordings: dict[Shape, _Recording] = {}
        self._seen: dict[Shape, int] = {}
        self._pool: Any = None
        self._stream: Any = None  # where warm-ups run and recordings are made
        self._gave_up = False

    def forward(self, tensors: Mapping[str, Tensor]) -> Sums:
        """The sums of every part; their backward pass is replayed, too."""
        if not self._gradients:
            self._set_up()
        recording = self._recording(tensors)
        if recording is None:
            self._begin()  # other batches of this step may be replayed, and must add to the same gradients
            return self._plain(tensors)
        for name, place in recording.inputs.items():
            place.copy_(tensors[name], non_blocking=True)
        handle = torch.empty(0, device=self._gradients[0].device, requires_grad=True)
        losses = _Replay.apply(handle, self, recording)
        pairs = zip(recording.sums.items(), losses, strict=True)
        return {name: (loss, right) for (name, (_, right)), loss in pairs}

    def play_backward(self, recording: _Recording, factors: tuple[Tensor, ...]) -> None:
        """Add this batch's gradients to those of the step, or begin with them."""
        self._begin()
        for place, factor in zip(recording.factors, factors, strict=True):
            place.copy_(factor)
        recording.backward.replay()

    def gradients_in_place(self) -> bool:
        """Whether all gradients of this step lie where recordings put them."""
        return bool(self._gradients) and all(
            parameter.grad is gradient
            for parameter, gradient in zip(self._parameters_trained, self._gradients, strict=True)
        )

    def capture(self, graph: torch.cuda.CUDAGraph, work: Callable[[], Any]) -> Any:
        """Record what ``work`` asks of the device; nothing is computed. One stream and one pool serve all recordings.

        That is safe because a forward pass is always followed by its own backward pass, and nothing that is read later
        (losses, what is right, gradients) is freed.
        """
        collecting = gc.isenabled()
        gc.disable()  # a collection may free what the device must not be asked about now
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                return work()
        finally:
            if collecting:
                gc.enable()

    def _set_up(self) -> None:
        gc.collect()  # recordings of a run before this one are freed now, not in the midst of a recording
        self._gradients = [torch.zeros_like(parameter) for parameter in self._parameters_trained]
        self._pool, self._stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()

    def _begin(self) -> None:
        """At the start of a step: gradients of zero, each where recordings put them."""
        if self._parameters_trained[0].grad is None:
            torch._foreach_zero_(self._gradients)
            self._attach()

    def _attach(self) -> None:
        for parameter, gradient in zip(self._parameters_trained, self._gradients, strict=True):
            parameter.grad = gradient

    def _recording(self, tensors: Mapping[str, Tensor]) -> _Recording | None:
        shape = tuple((name, tensor.shape, tensor.dtype) for name, tensor in tensors.items())
        known = self.recordings.get(shape)
        if known is not None or self._gave_up or len(self.recordings) >= MAX_SHAPES:
            return known
        self._seen[shape] = self._seen.get(shape, 0) + 1
        # In the middle of a step nothing is recorded: gradients are at hand, and passes that ran as they came before it
        # hold on to the main stream, which a recording must not touch.
        if self._seen[shape] < RECORD_AT or self._parameters_trained[0].grad is not None:
            return None
        random = torch.cuda.get_rng_state()
        try:
            self.recordings[shape] = self._record({name: tensor.clone() for name, tensor in tensors.items()})
        except RuntimeError as error:
            self._gave_up = True
            log.warning("passes cannot be recorded as CUDA graphs and run eagerly (%s)", str(error).splitlines()[0])
        torch.cuda.set_rng_state(random)
        for parameter in self._parameters_trained:
            parameter.grad = None
        return self.recordings.get(shape)

    def _record(self, inputs: dict[str, Tensor]) -> _Recording:
        """Warm up, then record a forward and a backward pass."""
        self._attach()
        # Beside the main stream, where it will be recorded, so that kernels are loaded and chosen.
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_UP):
                torch.autograd.backward([loss for loss, _ in self._sums(inputs).values()])
        torch.cuda.current_stream().wait_stream(self._stream)
        torch.cuda.synchronize()
        forward, backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        sums = self.capture(forward, lambda: self._sums(inputs))
        losses = tuple(loss for loss, _ in sums.values())
        factors = tuple(torch.ones_like(loss) for loss in losses)
        self.capture(backward, lambda: torch.autograd.backward(losses, factors))
        detached = {name: (loss.detach(), right.detach()) for name, (loss, right) in sums.items()}
        return _Recording(inputs, detached, factors, forward, backward)

    def _sums(self, inputs: dict[str, Tensor]) -> Sums:
        torch.clear_autocast_cache()  # casts made before a recording are no part of it
        try:
            return self._learner[0](inputs)
        finally:
            torch.clear_autocast_cache()


class _Replay(torch.autograd.Function):
    """A forward pass replayed, whose backward pass is replayed. Gradients go where they belong by themselves."""

    @staticmethod
    def forward(ctx: Any, handle: Tensor, owner: CudaGraphPasses, recording: _Recording) -> tuple[Tensor, ...]:
        ctx.owner, ctx.recording = owner, recording
        recording.forward.replay()
        return tuple(loss.clone() for loss, _ in recording.sums.values())

    @staticmethod
    def backward(ctx: Any, *factors: Any) -> Any:
        ctx.owner.play_backward(ctx.recording, factors)
        return None, None, None


class CudaGraphUpdate:
    """Takes the place of an optimiser's ``update`` where passes are ``CudaGraphPasses``.

    Steps whose gradients were not all replayed run eagerly, and so do the first, in which AdamW makes its state.
    """

    def __init__(self, optimiser: Optimiser, passes: CudaGraphPasses) -> None:
        self._optimiser, self._passes = optimiser, passes
        member = optimiser.members[0]
        adamw = len(optimiser.members) == 1 and isinstance(member, torch.optim.AdamW)
        self._gave_up = not adamw  # the others may wait for the device
        self._member = member
        device = optimiser.parameters()[0].device
        self._base = torch.tensor([group["base_rate"] for group in member.param_groups], device=device)
        self._factor = torch.ones((), device=device)
        self._warm = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._norm = torch.zeros((), device=device)
        self._state: Tensor | None = None  # some tensor of the state that was recorded
        self._clip = 0.0

    def __call__(self, scaler: torch.amp.GradScaler, clip: float) -> Tensor:
        """Clip (0: not at all), step and forget the gradients; gives their norm before clipping."""
        if self._gave_up or scaler.is_enabled() or not self._passes.gradients_in_place():
            return self._optimiser.update(scaler, clip)
        leading = max(self._groups(), key=lambda group: float(group["base_rate"]))
        self._factor.fill_(leading["lr"] / leading["base_rate"])
        if self._warm < WARM_UP:
            self._warm += 1
            norm = self._update(clip)
        elif self._is_recorded(clip) or self._record(clip):
            assert self._graph is not None
            self._graph.replay()
            norm = self._norm.clone()
        else:
            return self._optimiser.update(scaler, clip)
        self._optimiser.zero_grad()
        return norm

    def _is_recorded(self, clip: float) -> bool:
        """Whether the recording writes where the optimiser has its state: one that was put back lies elsewhere."""
        return self._graph is not None and self._state is self._some_state() and self._clip == clip

    def _groups(self) -> list[dict[str, Any]]:
        return self._member.param_groups  # others once a state was put back

    def _some_state(self) -> Tensor | None:
        found = self._member.state.get(self._groups()[0]["params"][0], {}).get("exp_avg")
        return found if isinstance(found, Tensor) else None

    def _record(self, clip: float) -> bool:
        try:
            self._graph = torch.cuda.CUDAGraph()
            self._norm = self._passes.capture(self._graph, lambda: self._update(clip))
        except RuntimeError as error:
            self._gave_up = True
            log.warning("updates cannot be recorded as CUDA graphs and run eagerly (%s)", str(error).splitlines()[0])
            return False
        self._state, self._clip = self._some_state(), clip
        return True

    def _update(self, clip: float) -> Tensor:
        """Clip and step at rates that are read from the device; gives the norm before clipping."""
        groups = self._groups()
        before = [group["lr"] for group in groups]
        recording = self._base.is_cuda and torch.cuda.is_current_stream_capturing()
        try:
            for group, rate in zip(groups, (self._base * self._factor).unbind(), strict=True):
                group["lr"], group["capturable"] = rate, recording
            norm = gradient_norm(self._optimiser.parameters())
            if clip:
                torch.nn.utils.clip_grads_with_norm_(self._optimiser.parameters(), clip, norm)
            self._optimiser.step()
        finally:
            for group, was in zip(groups, before, strict=True):
                group["lr"], group["capturable"] = was, False
        return norm
