"""A pretraining step as our trainer takes one, on one device; ``theirs.py`` has the same in ``transformers``."""

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch

from litebert.corpus.batches import Batch
from litebert.nn.network import Network
from litebert.planning.devices import Kind
from litebert.planning.step import StepSettings, build_stepper
from litebert.train import precision
from litebert.train.settings import OptimiserSettings, Precision
from litebert_lab.bench.theirs import Step


class OurPretraining:
    """A network of ours in training, on inputs of at most ``length`` tokens."""

    def __init__(
        self,
        network: Network,
        device: torch.device,
        numbers: Precision,
        compiled: bool,
        optimiser: OptimiserSettings,
        length: int,
    ) -> None:
        self.weights = network.state_dict()
        kind: Kind = "cuda" if device.type == "cuda" else "cpu"
        settings = StepSettings(kind=kind, length=length, precision=numbers, compiled=compiled)
        self.stepper, self.stage = build_stepper(copy.deepcopy(network).to(device), settings, device, optimiser)

    def step_on(self, batches: Sequence[Batch], clip: float) -> Step:
        """Steps on these batches, from the first weights on."""
        stepper = self.stepper
        stepper.network.load_state_dict(self.weights)
        stepper.optimiser.load_state_dict({})
        stepper.scaler = precision.scaler(stepper.settings.precision, stepper.ranks.device)
        stepper.settings = replace(stepper.settings, optimiser=replace(stepper.settings.optimiser, clip=clip))

        def step(index: int, look: bool) -> float:
            done = stepper.step(index, self.stage, [batches[index]], 1.0)
            return done.loss if look else 0.0

        return step
