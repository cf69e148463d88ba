"""All that a plan says of one model, put together from the counts, the account of memory and the device's figures."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from litebert.durations import format_duration
from litebert.errors import InputError
from litebert.nn.config import EncoderConfig
from litebert.plan.arithmetic import PURPOSES, Purpose, flops_per_token
from litebert.plan.devices import GIB, Device
from litebert.plan.measure import Measured, Request, measure
from litebert.plan.memory import Memory, peak_memory
from litebert.plan.parameters import Parameters, count_parameters
from litebert.plan.speed import seconds_per_step
from litebert.plan.work import Optimiser, Precision, Scores, Work, lengths_for

PAPER_TOKENS = 125_000 * 4096 * 512  # the full recipe of the ALBERT paper (section 4.1)
USUAL_TOKENS = {"cuda": 16384, "cpu": 4096}
USUAL_LENGTH = 512
DOING = {"infer": "inference on", "finetune": "a fine-tuning step on", "pretrain": "a pretraining step on"}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the plan is to be made for, the same for every model."""

    purpose: Purpose
    device: Device
    precision: Precision
    tokens: int
    length: int | None
    mixed: bool
    optimiser: Optimiser
    checkpointing: bool
    compiled: bool
    budget_seconds: float | None
    measure_steps: int  # 0: predict only
    scores: Scores = field(default_factory=Scores)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was found for one model."""

    model: str
    asked: Asked
    length: int
    parameters: Parameters
    flops: dict[Purpose, float]
    memory: dict[Purpose, Memory]
    largest_tokens: int  # that fit, in whole sequences; 0 where not even one does
    predicted_tokens_per_second: float
    measured: Measured | None

    @property
    def peak(self) -> Memory:
        return self.memory[self.asked.purpose]

    @property
    def fits(self) -> bool:
        return self.peak.total <= self.asked.device.usable_bytes

    @property
    def tokens_per_second(self) -> float:
        """Measured where steps were taken, else predicted."""
        return self.measured.tokens_per_second if self.measured else self.predicted_tokens_per_second

    @property
    def share(self) -> float:
        """Of the rate of large matrix products, what the model's own arithmetic makes use of."""
        rate = self.asked.device.flops[self.asked.precision]
        return self.tokens_per_second * self.flops[self.asked.purpose] / rate

    @property
    def budget_tokens(self) -> float | None:
        seconds = self.asked.budget_seconds
        return None if seconds is None else seconds * self.tokens_per_second

    @property
    def paper_seconds(self) -> float:
        """The time that the paper's full run would take on one such device."""
        return PAPER_TOKENS / self.tokens_per_second


def answer(model: str, config: EncoderConfig, asked: Asked) -> Answer:
    """The plan for one model."""
    length = _checked_length(model, config, asked)
    parameters = count_parameters(config)
    memory = {
        purpose: peak_memory(config, parameters, _work(asked, asked.tokens, length, purpose)) for purpose in PURPOSES
    }
    work = _work(asked, asked.tokens, length, asked.purpose)
    return Answer(
        model=model,
        asked=asked,
        length=length,
        parameters=parameters,
        flops={purpose: flops_per_token(config, length, purpose) for purpose in PURPOSES},
        memory=memory,
        largest_tokens=_largest_tokens(config, parameters, asked, length),
        predicted_tokens_per_second=asked.tokens / seconds_per_step(config, work, asked.device),
        measured=_measured(config, asked, length) if asked.measure_steps else None,
    )


def _checked_length(model: str, config: EncoderConfig, asked: Asked) -> int:
    limit = config.max_positions if config.positions == "absolute" else None
    length = asked.length or min(USUAL_LENGTH, limit or USUAL_LENGTH)
    if limit is not None and length > limit:
        raise InputError(f"--length is {length} but {model} has {limit} positions")
    if asked.tokens < length:
        raise InputError(
            f"--tokens is {asked.tokens}, less than one sequence of {length}; give {length} or more, or a shorter "
            "--length"
        )
    return length


def _work(asked: Asked, tokens: int, length: int, purpose: Purpose) -> Work:
    lengths = lengths_for(tokens, length, asked.mixed) if asked.mixed else []
    return Work(
        purpose=purpose,
        kind=asked.device.kind,
        tokens=tokens,
        sequences=len(lengths) or -(-tokens // length),
        longest=length,
        precision=asked.precision,
        optimiser=asked.optimiser,
        checkpointing=asked.checkpointing,
        compiled=asked.compiled,
        flash=asked.device.flash,
        narrow=purpose == "pretrain",
        scores=asked.scores,
    )


def _largest_tokens(config: EncoderConfig, parameters: Parameters, asked: Asked, length: int) -> int:
    """The most sequences that fit, by halving."""

    def fits(sequences: int) -> bool:
        work = _work(asked, sequences * length, length, asked.purpose)
        return peak_memory(config, parameters, work).total <= asked.device.usable_bytes

    most = 1
    while fits(most):
        most *= 2
    least = most // 2
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if fits(middle) else (least, middle)
    return least * length


def _measured(config: EncoderConfig, asked: Asked, length: int) -> Measured:
    return measure(
        Request(
            encoder=config,
            device=asked.device.kind,
            lengths=tuple(lengths_for(asked.tokens, length, asked.mixed)),
            precision=asked.precision,
            checkpointing=asked.checkpointing,
            compiled=asked.compiled,
            steps=asked.measure_steps,
        )
    )


def sentence(found: Answer) -> str:
    """The answer in a sentence or two."""
    asked, device = found.asked, found.asked.device
    size = f"{DOING[asked.purpose]} {asked.tokens:,} tokens takes {gib(found.peak.total)} of {gib(device.memory_bytes)}"
    if not found.fits:
        way = f"at most {found.largest_tokens:,} tokens at once do" if found.largest_tokens else "no batch does"
        more = "" if asked.checkpointing or asked.purpose == "infer" else "; --checkpointing takes less"
        return f"{found.model} does not fit on {device.label}: {size}; {way}{more}."
    how = "measured" if found.measured else "expected"
    text = f"{found.model} fits on {device.label}: {size} (up to {found.largest_tokens:,} tokens fit)"
    text += f", and {found.tokens_per_second:,.0f} tokens a second are {how}"
    if found.budget_tokens is not None and asked.budget_seconds is not None:
        steps = "" if asked.purpose == "infer" else f" in {found.budget_tokens / asked.tokens:,.0f} steps"
        text += f"; {format_duration(asked.budget_seconds)} see {large_number(found.budget_tokens)} tokens{steps}"
    if asked.purpose == "pretrain":
        text += f"; the paper's full run ({large_number(PAPER_TOKENS)} tokens) would take "
        text += format_duration(found.paper_seconds)
    return text + "."


def gib(size: float) -> str:
    """Bytes in GiB, or MiB where they are few; a dash for none."""
    if size == 0:
        return "-"
    return f"{size / GIB:.3g} GiB" if size >= GIB / 10 else f"{size / 2**20:.3g} MiB"


def large_number(number: float) -> str:
    """Three digits and a word: 4.8 million, 262 billion."""
    for name, size in (("billion", 1e9), ("million", 1e6), ("thousand", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {name}"
    return f"{number:.0f}"


def as_plain(found: Answer) -> dict[str, Any]:
    """An answer as plain values, for ``--json``."""
    asked, device, counts = found.asked, found.asked.device, found.parameters
    budget = None
    if found.budget_tokens is not None:
        steps = int(found.budget_tokens / asked.tokens)
        budget = {"seconds": asked.budget_seconds, "tokens": int(found.budget_tokens), "steps": steps}
    return {
        "model": found.model,
        "parameters": counts.bare,
        "parameters_with_heads": counts.with_heads,
        "parameters_by_part": {
            "embeddings": counts.embeddings,
            "attention": counts.attention,
            "feed_forward": counts.feed_forward,
            "pooler": counts.pooler,
            "heads": counts.heads,
        },
        "purpose": asked.purpose,
        "tokens": asked.tokens,
        "length": found.length,
        "mixed": asked.mixed,
        "precision": asked.precision,
        "optimiser": asked.optimiser,
        "checkpointing": asked.checkpointing,
        "compiled": asked.compiled,
        "flops_per_token": found.flops[asked.purpose],
        "flops_per_token_by_purpose": found.flops,
        "memory_bytes": int(found.peak.total),
        "memory_bytes_by_purpose": {purpose: int(memory.total) for purpose, memory in found.memory.items()},
        "memory_by_part": {
            name: value if isinstance(value, str) else int(value)
            for name, value in dataclasses.asdict(found.peak).items()
        },
        "device": {**dataclasses.asdict(device), "usable_bytes": device.usable_bytes},
        "fits": found.fits,
        "largest_tokens": found.largest_tokens,
        "tokens_per_second": found.tokens_per_second,
        "predicted_tokens_per_second": found.predicted_tokens_per_second,
        "seconds_per_step": asked.tokens / found.tokens_per_second,
        "share_of_device": found.share,
        "budget": budget,
        "paper_run_seconds": found.paper_seconds if asked.purpose == "pretrain" else None,
        "measured": dataclasses.asdict(found.measured) if found.measured else None,
        "answer": sentence(found),
    }
