"""A pretraining step as our loop takes one, on one device; ``theirs.py`` has the same in ``transformers``."""

import copy
from collections.abc import Sequence

import torch

from litebert.corpus.batches import Batch
from litebert.nn.network import Network
from litebert.pretraining.objective import LOGIT_CHUNK, Pretraining
from litebert.train import precision
from litebert.train.objective import Learner
from litebert.train.optimisers import build_optimiser
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
        self.device, self.numbers, self.settings, self.weights = device, numbers, optimiser, network.state_dict()
        self.objective = Pretraining(length, 0 if compiled else LOGIT_CHUNK)
        self.learner = Learner(copy.deepcopy(network).to(device).train(), self.objective)
        self.learner.network.encoder.half_residual()
        if compiled:
            self.learner.compile()

    def step_on(self, batches: Sequence[Batch], clip: float) -> Step:
        """Steps on these batches, from the first weights on."""
        objective, learner, device = self.objective, self.learner, self.device
        learner.network.load_state_dict(self.weights)
        kind = self.numbers
        optimiser = build_optimiser(learner.network, self.settings)
        scaler = precision.scaler(kind, device)

        def step(index: int, look: bool) -> float:
            batch = batches[index]
            counts = objective.counts(batch)
            with precision.cast(kind, device):
                parts = learner(objective.tensors(batch, device))
                loss = torch.stack([lost / max(counts[name], 1) for name, (lost, _) in parts.items()]).sum()
            scaler.scale(loss).backward()
            optimiser.update(scaler, clip)
            return float(loss.detach()) if look else 0.0

        return step
