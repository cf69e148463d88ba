"""From settings to an optimiser of a network: which parameter is updated how, and at what rate.

The parts of a model have rates of their own, norms and biases do not decay, and a fused query-key-value weight counts
as the three matrices that it stands for. The state is kept by parameter name, so that it can be put back on another
device, with another number of ranks, or into a network with more blocks.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from litebert.errors import InputError
from litebert.nn.network import Network
from litebert.train.lamb import Lamb
from litebert.train.muon import StackedMuon, Substitutes
from litebert.train.parallel import gradient_norm, shard_like
from litebert.train.settings import OptimiserSettings

_PREFIXES = {
    "encoder.embeddings.": "embeddings",
    "encoder.attention.": "attention",
    "encoder.feed_forward.": "feed_forward",
    "pooler.": "pooler",
    "heads.order.": "pooler",  # reads nothing else
    "heads.": "heads",
}


def part_of(name: str) -> str:
    """The part of the model that a parameter of a ``Network`` belongs to."""
    return next(part for prefix, part in _PREFIXES.items() if name.startswith(prefix))


class Optimiser:
    """One or two torch optimisers that share a network's parameters, driven as one.

    ``param_groups`` is all that a ``GradScaler`` asks of an optimiser besides ``step``: scaled as one, an overflow
    anywhere skips the step everywhere.
    """

    def __init__(
        self, members: list[torch.optim.Optimizer], parameters: list[nn.Parameter], substitutes: list[Substitutes]
    ) -> None:
        self.members = members
        self.param_groups: list[dict[str, Any]] = [{"params": parameters}]
        self._substitutes = substitutes

    def parameters(self) -> list[nn.Parameter]:
        """Every parameter that is trained."""
        return list(self.param_groups[0]["params"])

    def set_rate(self, factor: float) -> None:
        """Train with ``factor`` times each group's own rate from now on."""
        for group in self._groups():
            group["lr"] = factor * group["base_rate"]

    def rates(self) -> dict[str, float]:
        """The rates now in force by part of the model; with Muon, those of its matrices as ``attention_muon``."""
        return {group["label"]: group["lr"] for group in self._groups()}

    @torch.no_grad()
    def step(self) -> None:
        """One update from the gradients at hand."""
        for substitute in self._substitutes:
            substitute.before_step()
        for member in self.members:
            member.step()
        for substitute in self._substitutes:
            substitute.after_step()

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters():
            parameter.grad = None

    def update(self, scaler: torch.amp.GradScaler, clip: float) -> Tensor:
        """Clip (0: not at all), step and forget the gradients; gives their norm before clipping.

        Where the loss is scaled and a gradient has overflowed, no step is taken.
        """
        as_torch = cast(torch.optim.Optimizer, self)
        scaler.unscale_(as_torch)
        norm = gradient_norm(self.parameters())
        if clip:
            nn.utils.clip_grads_with_norm_(self.parameters(), clip, norm)
        scaler.step(as_torch)
        scaler.update()
        self.zero_grad()
        return norm

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """What is kept of each parameter, by name; the tensors in use, sharded where the parameters are."""
        return {
            name: dict(member.state[parameter])
            for member in self.members
            for name, parameter in _named(member)
            if member.state.get(parameter)
        }

    def load_state_dict(self, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Put a copy of a state back; whole tensors are moved and cut as the parameters are (every rank has them all).

        Rates are not part of it: they follow from the settings. Parameters without a state start afresh.
        """
        known = dict(pair for member in self.members for pair in _named(member))
        for name, slots in state.items():
            if name not in known:
                raise InputError(
                    f"the saved optimiser state has '{name}', which this network and optimiser do not have; resume "
                    "with the model and optimiser that the run was begun with"
                )
            for slot, value in slots.items():
                if value.ndim and value.shape != known[name].shape:
                    raise InputError(
                        f"the saved optimiser state has {slot} of '{name}' of shape {tuple(value.shape)}, not "
                        f"{tuple(known[name].shape)}; resume with the model that the run was begun with"
                    )
        for member in self.members:
            entries = {
                number: {slot: shard_like(value.detach().clone(), parameter) for slot, value in state[name].items()}
                for number, (name, parameter) in enumerate(_named(member))
                if name in state
            }
            member.load_state_dict({"state": entries, "param_groups": member.state_dict()["param_groups"]})

    def _groups(self) -> Iterator[dict[str, Any]]:
        for member in self.members:
            yield from member.param_groups


def _named(member: torch.optim.Optimizer) -> Iterator[tuple[str, Tensor]]:
    """Every tensor that is updated, in the order in which torch numbers them."""
    for group in member.param_groups:
        yield from zip(group["param_names"], group["params"], strict=True)


def build_optimiser(network: Network, settings: OptimiserSettings) -> Optimiser:
    """An optimiser of all trainable parameters of a network that is on its device, and sharded if it is to be."""
    named = [(name, parameter) for name, parameter in network.named_parameters() if parameter.requires_grad]
    if not named:
        raise InputError("the network has no trainable parameters, so there is nothing to optimise")
    assert settings.rate is not None
    groups: dict[tuple[str, bool, bool, int], dict[str, Any]] = {}
    substitutes = []
    for name, parameter in named:
        part = part_of(name)
        # By name, as in the released code: XLNet's query biases have two dimensions, but they are biases.
        decays = not name.endswith("bias") and "norm" not in name.split(".")
        matrix = decays and parameter.ndim == 2 and part in ("attention", "feed_forward")
        parts = 3 if matrix and name.endswith(".qkv.weight") else 1
        by_muon = matrix and settings.name == "muon"
        rate = (settings.muon_rate if by_muon else settings.rate) * settings.part_rate(part)
        empty: dict[str, Any] = {
            "params": [],
            "lr": rate,
            "base_rate": rate,
            "label": f"{part}_muon" if by_muon else part,
            "weight_decay": settings.weight_decay if decays else 0.0,
            "trust": decays,  # the released code leaves the same tensors out of both
            "parts": parts,
        }
        group = groups.setdefault((part, decays, matrix, parts), empty)
        if by_muon:
            substitutes.append(Substitutes(name, parameter, parts))
            group["params"] += zip(substitutes[-1].names, substitutes[-1].tensors, strict=True)
        else:
            group["params"].append((name, parameter))
    matrices = [group for group in groups.values() if group["label"].endswith("_muon")]
    others = [group for group in groups.values() if not group["label"].endswith("_muon")]
    members: list[torch.optim.Optimizer] = []
    if others and settings.name == "lamb":
        members.append(Lamb(others, betas=settings.betas, eps=settings.eps))
    elif others:
        has_fused = all(parameter.device.type in ("cpu", "cuda") for _, parameter in named)
        members.append(
            torch.optim.AdamW(others, betas=settings.betas, eps=settings.eps, fused=True if has_fused else None)
        )
    if matrices:
        members.append(StackedMuon(matrices, momentum=settings.muon_momentum))
    return Optimiser(members, [parameter for _, parameter in named], substitutes)
