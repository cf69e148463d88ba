"""How a network takes a step: passes over its batches, gradients, the update; in any precision, on one device or many.

The loss of all micro-batches on all ranks is summed and divided by what was counted in the whole batch, so any number
of ranks gives the same step.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from litebert.nn.network import Network
from litebert.process_memory import return_large_blocks
from litebert.train import parallel, precision
from litebert.train.objective import Learner, Objective, Stage, Sums, prepare_compiler
from litebert.train.optimisers import build_optimiser
from litebert.train.parallel import Ranks
from litebert.train.recorded import Recorded
from litebert.train.recorded_update import RecordedUpdate
from litebert.train.settings import TrainSettings
from litebert.train.stretch import Lost


class Stepper:
    """A network, its optimiser and all that stands between them; ``stages`` are those that it will take steps of."""

    def __init__(
        self,
        network: Network,
        stages: Sequence[Stage],
        settings: TrainSettings,
        ranks: Ranks,
        say: Callable[[str], None],
    ) -> None:
        self.network, self.stages, self.settings, self.ranks = network, list(stages), settings, ranks
        network.encoder.checkpointing = settings.checkpointing
        network.encoder.narrow_stream(settings.narrow)
        if settings.checkpointing and ranks.device.type == "cpu":
            return_large_blocks()  # or the heap keeps what checkpointing saves
        network.train()
        # One module is spread over the ranks; the stages' objectives take turns in it.
        self.learner: Learner = Learner(network, self.stages[0].objective)
        if settings.compiled:
            prepare_compiler(len(self.stages))
            self.learner.compile()
        self.spread = parallel.spread(self.learner, network, ranks, settings.sharded)
        self.optimiser = build_optimiser(network, settings.optimiser)
        self.update: Callable[[torch.amp.GradScaler, float], Tensor] = self.optimiser.update
        if settings.recorded and ranks.world == 1:
            self.spread = passes = Recorded(self.learner, self.spread, say)
            self.update = RecordedUpdate(self.optimiser, passes, say)
        self.scaler = precision.scaler(settings.precision, ranks.device)

    def step(self, number: int, stage: Stage, batches: Sequence[Any], rate: float) -> Lost:
        """Step ``number`` on this rank's micro-batches, at so much of the optimiser's rate."""
        counts, tokens = self._count(stage, batches)
        self.optimiser.set_rate(rate)
        sums = self._gradients(stage, batches, counts)
        norm = self.update(self.scaler, self.settings.clip)
        weights = {name: stage.weight(name) for name in sums}
        return Lost(number, self.stages.index(stage), tokens, counts, weights, sums, norm)

    def compile(self, stage: Stage, batch: Any) -> None:
        """Both passes on a batch, whose gradients are thrown away, so that this need not compile in a step."""
        on_gpu = self.ranks.device.type == "cuda"
        self.learner.objective = stage.objective
        with (
            torch.random.fork_rng([self.ranks.device] if on_gpu else []),
            precision.cast(self.settings.precision, self.ranks.device),
        ):
            parts = self.spread(stage.objective.tensors(batch, self.ranks.device))
            sum(part for part, _ in parts.values()).backward()
        self.optimiser.zero_grad()
        self.wait()

    def wait(self) -> None:
        """Until the device has done all that it was asked."""
        if self.ranks.device.type == "cuda":
            torch.cuda.synchronize()

    def sums(self, objective: Objective, tensors: Mapping[str, Tensor]) -> Sums:
        """What the network loses on a batch. Not compiled, which would cost more than it saves, but by the shards."""
        before, self.learner.objective = self.learner.objective, objective
        run = self.spread if self.settings.sharded and self.ranks.world > 1 else self.learner.forward
        try:
            return run(tensors)
        finally:
            self.learner.objective = before

    def _count(self, stage: Stage, batches: Sequence[Any]) -> tuple[dict[str, float], int]:
        """The items of each part of the loss and the tokens in the whole batch, over all ranks."""
        counted = [stage.objective.counts(batch) for batch in batches]
        names = list(counted[0])
        local = [float(sum(count[name] for count in counted)) for name in names]
        *totals, tokens = self.ranks.total([*local, float(sum(batch.num_tokens for batch in batches))])
        return dict(zip(names, totals, strict=True)), int(tokens)

    def _gradients(self, stage: Stage, batches: Sequence[Any], counts: Mapping[str, float]) -> dict[str, Tensor]:
        """Add up the gradients of a step; gives the sums (loss, right) of each part over this rank's batches."""
        device = self.ranks.device
        self.learner.objective = stage.objective
        sums: dict[str, list[Tensor]] = {}
        for number, batch in enumerate(batches):
            last = number == len(batches) - 1
            with parallel.synchronising(self.spread, last), precision.cast(self.settings.precision, device):
                parts = self.spread(stage.objective.tensors(batch, device))
                # Data parallelism averages gradients over ranks, where we want their sum.
                loss = self.ranks.world * sum(
                    stage.weight(name) * part / max(counts[name], 1.0) for name, (part, _) in parts.items()
                )
                self.scaler.scale(loss).backward()
            for name, (part, right) in parts.items():
                sums.setdefault(name, []).append(torch.stack([part.detach().float(), right.float()]))
        return {name: torch.stack(parts).sum(0) for name, parts in sums.items()}
