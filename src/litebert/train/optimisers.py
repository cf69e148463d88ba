"""From settings to an optimiser of a network: which parameter is updated how, and at what rate.

The parts of a model have rates of their own, norms and biases do not decay, and a fused query-key-value weight counts
as the three matrices that it stands for. The state is kept by parameter name, so that it can be put back on another
device, with another number of ranks, or into a network with more blocks.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from litebert.errors import InputError
from litebert.nn.network import Network
from litebert.train.lamb import Lamb
from litebert.train.muon import StackedMuon, Substitutes
from litebert.train.parallel import gradient_norm, shard_like
from litebert.train.settings import OptimiserSettings

THIRDS = 3  # query, key, value
FUSED_KERNELS = ("cpu", "cuda")  # devices with a one-kernel AdamW in every torch that we support

Named = list[tuple[str, Tensor]]

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


@dataclass(frozen=True)
class _Kind:
    """What decides how a parameter is updated; parameters of one kind share a group."""

    part: str
    decays: bool
    matrix: bool  # inside a block
    parts: int  # how many matrices it stands for

    @classmethod
    def of(cls, name: str, parameter: Tensor) -> "_Kind":
        part = part_of(name)
        # By name, as in the released code: XLNet's query biases have two dimensions, but they are biases.
        decays = not name.endswith("bias") and "norm" not in name.split(".")
        matrix = decays and parameter.ndim == 2 and part in ("attention", "feed_forward")
        return cls(part, decays, matrix, THIRDS if matrix and name.endswith(".qkv.weight") else 1)


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

    def unscale(self, scaler: torch.amp.GradScaler) -> None:
        """Take the loss scale out of the gradients."""
        scaler.unscale_(cast(torch.optim.Optimizer, self))

    def step_scaled(self, scaler: torch.amp.GradScaler) -> None:
        """``step``, unless a gradient has overflowed; the scale is adjusted either way."""
        scaler.step(cast(torch.optim.Optimizer, self))
        scaler.update()

    def update(self, scaler: torch.amp.GradScaler, clip: float) -> Tensor:
        """Clip (0: not at all), step and forget the gradients; gives their norm before clipping."""
        if scaler.is_enabled():
            self.unscale(scaler)
        norm = gradient_norm(self.parameters())
        if clip:
            nn.utils.clip_grads_with_norm_(self.parameters(), clip, norm)
        if scaler.is_enabled():
            self.step_scaled(scaler)
        else:
            self.step()
        self.zero_grad()
        return norm

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """What is kept of each parameter, by name; the tensors in use, sharded where the parameters are."""
        return {
            name: dict(member.state[parameter])
            for member, name, parameter in self._named()
            if member.state.get(parameter)
        }

    def load_state_dict(self, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Put a copy of a state back; whole tensors are moved and cut as the parameters are (every rank has them all).

        Rates are not part of it: they follow from the settings. Parameters without a state start afresh.
        """
        known = {name: parameter for _, name, parameter in self._named()}
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
            numbers = iter(range(len(known)))
            entries: dict[int, dict[str, Tensor]] = {}
            for owner, name, parameter in self._named():
                if owner is not member:
                    continue
                number = next(numbers)
                if name in state:
                    kept = state[name].items()
                    entries[number] = {slot: shard_like(value.detach().clone(), parameter) for slot, value in kept}
            member.load_state_dict({"state": entries, "param_groups": member.state_dict()["param_groups"]})

    def _groups(self) -> Iterator[dict[str, Any]]:
        for member in self.members:
            yield from member.param_groups

    def _named(self) -> Iterator[tuple[torch.optim.Optimizer, str, Tensor]]:
        """Every tensor that is updated, in the order in which torch numbers them."""
        for member in self.members:
            for group in member.param_groups:
                for name, parameter in zip(group["param_names"], group["params"], strict=True):
                    yield member, name, parameter


def build_optimiser(network: Network, settings: OptimiserSettings) -> Optimiser:
    """An optimiser of all trainable parameters of a network that is on its device, and sharded if it is to be."""
    named = [(name, parameter) for name, parameter in network.named_parameters() if parameter.requires_grad]
    if not named:
        raise InputError("the network has no trainable parameters, so there is nothing to optimise")
    kinds: dict[_Kind, list[tuple[str, nn.Parameter]]] = {}
    for name, parameter in named:
        kinds.setdefault(_Kind.of(name, parameter), []).append((name, parameter))
    by_muon = {kind for kind in kinds if settings.name == "muon" and kind.matrix}
    substitutes = {
        kind: [Substitutes(name, parameter, kind.parts) for name, parameter in kinds[kind]] for kind in by_muon
    }
    others = [_group(kind, list(kinds[kind]), settings) for kind in kinds if kind not in by_muon]
    make: Callable[..., torch.optim.Optimizer] = _lamb if settings.name == "lamb" else _adamw
    members = [make(others, settings)] if others else []
    if by_muon:
        matrices = []
        for kind in kinds:
            if kind in by_muon:
                entries = [pair for each in substitutes[kind] for pair in zip(each.names, each.tensors, strict=True)]
                matrices.append(_group(kind, entries, settings, by_muon=True))
        members.append(_muon(matrices, settings))
    flat = [each for kind in kinds if kind in by_muon for each in substitutes[kind]]
    return Optimiser(members, [parameter for _, parameter in named], flat)


def _group(kind: _Kind, named: Named, settings: OptimiserSettings, *, by_muon: bool = False) -> dict[str, Any]:
    assert settings.rate is not None
    rate = (settings.muon_rate if by_muon else settings.rate) * settings.part_rate(kind.part)
    return {
        "params": named,
        "lr": rate,
        "base_rate": rate,
        "label": f"{kind.part}_muon" if by_muon else kind.part,
        "weight_decay": settings.weight_decay if kind.decays else 0.0,
        "decays": kind.decays,
        "parts": kind.parts,
    }


def _lamb(groups: list[dict[str, Any]], settings: OptimiserSettings) -> torch.optim.Optimizer:
    for group in groups:
        group["trust"] = group["decays"]  # the released code leaves the same tensors out of both
    return Lamb(groups, betas=settings.betas, eps=settings.eps)


def _adamw(groups: list[dict[str, Any]], settings: OptimiserSettings) -> torch.optim.Optimizer:
    devices = {parameter.device.type for group in groups for _, parameter in group["params"]}
    fused = True if devices <= set(FUSED_KERNELS) else None
    return torch.optim.AdamW(groups, betas=settings.betas, eps=settings.eps, fused=fused)


def _muon(groups: list[dict[str, Any]], settings: OptimiserSettings) -> torch.optim.Optimizer:
    return StackedMuon(groups, momentum=settings.muon_momentum)
