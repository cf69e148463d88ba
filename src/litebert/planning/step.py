"""The step that a plan is about: built once, for counting on tensors without data and for timing on this machine.

It is the step of training: its network, objective, stepper and optimiser, on a batch of random tokens. ``measure``
takes such steps in a process of their own, so that the memory they take is theirs alone: run as
``python -m litebert.planning.step`` this file reads a request as JSON and writes the result as JSON.
"""

import dataclasses
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from torch import Tensor

from litebert.config import build
from litebert.corpus.batches import Batch
from litebert.errors import InputError
from litebert.nn.config import EncoderConfig
from litebert.nn.layout import Layout
from litebert.nn.network import PRETRAINING_HEADS, HeadName, Network, pretraining_network
from litebert.planning.arithmetic import MASKED_SHARE, Purpose
from litebert.planning.devices import Kind
from litebert.pretraining.elastic import WEIGHTS, Elastic, shallower_depths
from litebert.pretraining.objective import LOGIT_CHUNK, Pretraining
from litebert.system import peak_resident_bytes
from litebert.train.objective import Objective, Part, Stage
from litebert.train.parallel import Ranks
from litebert.train.settings import Bound, OptimiserSettings, Precision, TrainSettings
from litebert.train.stepper import Stepper

Optimiser = Literal["adamw", "lamb", "muon", "sgd"]
OPTIMISERS: tuple[Optimiser, ...] = get_args(Optimiser)
WARM_UP_STEPS = {"cpu": 1, "cuda": 3}  # the first makes the optimiser's state, compiled code and the like


@dataclass(frozen=True, kw_only=True)
class StepSettings:
    """All that decides what a step costs, but the model and the number of tokens."""

    purpose: Purpose = "pretrain"
    kind: Kind
    length: int
    mixed: bool = False  # lengths from 1 / 8 of ``length`` to all of it
    precision: Precision
    optimiser: Optimiser = "adamw"
    checkpointing: bool = False
    compiled: bool = False
    flash: bool = True  # whether a GPU is new enough for flash attention
    half_residual: bool | None = None  # a residual stream in half precision; None: in pretraining
    mask_rate: float = MASKED_SHARE
    logit_chunk: int | None = None  # masked positions whose logits are held at once, 0: all; None: as in pretraining
    elastic: bool = False  # pretraining at two depths

    @property
    def is_half(self) -> bool:
        return self.precision != "fp32"

    @property
    def trains(self) -> bool:
        return self.purpose != "infer"

    def for_purpose(self, purpose: Purpose) -> "StepSettings":
        """The same for another purpose; inference has no optimiser, and nothing to checkpoint."""
        if purpose == "infer":
            return dataclasses.replace(self, purpose=purpose, optimiser="adamw", checkpointing=False)
        return dataclasses.replace(self, purpose=purpose)

    @property
    def chunk(self) -> int:
        if self.logit_chunk is not None:
            return self.logit_chunk
        return 0 if self.compiled else LOGIT_CHUNK


def cycle_of_lengths(length: int, mixed: bool) -> list[int]:
    """The lengths that a batch repeats: one of ``length``, or mixed, each eighth of it once."""
    return [max(1, length * (1 + (5 * turn) % 8) // 8) for turn in range(8)] if mixed else [length]


def lengths_for(tokens: int, length: int, mixed: bool) -> list[int]:
    """Sequence lengths that add up to ``tokens``."""
    lengths, left = [], tokens
    for each in itertools.cycle(cycle_of_lengths(length, mixed)):
        if left <= 0:
            break
        lengths.append(min(each, left))
        left -= each
    return lengths


def random_batch(config: EncoderConfig, lengths: Sequence[int], masked: int) -> Batch:
    """Random tokens in sequences of these lengths, two segments each where the model has them, ``masked`` targets."""
    random = np.random.default_rng(0)
    sizes = np.array(lengths)
    tokens = int(sizes.sum())
    starts = np.concatenate([[0], sizes.cumsum()]).astype(np.int32)
    ids = random.integers(0, config.vocab_size, tokens, dtype=np.int32)
    positions = (np.arange(tokens) - np.repeat(starts[:-1], sizes)).astype(np.int32)
    second = positions >= np.repeat(sizes, sizes) // 2 if config.num_segments > 1 else np.zeros(tokens)
    places = np.sort(random.choice(tokens, masked, replace=False)).astype(np.int32)
    return Batch(
        epoch=0,
        index=0,
        ids=ids,
        segments=second.astype(np.int32),
        positions=positions,
        word_starts=np.ones(tokens, np.uint8),
        starts=starts,
        order_labels=random.integers(0, 2, len(sizes), dtype=np.int32),
        mask_positions=places,
        mask_targets=ids[places],
        ngrams=np.ones(masked, np.uint8),
        longest=int(sizes.max()),
        num_tokens=tokens,
        num_sequences=len(sizes),
        num_masked=masked,
    )


class Classification(Pretraining):
    """Fine-tuning as a plan counts it: two labels a sequence, which is what the order head alone is."""

    def heads(self, network: Network, states: Tensor, layout: Layout, tensors: Mapping[str, Tensor]) -> dict[str, Part]:
        return self.order(network, states, layout, tensors["order_labels"])


def build_network(config: EncoderConfig, settings: StepSettings) -> Network:
    """A new network with the heads that the purpose needs."""
    heads: dict[Purpose, tuple[HeadName, ...]] = {"infer": (), "finetune": ("order",), "pretrain": PRETRAINING_HEADS}
    return pretraining_network(config, heads[settings.purpose])


def build_stepper(network: Network, settings: StepSettings, ranks: Ranks) -> tuple[Stepper, Stage]:
    """The stepper of the trainer, and the stage that it takes steps of.

    SGD is there for comparison only, as AdamW: what that keeps is left out where the state is counted.
    """
    half_residual = settings.purpose == "pretrain" if settings.half_residual is None else settings.half_residual
    train = TrainSettings(
        bound=Bound(steps=1),
        optimiser=OptimiserSettings(name=settings.optimiser if settings.optimiser != "sgd" else "adamw"),
        precision=settings.precision,
        half_residual=half_residual,
        compiled=settings.compiled,
        checkpointing=settings.checkpointing,
    )
    depth = network.config.encoder.num_layers
    objective: Objective = Pretraining(settings.length, settings.chunk, depth)
    if settings.purpose == "finetune":
        objective = Classification(settings.length)
    elif settings.elastic and shallower_depths(depth, depth):
        objective = Elastic(Pretraining(settings.length, settings.chunk, depth), shallower_depths(depth, depth), seed=0)
    stage = Stage("plan", 0.0, cast(Any, None), objective, weights=WEIGHTS)
    return Stepper(network, [stage], train, ranks), stage


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What the steps took."""

    memory_bytes: int  # the allocator's peak on CUDA, the process's resident peak on a CPU
    runtime_bytes: int  # of these, the bytes in use before the model was made
    seconds_per_step: float
    tokens_per_second: float
    loss: float
    device: str


def measure(config: EncoderConfig, settings: StepSettings, tokens: int, steps: int) -> Measured:
    """Take ``steps`` steps on ``tokens`` each, after a warm-up, in a fresh process."""
    request = [dataclasses.asdict(config), dataclasses.asdict(settings), tokens, steps]
    command = [sys.executable, "-m", "litebert.planning.step"]
    done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"it was stopped (exit code {done.returncode})"]
        hint = "; try fewer tokens" if done.returncode < 0 or "memory" in last[0].lower() else ""
        raise InputError(f"the measured step did not finish: {last[0]}{hint}")
    return Measured(**json.loads(done.stdout.strip().splitlines()[-1]))


def take_steps(config: EncoderConfig, settings: StepSettings, tokens: int, steps: int) -> Measured:
    """The same in this process."""
    device = torch.device(settings.kind)
    on_cuda = device.type == "cuda"
    before = 0 if on_cuda else peak_resident_bytes()
    torch.manual_seed(0)
    lengths = lengths_for(tokens, settings.length, settings.mixed)
    batch = random_batch(config, lengths, max(1, round(settings.mask_rate * tokens)))
    network = build_network(config, settings).to(device)
    stepper, stage = build_stepper(network, settings, Ranks.alone(device))
    for number in range(WARM_UP_STEPS[device.type]):
        stepper.step(number, stage, [batch], 1.0)
    stepper.wait()
    if on_cuda:
        torch.cuda.reset_peak_memory_stats()  # compiling tries things out; training does not
    start = time.perf_counter()
    for number in range(steps):
        done = stepper.step(number, stage, [batch], 1.0)
    stepper.wait()
    seconds = (time.perf_counter() - start) / steps
    return Measured(
        memory_bytes=torch.cuda.max_memory_allocated() if on_cuda else peak_resident_bytes(),
        runtime_bytes=before,
        seconds_per_step=seconds,
        tokens_per_second=tokens / seconds,
        loss=sum(float(sums[0]) / done.counts[name] for name, sums in done.sums.items()),
        device=torch.cuda.get_device_name() if on_cuda else f"CPU, {torch.get_num_threads()} threads",
    )


if __name__ == "__main__":
    plain_config, plain_settings, *numbers = json.load(sys.stdin)
    measured = take_steps(build(EncoderConfig, plain_config), StepSettings(**plain_settings), *numbers)
    print(json.dumps(dataclasses.asdict(measured)))
