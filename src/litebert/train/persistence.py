"""A running loop to a state on disk and back: weights, optimiser, random numbers, and where the run is.

States are whole, not sharded, so that a run may go on with another number of ranks.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from litebert.checkpoints.training import load_state, save_state
from litebert.errors import InputError
from litebert.nn.network import Network
from litebert.train import parallel
from litebert.train.place import Place

if TYPE_CHECKING:
    from litebert.train.loop import Loop


class Companion(Protocol):
    """Something beside the loop that a state must hold, too."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Saver:
    """Saves and restores the loop of a run. ``facts`` (shape, data, recipe) must be the same on resume."""

    def __init__(
        self, run: Path, keep: int, facts: Mapping[str, Any], companions: Mapping[str, Companion] | None = None
    ) -> None:
        self.run, self.keep, self.facts = run, keep, facts
        self.companions = companions or {}
        self.best: float | None = None

    def save(self, loop: "Loop") -> None:
        """Write the state of a loop; all ranks must call this."""
        state = {
            "facts": self.facts,
            "place": asdict(loop.place),
            "weights": parallel.whole_weights(loop.stepper.network),
            "optimiser": parallel.whole_state(loop.stepper.optimiser.state_dict()),
            "scaler": loop.stepper.scaler.state_dict(),
            "guard": loop.guard.state_dict(),
            "random": self._random(loop),
            "best": self.best,
            "companions": {name: companion.state_dict() for name, companion in self.companions.items()},
        }
        loss = loop.held_out.get("loss")
        is_best = loss is not None and (self.best is None or loss < self.best)
        if is_best:
            self.best = state["best"] = loss
        if loop.ranks.first:
            save_state(self.run, loop.place.step, state, keep=self.keep, best=is_best)
        loop.ranks.barrier()

    def restore(self, loop: "Loop") -> bool:
        """Put the last good state back into a loop; False where there is none."""
        found = load_state(self.run)
        if found is None:
            return False
        step, state, notes = found
        for note in notes:
            loop.say(note)
        changed = _changed(state["facts"], self.facts)
        if changed:
            raise InputError(f"{self.run} was begun with {changed}; resume with the same, or begin a new run")
        parallel.restore_weights(loop.stepper.network, state["weights"])
        loop.stepper.optimiser.load_state_dict(state["optimiser"])
        if state["scaler"]:
            loop.stepper.scaler.load_state_dict(state["scaler"])
        loop.guard.load_state_dict(state["guard"])
        positions = {name: (epoch, index) for name, (epoch, index) in state["place"]["positions"].items()}
        loop.place = Place(**{**state["place"], "positions": positions})
        self.best = state["best"]
        for name, companion in self.companions.items():
            if name in state["companions"]:  # a state of an older version may lack it
                companion.load_state_dict(state["companions"][name])
        self._restore_random(loop, state["random"])
        if loop.watch:
            loop.watch.rewind(step)
        return True

    def restore_weights(self, network: Network) -> None:
        """Put back the weights alone, those of the last good state, where there is one."""
        found = load_state(self.run)
        if found is not None:
            parallel.restore_weights(network, found[1]["weights"])

    def _random(self, loop: "Loop") -> dict[str, Any]:
        """The generators of this rank; dropout on other ranks goes on from their number and the step."""
        cuda = torch.cuda.get_rng_state(loop.ranks.device) if loop.ranks.device.type == "cuda" else None
        return {"world": loop.ranks.world, "cpu": torch.get_rng_state(), "cuda": cuda}

    def _restore_random(self, loop: "Loop", state: dict[str, Any]) -> None:
        if loop.ranks.world == 1 and state["world"] == 1:
            torch.set_rng_state(state["cpu"])
            if state["cuda"] is not None and loop.ranks.device.type == "cuda":
                torch.cuda.set_rng_state(state["cuda"], loop.ranks.device)
        else:
            torch.manual_seed(hash((loop.settings.seed, loop.place.step, loop.ranks.rank)) % 2**31)


def _changed(before: Any, now: Any, name: str = "") -> str | None:
    """The first fact that is another now, in words; what an older version did not keep, or kept as text, is let be."""
    if isinstance(now, Mapping):
        known = before if isinstance(before, Mapping) else {}
        found = (_changed(known[key], value, f"{name} {key}".strip()) for key, value in now.items() if key in known)
        return next(filter(None, found), None)
    return None if before == now else f"{name} {before}, not {now}"
