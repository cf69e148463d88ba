"""Attention over texts of growing length: time of a token in inference, time and memory of a token in training.

Sparse attention beside full attention, with the same weights, in one run. If the cost is linear in length, a token of a
text of 4,096 costs what a token of one of 512 does. Inference reads one text at a time, the engines in turn; a training
step has the same number of tokens whatever the length, and runs in a process of its own, whose peak memory is reported.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import torch

from litebert.checkpoints.folder import model_config
from litebert.errors import InputError
from litebert.nn.config import EncoderConfig
from litebert.nn.layout import Layout
from litebert.nn.network import HeadsConfig, Network, NetworkConfig
from litebert.planning.devices import Kind
from litebert.planning.step import StepSettings, measure
from litebert.report import Report, Section, note, table_of
from litebert.train.precision import training_precision
from litebert.train.settings import Precision

INFERENCE = {
    "attention": "{0.attention}",
    "length": "{0.length:,}",
    "ms a text": "{0.milliseconds:,.0f}",
    "us a token": "{0.microseconds_per_token:,.0f}",
    "ratio": "{0.ratio:.2f}",
}
TRAINING = {
    "attention": "{0.attention}",
    "length": "{0.length:,}",
    "tokens/s": "{0.tokens_per_second:,.0f}",
    "time ratio": "{0.time_ratio:.2f}",
    "peak MiB": "{0.memory_mib:,.0f}",
    "memory ratio": "{0.memory_ratio:.2f}",
}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Inference:
    """One text of a length; ``ratio`` is the time of a token over that of the shortest texts with full attention."""

    attention: str
    length: int
    milliseconds: float
    microseconds_per_token: float
    ratio: float


@dataclass(frozen=True)
class Training:
    """A training step; ratios are to texts of the shortest length with full attention."""

    attention: str
    length: int
    tokens: int
    tokens_per_second: float
    time_ratio: float
    memory_mib: float
    memory_ratio: float


def bench_attention(
    model: str,
    *,
    attention: str,
    lengths: Sequence[int],
    device: str = "cpu",
    precision: Precision = "fp32",
    repeats: int = 3,
    steps: int = 2,
    training: bool = True,
) -> Report:
    """Time a model with ``attention`` and with full attention at these lengths."""
    if not lengths or min(lengths) < 1:
        raise InputError("lengths must be numbers such as 512,1024,2048,4096")
    lengths = sorted(set(lengths))
    plain = model_config(model).encoder
    if plain.positions != "absolute":
        raise InputError(f"{model} has relative positions, which only full attention takes")
    # No dropout: a model made by ``lengthen`` drops no attention weights.
    base = replace(plain, max_positions=max(plain.max_positions, *lengths), dropout=0.0, attention_dropout=0.0)
    configs = {name: replace(base, attention=name) for name in ("full", attention)}
    read = _inference(configs, lengths, torch.device(device), precision, repeats)
    trained = _training(configs, lengths, torch.device(device), steps) if training else []
    facts = {"model": model, "device": device, "precision": precision, "threads": torch.get_num_threads()}
    sections = [Section(title="Inference, one text at a time", items=[table_of(read, INFERENCE)])]
    if trained:
        used = training_precision(torch.device(device), base.width)
        how = f"{trained[0].tokens:,} tokens in a step, in {used}; memory is the peak of the process"
        sections.append(Section(title="Training", items=[note(how), table_of(trained, TRAINING)]))
    return Report(
        title="{model} on {device} in {precision}, {threads} threads".format(**facts),
        sections=sections,
        data={**facts, "inference": [asdict(row) for row in read], "training": [asdict(row) for row in trained]},
    )


def _inference(
    configs: dict[str, EncoderConfig], lengths: Sequence[int], device: torch.device, precision: Precision, repeats: int
) -> list[Inference]:
    """The best of several readings of a text by each network, in turn."""
    best: dict[tuple[str, int], float] = {}
    networks = {}
    for name, config in configs.items():
        torch.manual_seed(0)
        networks[name] = Network(NetworkConfig(encoder=config, heads=HeadsConfig())).to(device).eval()
        if precision != "fp32":
            networks[name].to(torch.bfloat16 if precision == "bf16" else torch.float16)
    for turn in range(repeats + 1):  # the first warms up
        for length in lengths:
            for name, network in networks.items():
                log.info("reading a text of %d tokens with %s attention", length, name)
                seconds = _read(network, length, device)
                if turn:
                    best[name, length] = min(seconds, best.get((name, length), seconds))
    first = best["full", lengths[0]] / lengths[0]
    return [
        Inference(name, length, 1e3 * seconds, 1e6 * seconds / length, seconds / length / first)
        for name in configs
        for length in lengths
        for seconds in [best[name, length]]
    ]


@torch.inference_mode()
def _read(network: Network, length: int, device: torch.device) -> float:
    ids = torch.randint(network.config.encoder.vocab_size, (length,), device=device)
    layout = Layout.of([length], device)
    begin = time.perf_counter()
    network.encoder(ids, layout)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def _training(
    configs: dict[str, EncoderConfig], lengths: Sequence[int], device: torch.device, steps: int
) -> list[Training]:
    """Steps of pretraining at the shortest and the longest length."""
    tokens = max(lengths)
    rows: list[Training] = []
    for name, config in configs.items():
        for length in dict.fromkeys((min(lengths), max(lengths))):
            log.info("training on texts of %d tokens with %s attention", length, name)
            kind: Kind = "cuda" if device.type == "cuda" else "cpu"
            settings = StepSettings(kind=kind, length=length, precision=training_precision(device, config.width))
            found = measure(config, settings, tokens, steps)
            speed, memory = found.tokens_per_second, found.memory_bytes / 2**20
            first = rows[0] if rows else None
            slower = first.tokens_per_second / speed if first else 1.0
            more = memory / first.memory_mib if first else 1.0
            rows.append(Training(name, length, tokens, speed, slower, memory, more))
    return rows
