"""The step that a plan is about: built once, for counting on tensors without data and for timing on this machine.

It is the step of training: its network, objective, stepper and optimiser, on a batch of random tokens. ``measure``
takes such steps in a process of their own, so that the memory they take is theirs alone: run as
``python -m litebert.plan.step`` this file reads a request as JSON and writes the result as JSON.
"""

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor

from litebert.config import build
from litebert.corpus.batches import Batch
from litebert.errors import InputError
from litebert.nn.config import EncoderConfig
from litebert.nn.layout import Layout
from litebert.nn.network import HeadsConfig, Network, NetworkConfig, pretraining_network
from litebert.plan.arithmetic import MASKED_SHARE, Purpose
from litebert.plan.devices import Kind
from litebert.pretrain.elastic import WEIGHTS, Elastic, shallower_depths
from litebert.pretrain.objective import LOGIT_CHUNK, Pretraining, on_device, part_sums
from litebert.process_memory import peak_resident_bytes
from litebert.train.objective import Objective, Part, Stage
from litebert.train.optimiser_settings import OptimiserSettings
from litebert.train.parallel import Ranks
from litebert.train.schedules import ScheduleSettings
from litebert.train.settings import Bound, Precision, TrainSettings
from litebert.train.stepper import Stepper

Optimiser = Literal["adamw", "lamb", "muon", "sgd"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16", "fp16")
OPTIMISERS: tuple[Optimiser, ...] = ("adamw", "lamb", "muon", "sgd")
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
    cycle = cycle_of_lengths(length, mixed)
    lengths: list[int] = []
    left = tokens
    while left > 0:
        lengths.append(min(cycle[len(lengths) % len(cycle)], left))
        left -= lengths[-1]
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


class Classification:
    """Fine-tuning, for the purposes of a plan: two labels a sequence; other kinds of task cost about the same."""

    def __init__(self, longest: int) -> None:
        self.longest = longest

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"classify": batch.num_sequences}

    def tensors(self, batch: Batch, device: torch.device) -> dict[str, Tensor]:
        arrays = {
            "ids": batch.ids,
            "segments": batch.segments,
            "positions": batch.positions,
            "labels": batch.order_labels,
        }
        tensors = {name: on_device(torch.from_numpy(array), device).long() for name, array in arrays.items()}
        return {**tensors, "starts": on_device(torch.from_numpy(batch.starts), device)}

    def parts(self, network: Network, tensors: Mapping[str, Tensor]) -> dict[str, Part]:
        layout = Layout(tensors["starts"], tensors["positions"], self.longest)
        pooled = network.pooled(network.encoder(tensors["ids"], layout, tensors["segments"]), layout)
        return {"classify": part_sums(network.heads["classify"](pooled).float(), tensors["labels"])}


def build_network(config: EncoderConfig, settings: StepSettings) -> Network:
    """A new network with the heads that the purpose needs."""
    if settings.purpose == "pretrain":
        return pretraining_network(config)
    heads = HeadsConfig(names=("classify",)) if settings.trains else HeadsConfig()
    return Network(NetworkConfig(encoder=config, heads=heads))


def build_stepper(
    network: Network, settings: StepSettings, device: torch.device, *, longest: int, tokens: int
) -> tuple[Stepper, Stage]:
    """What takes steps of training, and the stage that it takes them of."""
    half_residual = settings.purpose == "pretrain" if settings.half_residual is None else settings.half_residual
    train = TrainSettings(
        bound=Bound(steps=1),
        # SGD is there for comparison only; what it keeps is left out where the state is counted
        optimiser=OptimiserSettings(name="adamw" if settings.optimiser == "sgd" else settings.optimiser),
        schedule=ScheduleSettings(),
        batch_tokens=((0.0, tokens),),
        micro_tokens=tokens,
        precision=settings.precision,
        narrow=half_residual,
        compiled=settings.compiled,
        checkpointing=settings.checkpointing,
    )
    stage = Stage("plan", 0.0, cast(Any, None), _objective(network.config.encoder, settings, longest), weights=WEIGHTS)
    return Stepper(network, [stage], train, Ranks(0, 1, device, None), lambda _: None), stage


def _objective(config: EncoderConfig, settings: StepSettings, longest: int) -> Objective:
    if settings.purpose == "finetune":
        return Classification(longest)
    depth = config.num_layers
    deepest = Pretraining(longest, settings.chunk, depth)
    shallower = shallower_depths(depth, depth) if settings.elastic else ()
    return Elastic(deepest, shallower, seed=0) if shallower else deepest


@dataclass(frozen=True, kw_only=True)
class MeasureRequest:
    """Which steps to take."""

    encoder: EncoderConfig
    settings: StepSettings
    tokens: int
    steps: int


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What the steps took."""

    memory_bytes: int  # the allocator's peak on CUDA, the process's resident peak on a CPU
    runtime_bytes: int  # of these, the bytes in use before the model was made
    seconds_per_step: float
    tokens_per_second: float
    loss: float
    device: str


def measure(request: MeasureRequest) -> Measured:
    """Take the steps in a fresh process."""
    plain = json.dumps(dataclasses.asdict(request))
    command = [sys.executable, "-m", "litebert.plan.step"]
    done = subprocess.run(command, input=plain, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"it was stopped (exit code {done.returncode})"]
        hint = "; try fewer tokens" if done.returncode < 0 or "memory" in last[0].lower() else ""
        raise InputError(f"the measured step did not finish: {last[0]}{hint}")
    return Measured(**json.loads(done.stdout.strip().splitlines()[-1]))


def take_steps(request: MeasureRequest) -> Measured:
    """Take the steps in this process."""
    settings, device = request.settings, torch.device(request.settings.kind)
    on_cuda = device.type == "cuda"
    before = 0 if on_cuda else peak_resident_bytes()
    torch.manual_seed(0)
    lengths = lengths_for(request.tokens, settings.length, settings.mixed)
    batch = random_batch(request.encoder, lengths, max(1, round(settings.mask_rate * request.tokens)))
    network = build_network(request.encoder, settings).to(device)
    stepper, stage = build_stepper(network, settings, device, longest=batch.longest, tokens=request.tokens)
    for number in range(WARM_UP_STEPS[device.type]):
        stepper.step(number, stage, [batch], 1.0)
    stepper.wait()
    if on_cuda:
        torch.cuda.reset_peak_memory_stats()  # compiling tries things out; training does not
    start = time.perf_counter()
    for number in range(request.steps):
        done = stepper.step(number, stage, [batch], 1.0)
    stepper.wait()
    seconds = (time.perf_counter() - start) / request.steps
    return Measured(
        memory_bytes=torch.cuda.max_memory_allocated() if on_cuda else peak_resident_bytes(),
        runtime_bytes=before,
        seconds_per_step=seconds,
        tokens_per_second=request.tokens / seconds,
        loss=sum(float(sums[0]) / done.counts[name] for name, sums in done.sums.items()),
        device=torch.cuda.get_device_name() if on_cuda else f"CPU, {torch.get_num_threads()} threads",
    )


def _read_request(plain: Mapping[str, Any]) -> MeasureRequest:
    encoder = build(EncoderConfig, plain["encoder"])
    return MeasureRequest(**{**plain, "encoder": encoder, "settings": StepSettings(**plain["settings"])})


if __name__ == "__main__":
    print(json.dumps(dataclasses.asdict(take_steps(_read_request(json.load(sys.stdin))))))
