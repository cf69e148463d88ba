"""Clipping and AdamW's step recorded as a CUDA graph: to a small model they cost as much as both of its passes.

The rate is a number on the device that is set before the recording is played. Steps whose gradients were not all
played back, and the first ones, in which the optimiser makes its state, are taken as they come.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from litebert.train.optimisers import Optimiser
from litebert.train.parallel import norm_of_gradients
from litebert.train.recorded import WARM_UP, Recorded


class RecordedUpdate:
    """Takes the place of an optimiser's ``update`` where passes are ``Recorded``."""

    def __init__(self, optimiser: Optimiser, passes: Recorded, say: Callable[[str], None]) -> None:
        self._optimiser, self._passes, self._say = optimiser, passes, say
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
            self._say(f"updates cannot be recorded here and run as they come ({str(error).splitlines()[0]})")
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
            norm = norm_of_gradients(self._optimiser.parameters())
            if clip:
                torch.nn.utils.clip_grads_with_norm_(self._optimiser.parameters(), clip, norm)
            self._optimiser.step()
        finally:
            for group, was in zip(groups, before, strict=True):
                group["lr"], group["capturable"] = was, False
        return norm
