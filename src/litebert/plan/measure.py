"""Real steps on the present device, in a process of their own so that what they take is theirs alone.

Run as ``python -m litebert.plan.measure`` it reads a request as JSON and writes the result as JSON.
"""

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from litebert.config import build
from litebert.errors import InputError
from litebert.nn.config import EncoderConfig
from litebert.resident import resident_peak, return_large_blocks

WARM_UP_STEPS = {"cpu": 1, "cuda": 3}  # the first makes the optimiser's state, compiled code and the like


@dataclass(frozen=True, kw_only=True)
class Request:
    """Which steps to take."""

    encoder: EncoderConfig
    device: str
    lengths: tuple[int, ...]
    precision: str
    checkpointing: bool
    compiled: bool
    steps: int
    narrow: bool = True  # as in pretraining


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What the steps took."""

    memory_bytes: int  # the allocator's peak on CUDA, the process's resident peak on a CPU
    runtime_bytes: int  # of which there were so many before the model was made
    seconds_per_step: float
    tokens_per_second: float
    loss: float
    device: str


def measure(request: Request) -> Measured:
    """Take the steps in a fresh process."""
    plain = json.dumps(dataclasses.asdict(request))
    command = [sys.executable, "-m", "litebert.plan.measure"]
    done = subprocess.run(command, input=plain, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"it was stopped (exit code {done.returncode})"]
        hint = "; try fewer --tokens" if done.returncode < 0 or "memory" in last[0].lower() else ""
        raise InputError(f"the measured step did not finish: {last[0]}{hint}")
    return Measured(**json.loads(done.stdout.strip().splitlines()[-1]))


def take_steps(request: Request) -> Measured:
    """Take the steps here and now."""
    import torch

    from litebert.plan.step import made_up_batch, training_step

    before = resident_peak()
    if request.checkpointing and request.device == "cpu":
        return_large_blocks()
    torch.manual_seed(0)
    batch = made_up_batch(request.encoder, list(request.lengths), request.device)
    step = training_step(
        request.encoder,
        batch,
        device=request.device,
        precision=request.precision,  # type: ignore[arg-type]
        checkpointing=request.checkpointing,
        compiled=request.compiled,
        narrow=request.narrow,
    )
    synchronise: Callable[[], None] = torch.cuda.synchronize if request.device == "cuda" else lambda: None
    for _ in range(WARM_UP_STEPS[request.device]):
        step()
    synchronise()
    if request.device == "cuda":
        torch.cuda.reset_peak_memory_stats()  # compiling tries things out; training does not
    start = time.perf_counter()
    for _ in range(request.steps):
        loss = step()
    synchronise()
    seconds = (time.perf_counter() - start) / request.steps
    on_cuda = request.device == "cuda"
    return Measured(
        memory_bytes=torch.cuda.max_memory_allocated() if on_cuda else resident_peak(),
        runtime_bytes=0 if on_cuda else before,
        seconds_per_step=seconds,
        tokens_per_second=sum(request.lengths) / seconds,
        loss=float(loss),
        device=torch.cuda.get_device_name() if on_cuda else f"CPU, {torch.get_num_threads()} threads",
    )


def _read_request(plain: dict[str, Any]) -> Request:
    encoder = build(EncoderConfig, plain.pop("encoder"))
    return Request(encoder=encoder, **{**plain, "lengths": tuple(plain["lengths"])})


if __name__ == "__main__":
    print(json.dumps(dataclasses.asdict(take_steps(_read_request(json.load(sys.stdin))))))
