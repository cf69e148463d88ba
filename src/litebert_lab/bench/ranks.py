"""What several processes send each other in a pretraining step, and how long that takes, beside what ``plan`` predicts.

The bytes are counted where DistributedDataParallel hands its gradients over. Steps with and without the exchange are
taken in turns, by all processes at once, so that both share the machine in the same way. Under ``torchrun`` the command
measures between the processes it finds, on whatever network they are; otherwise it starts some on this machine.
"""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from litebert.checkpoints.folder import model_config
from litebert.errors import InputError
from litebert.planning.nodes import GRADIENT_BYTES, Links
from litebert.planning.step import StepSettings, build_network, build_stepper, lengths_for, random_batch
from litebert.report import Report, Section, Table, note
from litebert.train.parallel import Ranks
from litebert.train.precision import training_precision

PROBE_BYTES = 64 * 2**20  # to measure how fast the processes are connected

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One model's step."""

    model: str
    parameters: int
    sent: int  # bytes of gradients that a rank hands over in a step, counted
    alone: float  # seconds of a step without the exchange
    together: float  # and with it
    plain: float  # seconds of the exchange alone
    predicted: float  # the same by the plan

    @property
    def measured(self) -> float:
        """Seconds that the exchange adds to a step."""
        return self.together - self.alone


def start_ranks(count: int) -> int:
    """The command at hand once more, by ``count`` processes of torchrun on this machine; gives its exit status."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    return subprocess.run([*torchrun, "-m", "litebert_lab", *sys.argv[1:]], check=False).returncode


def bench_ranks(
    models: Sequence[str], *, device: str, tokens: int, length: int, steps: int, link: float | None
) -> Report | None:
    """Measure on this rank, together with the others; the first gives the report. ``link``: stated, in GB/s."""
    if "RANK" not in os.environ:
        raise InputError("bench ranks measures between processes of torchrun")
    ranks = Ranks.join(device)
    with ranks.one_error():
        probe = torch.ones(PROBE_BYTES // 4, device=ranks.device)
        seconds = _seconds(ranks, lambda: dist.all_reduce(probe), 3)
        speed = 2 * (ranks.world - 1) / ranks.world * PROBE_BYTES / seconds
        # Every rank as a node of its own: the slower of the two links is what counts.
        links = Links(gpus=ranks.world, nodes=ranks.world, link=link * 1e9 if link else speed)
        rows = []
        for model in models:
            if ranks.first:
                log.info("%s ...", model)
            rows.append(_exchange(model, ranks, links, tokens, length, steps))
    return _report(rows, ranks, links, speed, tokens, steps) if ranks.first else None


def _exchange(model: str, ranks: Ranks, links: Links, tokens: int, length: int, steps: int) -> Exchange:
    config, kind = model_config(model, []).encoder, "cuda" if ranks.device.type == "cuda" else "cpu"
    precision = training_precision(ranks.device, config.width)
    settings = StepSettings(kind=kind, length=length, precision=precision)  # type: ignore[arg-type]
    torch.manual_seed(0)
    network = build_network(config, settings).to(ranks.device)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    batch = random_batch(config, lengths_for(tokens, length, False), max(1, round(0.15 * tokens)))
    alone, stage = build_stepper(network, settings, Ranks.alone(ranks.device))
    together, _ = build_stepper(network, settings, ranks)
    assert isinstance(together.parallel, DistributedDataParallel)
    sent = [0]

    def count(group: Any, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        sent[0] += bucket.buffer().nbytes
        return allreduce_hook(group, bucket)

    together.parallel.register_comm_hook(None, count)
    for stepper in (alone, together, together):  # buckets are made anew in the second step
        stepper.step(0, stage, [batch], 1.0)
    sent[0] = 0
    with_it, without = [], []
    for _ in range(steps):
        without.append(_seconds(ranks, lambda: alone.step(1, stage, [batch], 1.0)))
        with_it.append(_seconds(ranks, lambda: together.step(1, stage, [batch], 1.0)))
    gradients = torch.ones(parameters, device=ranks.device)
    return Exchange(
        model=model,
        parameters=parameters,
        sent=sent[0] // steps,
        alone=median(without),
        together=median(with_it),
        plain=_seconds(ranks, lambda: dist.all_reduce(gradients), 3),
        predicted=links.exchange_seconds(GRADIENT_BYTES * parameters),
    )


def _seconds(ranks: Ranks, action: Callable[[], object], times: int = 1) -> float:
    """The time of an action that all ranks begin together, that of the slowest; of several the median."""
    found = []
    for _ in range(times):
        ranks.barrier()
        begun = time.perf_counter()
        action()
        if ranks.device.type == "cuda":
            torch.cuda.synchronize()
        found.append(max(ranks.of_all(time.perf_counter() - begun)))
    return median(found)


def _report(rows: Sequence[Exchange], ranks: Ranks, links: Links, speed: float, tokens: int, steps: int) -> Report:
    table = [["", *(row.model for row in rows)]]
    table += [
        ["parameters", *(f"{row.parameters:,}" for row in rows)],
        ["gradient bytes of a step, counted", *(f"{row.sent:,}" for row in rows)],
        ["  relative to the first", *(f"{row.sent / rows[0].sent:.2f}" for row in rows)],
        ["step without the exchange, s", *(f"{row.alone:.3f}" for row in rows)],
        ["step with it, s", *(f"{row.together:.3f}" for row in rows)],
        ["what it adds, s", *(f"{row.measured:.3f}" for row in rows)],
        ["the exchange by itself, s", *(f"{row.plain:.3f}" for row in rows)],
        ["predicted, s", *(f"{row.predicted:.3f}" for row in rows)],
        ["  predicted / added", *(f"{row.predicted / row.measured:.2f}" for row in rows)],
        ["  predicted / by itself", *(f"{row.predicted / row.plain:.2f}" for row in rows)],
    ]
    said = (
        f"medians of {steps} steps on {tokens:,} tokens a rank; {speed / 1e9:.3g} GB/s measured by adding up "
        f"{PROBE_BYTES >> 20} MiB, {links.link / 1e9:.3g} GB/s taken for the prediction"
    )
    data = {"ranks": ranks.world, "measured_link": speed, "link": links.link, "rows": [asdict(row) for row in rows]}
    title = f"{ranks.world} ranks on {ranks.device.type}: the exchange of gradients"
    return Report(title=title, sections=[Section(items=[Table(rows=table), note(said)])], data=data)
