"""How a network takes a step: passes over its batches, gradients, the update; in any precision, on one device or many.

The loss of all micro-batches on all ranks is summed and divided by what was counted in the whole batch, so any number
of ranks gives the same step. Losses stay on the device until somebody reads them.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from litebert.nn.network import Network
from litebert.system import return_large_blocks
from litebert.train import parallel, precision
from litebert.train.cuda_graphs import CudaGraphPasses, CudaGraphUpdate
from litebert.train.objective import Learner, Objective, Stage, Sums, prepare_compiler
from litebert.train.optimisers import build_optimiser
from litebert.train.parallel import Ranks
from litebert.train.settings import TrainSettings


@dataclass(frozen=True)
class StepLosses:
    """One step's losses, still on the device."""

    step: int
    tokens: int  # of the whole batch
    counts: Mapping[str, float]  # items of each part in the whole batch
    weights: Mapping[str, float]  # of the parts of the loss
    sums: Mapping[str, Tensor]  # loss and right, of each part
    norm: Tensor

    @cached_property
    def figures(self) -> dict[str, float]:
        """Loss and accuracy of every part, and the gradient norm; waits for the device.

        On several ranks they are this rank's share of the sums.
        """
        return read_losses([self], list)[0]

    @property
    def loss(self) -> float:
        """The weighted sum of the parts; waits for the device."""
        return self.figures["loss"]


@dataclass
class LogWindow:
    """The steps from one log line to the next, and how fast they went."""

    steps: list[StepLosses] = field(default_factory=list)
    waited: float = 0.0  # seconds, for batches
    flops: float = 0.0  # arithmetic of this rank
    begun: float = field(default_factory=lambda: time.monotonic())  # looked up late: tests set the clock

    def speed(self, peak: float) -> dict[str, float]:
        """Tokens a second, the share of the time spent waiting, and of ``peak`` operations a second, where known."""
        seconds = max(time.monotonic() - self.begun, 1e-9)
        tokens = sum(step.tokens for step in self.steps)
        speed = {"tokens_per_second": tokens / seconds, "waiting": self.waited / seconds}
        return {**speed, "mfu": self.flops / seconds / peak} if self.flops else speed


class Stepper:
    """A network, its optimiser and all that stands between them; ``stages`` are those that it will take steps of."""

    def __init__(self, network: Network, stages: Sequence[Stage], settings: TrainSettings, ranks: Ranks) -> None:
        self.network, self.settings, self.ranks = network, settings, ranks
        network.encoder.checkpointing = settings.checkpointing
        network.encoder.graph_per_layer = settings.compiled and settings.graph_per_layer
        network.encoder.half_residual(settings.half_residual)
        if settings.checkpointing and ranks.device.type == "cpu":
            return_large_blocks()  # or the heap keeps what checkpointing saves
        network.train()
        # One module runs on all ranks; the stages' objectives take turns in it.
        self.learner: Learner = Learner(network, stages[0].objective)
        if settings.compiled:
            prepare_compiler(len(stages))
            self.learner.compile()
        self.parallel = parallel.parallelize(self.learner, network, ranks, settings.sharded)
        self.optimiser = build_optimiser(network, settings.optimiser)
        self.update: Callable[[torch.amp.GradScaler, float], Tensor] = self.optimiser.update
        if settings.cuda_graphs and ranks.world == 1:
            self.parallel = passes = CudaGraphPasses(self.learner, self.parallel)
            self.update = CudaGraphUpdate(self.optimiser, passes)
        self.scaler = precision.scaler(settings.precision, ranks.device)

    def step(self, number: int, stage: Stage, batches: Sequence[Any], rate: float) -> StepLosses:
        """Step ``number`` on this rank's micro-batches, at a share ``rate`` of the optimiser's own learning rate."""
        counts, tokens = self._count(stage, batches)
        self.optimiser.set_rate(rate)
        sums = self._gradients(stage, batches, counts)
        norm = self.update(self.scaler, self.settings.optimiser.clip)
        weights = {name: stage.weight(name) for name in sums}
        return StepLosses(number, tokens, counts, weights, sums, norm)

    def choose(self, stage: Stage, batches: Sequence[Any]) -> tuple[list[Any], float]:
        """What a step of the stage trains on, and the arithmetic of choosing it from ``batches``."""
        if stage.choice is None:
            return list(batches), 0.0
        device = self.ranks.device
        self.network.eval()
        with torch.no_grad(), precision.cast(self.settings.precision, device):
            chosen = [stage.choice(self.sums, batch, device) for batch in batches]
        self.network.train()
        return [batch for batch, _ in chosen], sum(flops for _, flops in chosen)

    def compile(self, stage: Stage, batch: Any) -> None:
        """Both passes on a batch, whose gradients are thrown away, so that this need not compile in a step."""
        on_gpu = self.ranks.device.type == "cuda"
        self.learner.objective = stage.objective
        with (
            torch.random.fork_rng([self.ranks.device] if on_gpu else []),
            precision.cast(self.settings.precision, self.ranks.device),
        ):
            parts = self.parallel(stage.objective.tensors(batch, self.ranks.device))
            sum(part for part, _ in parts.values()).backward()
        self.optimiser.zero_grad()
        self.wait()

    def wait(self) -> None:
        """Wait until the device has finished."""
        if self.ranks.device.type == "cuda":
            torch.cuda.synchronize()

    def sums(self, objective: Objective, tensors: Mapping[str, Tensor]) -> Sums:
        """What the network loses on a batch. Not compiled, which would cost more than it saves, but by the shards."""
        before, self.learner.objective = self.learner.objective, objective
        run = self.parallel if self.settings.sharded and self.ranks.world > 1 else self.learner.forward
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
            with parallel.synchronising(self.parallel, last), precision.cast(self.settings.precision, device):
                parts = self.parallel(stage.objective.tensors(batch, device))
                # Data parallelism averages gradients over ranks, where we want their sum.
                loss = self.ranks.world * sum(
                    stage.weight(name) * part / max(counts[name], 1.0) for name, (part, _) in parts.items()
                )
                self.scaler.scale(loss).backward()
            for name, (part, right) in parts.items():
                sums.setdefault(name, []).append(torch.stack([part.detach().float(), right.float()]))
        return {name: torch.stack(parts).sum(0) for name, parts in sums.items()}


def read_losses(steps: Sequence[StepLosses], total: Callable[[Sequence[float]], list[float]]) -> list[dict[str, float]]:
    """A row of figures for each step, summed over the ranks by ``total``; the host waits for the device here."""
    names = list(steps[0].sums)
    table = torch.stack([torch.cat([step.sums[name] for name in names]) for step in steps]).tolist()
    norms = torch.stack([step.norm.float() for step in steps]).tolist()
    return [
        {**_figures(step, names, total(numbers)), "gradient_norm": norm}
        for step, numbers, norm in zip(steps, table, norms, strict=True)
    ]


def _figures(step: StepLosses, names: Sequence[str], numbers: Sequence[float]) -> dict[str, float]:
    row: dict[str, float] = {}
    for place, name in enumerate(names):
        count = step.counts[name]
        if not count:  # there may be no pair of sentences in this batch
            continue
        row[f"{name}_loss"] = numbers[2 * place] / count
        if not math.isnan(numbers[2 * place + 1]):  # there is no right or wrong in regression
            row[f"{name}_accuracy"] = numbers[2 * place + 1] / count
    row["loss"] = sum(step.weights.get(name, 1.0) * row.get(f"{name}_loss", 0.0) for name in names)
    return row


def mean_row(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of every figure over the rows that have it."""
    return {name: fmean(row[name] for row in rows if name in row) for row in rows for name in row}
