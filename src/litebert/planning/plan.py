"""What a model will cost before anything is run, as numbers; ``table.py`` puts them into words.

``litebert.plan`` checks what a user gives and calls ``make_plan``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from litebert.checkpoints.folder import model_config
from litebert.errors import InputError
from litebert.nn.config import EncoderConfig
from litebert.parameters import parse_duration
from litebert.planning.arithmetic import PURPOSES, Purpose
from litebert.planning.count import Memory, Parameters, count_parameters, longest_in, record_step
from litebert.planning.devices import Device, find_device
from litebert.planning.nodes import GRADIENT_BYTES, PAPER_BATCH, PAPER_STEPS, Links, PaperRun
from litebert.planning.step import Measured, Optimiser, StepSettings
from litebert.planning.step import measure as measure_steps
from litebert.train.settings import Precision

PAPER_TOKENS = PAPER_STEPS * PAPER_BATCH
USUAL_TOKENS = {"cuda": 16384, "cpu": 4096}
USUAL_LENGTH = 512

# A step takes the time of its arithmetic at the rate of large products, plus that of the traffic to and from memory,
# taken to be a multiple of what is kept for the backward pass. One multiple each for training and inference, eager and
# compiled, fits the measured speeds of four model sizes on an H200 within a seventh (docs/plan.md). By (training,
# compiled):
TRAFFIC = {(True, False): 16.0, (True, True): 8.5, (False, False): 4.2, (False, True): 3.5}
# Kernels that a layer starts one after another; a short step takes as long as starting them.
LAUNCHES = {(True, False): 70, (True, True): 25, (False, False): 20, (False, True): 8}
LAUNCH_SECONDS = 6e-6


@dataclass(frozen=True, kw_only=True)
class Speed:
    """How fast steps are."""

    tokens_per_second: float  # measured where steps were taken, else predicted
    predicted_tokens_per_second: float
    seconds_per_step: float
    share_of_device: float  # of the rate of large matrix products, what the model's own arithmetic makes use of
    paper_run_seconds: float  # the ALBERT paper's full run on one such device


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a time buys."""

    seconds: float
    tokens: int
    steps: int
    epochs: float | None  # None: the size of the corpus was not given


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one model costs."""

    model: str
    device: Device
    step: StepSettings
    tokens: int  # of a batch
    parameters: Parameters
    flops_per_token: Mapping[Purpose, float]
    memory: Mapping[Purpose, Memory]
    longest: Mapping[Purpose, int]  # tokens of the longest text that fits, at most the positions of the model
    largest_tokens: int  # the largest batch that fits, in whole sequences; 0 where not even one does
    speed: Speed
    budget: Budget | None
    measured: Measured | None
    paper_run: PaperRun | None  # on many GPUs, where they were asked about

    @property
    def peak(self) -> Memory:
        """The memory of what was asked about."""
        return self.memory[self.step.purpose]

    @property
    def fits(self) -> bool:
        return self.peak.total <= self.device.usable_bytes

    @property
    def flops_per_step(self) -> float:
        return self.flops_per_token[self.step.purpose] * self.tokens


def make_plan(
    model: str,
    *,
    overrides: Sequence[str] = (),
    device: str = "auto",
    purpose: Purpose = "pretrain",
    tokens: int | None = None,
    length: int | None = None,
    mixed: bool = False,
    precision: Precision | None = None,
    optimiser: Optimiser = "adamw",
    checkpointing: bool = False,
    compiled: bool = False,
    budget: str | None = None,
    corpus_tokens: float | None = None,
    measure: bool = False,
    steps: int = 3,
    links: Links | None = None,
    price: float | None = None,
) -> Plan:
    """Parameters, arithmetic, memory and time of a preset or a model folder.

    ``overrides`` are words such as ``num_layers=6``; ``budget`` is a time such as ``"2h"``. ``measure`` takes real
    pretraining ``steps`` on this machine and goes by their speed. With ``links`` also the paper's run on many devices,
    an hour of one at ``price``.
    """
    if links and purpose != "pretrain":
        raise InputError(f"gpus is {links.gpus}, but {purpose} is planned for one; leave gpus out, or plan pretraining")
    config = model_config(model, list(overrides)).encoder
    if measure and (purpose != "pretrain" or optimiser != "adamw"):
        raise InputError(f"measure takes pretraining steps with adamw, not {purpose} steps with {optimiser}")
    seconds = None if budget is None else parse_duration(budget)
    found = find_device(device, precision)
    if measure and found.name not in ("auto", "cpu"):
        raise InputError(f"measure takes steps on this machine, not on {found.label}; use device auto")
    precision = precision or found.usual_precision
    if precision not in found.flops:
        raise InputError(f"{found.label} has no {precision}; use precision {found.usual_precision}")
    tokens = tokens or USUAL_TOKENS[found.kind]
    step = StepSettings(
        purpose=purpose,
        kind=found.kind,
        length=_length(model, config, tokens, length),
        mixed=mixed,
        precision=precision,
        optimiser=optimiser,
        checkpointing=checkpointing,
        compiled=compiled,
        flash=found.flash,
    )
    records = {each: record_step(config, step.for_purpose(each)) for each in PURPOSES}
    flops = {each: record.flops_per_token for each, record in records.items()}
    measured = measure_steps(config, step, tokens, steps) if measure else None
    predicted = tokens / _seconds_per_step(config, step, found, tokens)
    rate = measured.tokens_per_second if measured else predicted
    parameters = count_parameters(config)
    paper_run = None
    if links:
        share = PAPER_BATCH / links.gpus
        fewer = max(1, min(tokens, int(share)))  # tokens of a pass, where a GPU's share is less than a batch
        slower = fewer / _seconds_per_step(config, step, found, fewer) / predicted
        paper_run = _paper_run(links, share, rate * slower, GRADIENT_BYTES * parameters.with_heads, price)
    return Plan(
        model=model,
        device=found,
        step=step,
        tokens=tokens,
        parameters=parameters,
        flops_per_token=flops,
        memory={each: record.memory(tokens) for each, record in records.items()},
        longest={each: longest_in(config, step.for_purpose(each), found.usable_bytes) for each in PURPOSES},
        largest_tokens=records[purpose].largest_tokens(found.usable_bytes),
        speed=Speed(
            tokens_per_second=rate,
            predicted_tokens_per_second=predicted,
            seconds_per_step=tokens / rate,
            share_of_device=rate * flops[purpose] / found.flops[precision],
            paper_run_seconds=PAPER_TOKENS / rate,
        ),
        budget=None if seconds is None else _bought(seconds, rate, tokens, corpus_tokens),
        measured=measured,
        paper_run=paper_run,
    )


def _bought(seconds: float, rate: float, tokens: int, corpus_tokens: float | None) -> Budget:
    """What a time buys at ``rate`` tokens per second, in steps of ``tokens``."""
    read = seconds * rate
    epochs = None if corpus_tokens is None else read / corpus_tokens
    return Budget(seconds=seconds, tokens=int(read), steps=int(read / tokens), epochs=epochs)


def _paper_run(links: Links, share: float, rate: float, gradient_bytes: int, price: float | None) -> PaperRun:
    """The paper's run on GPUs that each read ``share`` tokens of a batch at ``rate`` tokens per second."""
    return PaperRun(
        links=links,
        tokens_per_gpu=share,
        gradient_bytes=gradient_bytes,
        arithmetic_seconds=share / rate,
        communication_seconds=links.exchange_seconds(gradient_bytes),
        price=price,
    )


def _length(model: str, config: EncoderConfig, tokens: int, length: int | None) -> int:
    limit = config.max_positions if config.positions == "absolute" else None
    length = length or min(USUAL_LENGTH, limit or USUAL_LENGTH)
    if limit is not None and length > limit:
        raise InputError(f"length is {length} but {model} has {limit} positions")
    if tokens < length:
        raise InputError(
            f"tokens is {tokens}, less than one sequence of {length}; give {length} or more, or a shorter length"
        )
    return length


def _seconds_per_step(config: EncoderConfig, step: StepSettings, device: Device, tokens: int) -> float:
    record = record_step(config, step)
    trains, compiled = step.trains, step.compiled
    passes = 4 / 3 if step.checkpointing and trains else 1.0
    plain = replace(step, checkpointing=False, compiled=False, logit_chunk=step.chunk)
    if not trains:
        plain = replace(plain, purpose="finetune")  # inference keeps nothing, but passes the same tensors on
    kept = record_step(config, plain).kept_bytes(tokens)
    arithmetic = tokens * (record.flops_per_token + record.repeated_flops_per_token)
    seconds = arithmetic / device.flops[step.precision] + TRAFFIC[trains, compiled] * passes * kept / device.bandwidth
    if device.kind == "cpu":
        return seconds
    return max(seconds, LAUNCHES[trains, compiled] * config.num_layers * passes * LAUNCH_SECONDS)
