"""``make_plan``: what a model will cost before anything is run, as numbers. ``table.py`` puts them into words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from litebert.checkpoints.folder import model_config
from litebert.errors import InputError
from litebert.nn.config import EncoderConfig
from litebert.parameters import parse_duration
from litebert.planning.arithmetic import PURPOSES, Purpose
from litebert.planning.count import Memory, Parameters, count_parameters, record_step
from litebert.planning.devices import Device, find_device
from litebert.planning.step import OPTIMISERS, PRECISIONS, Measured, StepSettings
from litebert.planning.step import measure as take_measured_steps

PAPER_TOKENS = 125_000 * 4096 * 512  # the full recipe of the ALBERT paper (section 4.1)
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

Choice = TypeVar("Choice", bound=str)


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """What a plan is made for, checked and with every default filled in."""

    device: Device
    step: StepSettings
    tokens: int  # of a batch
    budget_seconds: float | None = None
    corpus_tokens: float | None = None
    measure_steps: int = 0  # 0: predict only


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
    request: PlanRequest
    parameters: Parameters
    flops_per_token: Mapping[Purpose, float]
    memory: Mapping[Purpose, Memory]
    fits: bool
    largest_tokens: int  # the largest batch that fits, in whole sequences; 0 where not even one does
    speed: Speed
    budget: Budget | None
    measured: Measured | None

    @property
    def peak(self) -> Memory:
        """The memory of what was asked about."""
        return self.memory[self.request.step.purpose]

    @property
    def flops_per_step(self) -> float:
        return self.flops_per_token[self.request.step.purpose] * self.request.tokens


def make_plan(
    model: str | Path,
    *,
    overrides: Sequence[str] = (),
    device: str | Device = "auto",
    purpose: str = "pretrain",
    tokens: int | None = None,
    length: int | None = None,
    mixed: bool = False,
    precision: str | None = None,
    optimiser: str = "adamw",
    checkpointing: bool = False,
    compiled: bool = False,
    budget: str | float | None = None,
    corpus_tokens: float | None = None,
    measure: bool = False,
    steps: int = 3,
) -> Plan:
    """Parameters, arithmetic, memory and time of a preset or a model folder.

    ``overrides`` are words such as ``num_layers=6``; ``budget`` is a time such as ``"2h"``, or seconds. ``measure``
    takes real pretraining ``steps`` on this machine and goes by their speed.
    """
    config = model_config(str(model), list(overrides)).encoder
    chosen = None if precision is None else _choice("precision", precision, PRECISIONS)
    chosen_purpose = _choice("purpose", purpose, PURPOSES)
    chosen_optimiser = _choice("optimiser", optimiser, OPTIMISERS)
    for name, value in (("tokens", tokens), ("length", length), ("steps", steps), ("corpus_tokens", corpus_tokens)):
        if value is not None and value < 1:
            raise InputError(f"{name} is {value} but must be 1 or more")
    seconds = parse_duration(budget) if isinstance(budget, str) else budget
    if measure and (chosen_purpose != "pretrain" or chosen_optimiser != "adamw"):
        raise InputError(f"measure takes pretraining steps with adamw, not {purpose} steps with {optimiser}")
    found = find_device(device, chosen) if isinstance(device, str) else device
    if measure and found.name not in ("auto", "cpu"):
        raise InputError(f"measure takes steps on this machine, not on {found.label}; use device auto")
    chosen = chosen or found.usual_precision
    if chosen not in found.flops:
        raise InputError(f"{found.label} has no {chosen}; use precision {found.usual_precision}")
    tokens = tokens or USUAL_TOKENS[found.kind]
    step = StepSettings(
        purpose=chosen_purpose,
        kind=found.kind,
        length=_length(str(model), config, tokens, length),
        mixed=mixed,
        precision=chosen,
        optimiser=chosen_optimiser,
        checkpointing=checkpointing,
        compiled=compiled,
        flash=found.flash,
    )
    request = PlanRequest(
        device=found,
        step=step,
        tokens=tokens,
        budget_seconds=seconds,
        corpus_tokens=corpus_tokens,
        measure_steps=steps if measure else 0,
    )
    return plan_for(str(model), config, request)


def plan_for(model: str, config: EncoderConfig, request: PlanRequest) -> Plan:
    """The plan of one encoder for a request that is complete."""
    records = {purpose: record_step(config, request.step.for_purpose(purpose)) for purpose in PURPOSES}
    record = records[request.step.purpose]
    memory = {purpose: record.memory(request.tokens) for purpose, record in records.items()}
    usable = request.device.usable_bytes
    flops = {purpose: record.flops_per_token for purpose, record in records.items()}
    measured = None
    if request.measure_steps:
        measured = take_measured_steps(config, request.step, request.tokens, request.measure_steps)
    speed = _speed(config, request, flops[request.step.purpose], measured)
    return Plan(
        model=model,
        request=request,
        parameters=count_parameters(config),
        flops_per_token=flops,
        memory=memory,
        fits=memory[request.step.purpose].total <= usable,
        largest_tokens=record.largest_tokens(usable),
        speed=speed,
        budget=_budget(request, speed),
        measured=measured,
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


def _speed(config: EncoderConfig, request: PlanRequest, flops: float, measured: Measured | None) -> Speed:
    predicted = request.tokens / _seconds_per_step(config, request)
    tokens_per_second = measured.tokens_per_second if measured else predicted
    return Speed(
        tokens_per_second=tokens_per_second,
        predicted_tokens_per_second=predicted,
        seconds_per_step=request.tokens / tokens_per_second,
        share_of_device=tokens_per_second * flops / request.device.flops[request.step.precision],
        paper_run_seconds=PAPER_TOKENS / tokens_per_second,
    )


def _seconds_per_step(config: EncoderConfig, request: PlanRequest) -> float:
    step, device = request.step, request.device
    record = record_step(config, step)
    trains, compiled = step.trains, step.compiled
    passes = 4 / 3 if step.checkpointing and trains else 1.0
    plain = replace(step, checkpointing=False, compiled=False, logit_chunk=step.chunk)
    if not trains:
        plain = replace(plain, purpose="finetune")  # inference keeps nothing, but passes the same tensors on
    kept = record_step(config, plain).kept_bytes(request.tokens)
    arithmetic = request.tokens * (record.flops_per_token + record.repeated_flops_per_token)
    seconds = arithmetic / device.flops[step.precision] + TRAFFIC[trains, compiled] * passes * kept / device.bandwidth
    if device.kind == "cpu":
        return seconds
    return max(seconds, LAUNCHES[trains, compiled] * config.num_layers * passes * LAUNCH_SECONDS)


def _budget(request: PlanRequest, speed: Speed) -> Budget | None:
    if request.budget_seconds is None:
        return None
    tokens = request.budget_seconds * speed.tokens_per_second
    epochs = None if request.corpus_tokens is None else tokens / request.corpus_tokens
    return Budget(seconds=request.budget_seconds, tokens=int(tokens), steps=int(tokens / request.tokens), epochs=epochs)


def _choice(name: str, value: str, allowed: tuple[Choice, ...]) -> Choice:
    for one in allowed:
        if one == value:
            return one
    raise InputError(f"{name} is '{value}' but must be one of {', '.join(allowed)}")
