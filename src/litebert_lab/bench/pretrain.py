"""A pretraining step side by side with ``transformers``: same weights, sequences, masks and optimiser, in one run.

Ours is a step of the trainer. Theirs are padded to the longest of each forward pass, as their collator would, at most
as many sequences at once as fill the step at full length; gradients add up over the step. Only real tokens count, in
speed and in arithmetic. An engine that is not ready in time gets no figures. ``profile_pretrain`` shows instead where
the time of our own step goes: its kernels (on a CPU its operators), by what they are for.
"""

import contextlib
import copy
import gc
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import cast

import torch
from torch.profiler import ProfilerActivity, profile

from litebert.checkpoints.folder import model_config
from litebert.corpus.batches import Batch, Batches
from litebert.corpus.settings import BatchSettings
from litebert.corpus.store import Store
from litebert.errors import InputError, nearest
from litebert.nn.config import EncoderConfig
from litebert.nn.network import Network, pretraining_network
from litebert.planning.devices import product_rate
from litebert.pretraining.objective import LOGIT_CHUNK, Pretraining, batch_flops
from litebert.report import Item, Report, Section, Table, note, table_of
from litebert.train import precision
from litebert.train.objective import Position, Stage
from litebert.train.settings import OPTIMISERS, Bound, OptimiserSettings, Precision, ScheduleSettings, TrainSettings
from litebert.train.trainer import Trainer
from litebert_lab.bench.random_batches import full_batches, mixed_batches
from litebert_lab.bench.theirs import Step, TheirPretraining, padded_chunks, their_model

DEFAULT_MODEL = {"cpu": "albert-small", "cuda": "albert-base-v2"}
DEFAULT_TOKENS = {"cpu": 4096, "cuda": 65_536}
DEFAULT_LENGTH = {"cpu": 128, "cuda": 512}
STEPS = {"cpu": 2, "cuda": 4}  # of a timed pass
PASSES = 2  # the best of which counts
LIMIT = {"cpu": 600.0, "cuda": 75.0}  # seconds for one engine on one text, compiling included
LIMIT_OF_ALL = {"cpu": 3600.0, "cuda": 240.0}
OPTIMISER = OptimiserSettings(name="adamw", rate=1e-4)
HEADINGS = ["engine", "tokens/s", "ratio", "MFU", "memory", "first loss", "ready in"]

# Kinds of kernels: the first with one of its words in a kernel's name has it.
KINDS = (
    ("gelu", ("gelu",)),
    ("loss", ("softmax", "nll", "argmax", "exp_")),
    ("norms", ("layer_norm",)),
    ("attention", ("attend", "attention", "flash", "fmha", "_forward", "_backward_keys", "_backward_queries", "_row_")),
    ("products", ("gemm", "nvjet", "cutlass", "cublas", "xmma", "splitk", "::mm", "addmm", "bmm")),
    ("optimiser", ("multi_tensor", "adam", "foreach")),
    ("sums", ("fused_sum", "reduce_kernel", "::sum")),
    ("copies", ("memcpy", "memset", "::copy_", "::cat", "direct_copy")),
)
MOST_KERNELS = 12  # that are named

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Setting:
    """What is timed, on what."""

    source: str
    config: EncoderConfig
    device: torch.device
    precision: Precision
    tokens: int
    length: int
    texts: Mapping[str, Sequence[Batch]]
    compiled: bool
    optimiser: OptimiserSettings = OPTIMISER

    def peak(self) -> float:
        """Operations a second of a large matrix product."""
        peak = product_rate(self.device, self.precision)
        log.info(f"a large matrix product runs at {peak / 1e12:.3g} TFLOP/s")
        return peak

    def flops(self, text: str) -> float:
        """Arithmetic of a pass over the batches of a text."""
        return sum(batch_flops(self.config, batch) for batch in self.texts[text])


def choose_setting(
    source: str | None = None,
    *,
    store: Path | None = None,
    device: str = "cpu",
    tokens: int | None = None,
    length: int | None = None,
    compiled: bool | None = None,
    numbers: str | None = None,
    optimiser: str = OPTIMISER.name,
) -> Setting:
    """A setting with the device's defaults for what is left open."""
    if device not in DEFAULT_MODEL or (device == "cuda" and not torch.cuda.is_available()):
        raise InputError(f"there is no device '{device}' here; use --device cpu")
    if numbers not in (None, "bf16", "fp16", "fp32"):
        raise InputError(f"--precision is '{numbers}' but must be bf16, fp16 or fp32")
    if optimiser not in OPTIMISERS:
        raise InputError(f"there is no optimiser '{optimiser}'{nearest(optimiser, OPTIMISERS)}")
    source, tokens = source or DEFAULT_MODEL[device], tokens or DEFAULT_TOKENS[device]
    length = length or DEFAULT_LENGTH[device]
    opened = Store.open(store) if store else None
    words = ["dropout=0.0", "attention_dropout=0.0", "classifier_dropout=0.0"]
    words += [f"vocab_size={opened.vocab_size}"] if opened else []
    config = model_config(source, words).encoder
    if config.family not in ("albert", "bert"):
        raise InputError(f"{source} is not pretrained with masks and order; name an albert or bert model")
    if not 8 <= length <= min(config.max_positions, tokens):
        most = min(config.max_positions, tokens)
        raise InputError(f"--length is {length} but must lie between 8 and {most} for {source} and {tokens} tokens")
    where = torch.device(device)
    texts = _texts(config, opened, tokens, length, STEPS[device])
    compiled = device == "cuda" if compiled is None else compiled
    chosen = cast(Precision, numbers or precision.default_precision(where))
    return Setting(source, config, where, chosen, tokens, length, texts, compiled, replace(OPTIMISER, name=optimiser))


def _texts(
    config: EncoderConfig, store: Store | None, tokens: int, length: int, count: int
) -> dict[str, Sequence[Batch]]:
    """Batches of every kind of text, all in tensors of the same shapes: what is compiled serves them all.

    A store of long documents gives inputs of nearly full length, which hides what padding costs on other text.
    """
    if not store:
        mixed = mixed_batches(config, tokens, length, count)
        return {
            "full-length inputs": full_batches(config, tokens, length, count, like=mixed[0]),
            "mixed lengths": mixed,
        }
    batches = Batches(store, "train", BatchSettings(length=length, budget=tokens, fixed=True))
    own = [batches.batch(0, number) for number in range(min(count, batches.len(0)))]
    return {
        "full-length inputs": full_batches(config, tokens, length, len(own), like=own[0]),
        "the store's own lengths": own,
        "mixed lengths": mixed_batches(config, tokens, length, len(own), like=own[0]),
    }


class OurPretraining:
    """The trainer over batches in memory, which it repeats."""

    def __init__(self, network: Network, setting: Setting, compiled: bool) -> None:
        self._weights, self._batches = network.state_dict(), next(iter(setting.texts.values()))
        objective = Pretraining(setting.length, 0 if compiled else LOGIT_CHUNK)
        settings = TrainSettings(
            bound=Bound(steps=1 << 30),
            optimiser=setting.optimiser,
            schedule=ScheduleSettings(kind="constant", warmup=0.0),
            batch_tokens=((0.0, setting.tokens),),
            micro_tokens=setting.tokens,
            precision=setting.precision,
            half_residual=True,
            compiled=compiled,
            held_out_every=0.0,
            log_every=1 << 30,
        )
        stage = Stage("bench", 0.0, self, objective)
        self._trainer = Trainer(copy.deepcopy(network).to(setting.device), [stage], settings)

    def stream(self, start: Position, *, rank: int, world: int, workers: int) -> Iterator[Batch]:
        """The trainer's source of batches."""
        return cycle(self._batches)

    def advance(self, position: Position, count: int) -> Position:
        """The position ``count`` batches later."""
        return position[0], position[1] + count

    def step_on(self, batches: Sequence[Batch]) -> Step:
        """Steps on these batches, from the first weights on."""
        self._batches = batches
        self._trainer.network.load_state_dict(self._weights)
        steps = iter(self._trainer)

        def step(_: int, look: bool) -> float:
            taken = next(steps)
            return taken.loss if look else 0.0

        return step


@dataclass(frozen=True)
class Row:
    """One engine on one kind of text."""

    engine: str
    tokens_per_second: float = 0.0
    ratio: float = 0.0  # to transformers eager
    mfu: float = 0.0
    peak_bytes: int | None = None  # of the allocator, on a GPU
    first_loss: float = float("nan")
    ready_seconds: float = 0.0  # until the first step was done, compiling included
    problem: str = ""  # why there are no figures

    def cells(self) -> list[str]:
        """The row of a table."""
        if self.problem:
            return [self.engine, self.problem, *[""] * (len(HEADINGS) - 2)]
        memory = "-" if self.peak_bytes is None else f"{self.peak_bytes / 2**30:.1f} GiB"
        speed = [f"{self.tokens_per_second:,.0f}", f"{self.ratio:.2f}", f"{self.mfu:.1%}"]
        return [self.engine, *speed, memory, f"{self.first_loss:.5f}", f"{self.ready_seconds:.1f} s"]


def bench_pretrain(setting: Setting, limit: float | None = None) -> Report:
    """Time both libraries on inputs of full length, on those of a store if there is one, and on mixed ones."""
    if setting.optimiser != OPTIMISER:
        raise InputError("next to transformers both have AdamW; --optimiser is for --profile")
    torch.manual_seed(0)
    network = pretraining_network(setting.config)
    theirs = their_model(network, "AutoModelForPreTraining")
    peak = setting.peak()
    rows = _rows(network, theirs, setting, peak, limit or LIMIT[setting.device.type])
    cases, sections = [], []
    for text, found in rows.items():
        batches = setting.texts[text]
        chunks = [padded_chunks(batch, setting.config, setting.tokens // setting.length) for batch in batches]
        padded = sum(int(chunk["attention_mask"].numel()) for some in chunks for chunk in some)
        tokens, sequences = (sum(getattr(b, name) for b in batches) for name in ("num_tokens", "num_sequences"))
        case = {"text": text, "mean_length": tokens / sequences, "padding": 1 - tokens / padded}
        title = "{text}: {mean_length:.0f} tokens in the mean, theirs {padding:.0%} padding".format(**case)
        cases.append({**case, "rows": [asdict(row) for row in found]})
        sections.append(Section(title=title, items=[Table(rows=[HEADINGS, *(row.cells() for row in found)])]))
    facts: dict[str, object] = {"model": setting.source, "device": setting.device.type, "precision": setting.precision}
    facts |= {"tokens": setting.tokens, "length": setting.length, "product_flops": peak}
    title = (
        f"{setting.source} on {setting.device} in {setting.precision}: steps of {setting.tokens:,} tokens, inputs of "
        f"at most {setting.length}; a large matrix product runs at {peak / 1e12:.3g} TFLOP/s"
    )
    return Report(title=title, sections=sections, data={**facts, "cases": cases})


def _rows(
    network: Network, theirs: torch.nn.Module, setting: Setting, peak: float, limit: float
) -> dict[str, list[Row]]:
    """Every engine on every text."""
    engines: dict[str, Callable[[], OurPretraining | TheirPretraining]] = {
        "transformers": lambda: TheirPretraining(copy.deepcopy(theirs), setting, False),
        "litebert": lambda: OurPretraining(network, setting, False),
    }
    if setting.compiled:
        engines["litebert, compiled"] = lambda: OurPretraining(network, setting, True)
        # Last, because it takes longest to be ready.
        engines["transformers, compiled"] = lambda: TheirPretraining(copy.deepcopy(theirs), setting, True)
    until = time.monotonic() + LIMIT_OF_ALL[setting.device.type]
    rows: dict[str, list[Row]] = {text: [] for text in setting.texts}
    for name, make in engines.items():
        gc.collect()  # nothing of one engine stays for the next
        torch.compiler.reset()
        if setting.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        engine = make()
        for text in setting.texts:
            log.info(f"timing {name} on {text} ...")
            eager = rows[text][0].tokens_per_second if rows[text] else 0.0
            row = _row(name, engine, setting, text, min(limit, until - time.monotonic()), eager, peak)
            rows[text].append(row)
            log.info("  " + (row.problem or "{1} tokens/s, {2} times, {3} of the peak, {4}".format(*row.cells())))
        del engine
    return rows


def _row(
    name: str,
    engine: OurPretraining | TheirPretraining,
    setting: Setting,
    text: str,
    limit: float,
    eager: float,  # tokens a second of the first engine; 0: this is the first
    peak: float,
) -> Row:
    if limit < 1:
        return Row(name, problem="left out: the time for all is up")
    begun, batches = time.perf_counter(), setting.texts[text]
    try:
        with at_most(limit):
            step = engine.step_on(batches)
            loss = step(0, True)
            ready = time.perf_counter() - begun
            seconds, peak_bytes = time_steps(step, len(batches), setting.device)
    except torch.OutOfMemoryError:
        return Row(name, problem="out of memory")
    except TooLong:
        return Row(name, problem=f"not finished in {limit:.0f} s")
    speed = sum(batch.num_tokens for batch in batches) / seconds
    return Row(name, speed, speed / (eager or speed), setting.flops(text) / seconds / peak, peak_bytes, loss, ready)


def time_steps(step: Step, count: int, device: torch.device) -> tuple[float, int | None]:
    """The best pass over all batches after one to warm up, and the allocator's peak in those."""
    on_cuda, best = device.type == "cuda", float("inf")
    for number in range(PASSES + 1):
        if on_cuda:
            torch.cuda.synchronize()
        begun = time.perf_counter()
        for index in range(count):
            step(index, False)
        if on_cuda:
            torch.cuda.synchronize()
        if number:
            best = min(best, time.perf_counter() - begun)
        elif on_cuda:
            torch.cuda.reset_peak_memory_stats()  # compiling tries things out; training does not
    return best, torch.cuda.max_memory_allocated() if on_cuda else None


class TooLong(BaseException):
    """Not an Exception, which a compiler might take for its own."""


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Break off what takes longer (where a signal can reach it: in the main thread)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_number: int, _frame: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass(frozen=True)
class Kernel:
    """A kernel in one step: its time alone, and how often it ran."""

    name: str
    milliseconds: float
    count: float


def profile_pretrain(setting: Setting) -> Report:
    """Our step on every kind of text, timed and then profiled."""
    torch.manual_seed(0)
    peak = setting.peak()
    engine = OurPretraining(pretraining_network(setting.config), setting, setting.compiled)
    data, sections = [], []
    for text, batches in setting.texts.items():
        log.info(f"taking steps on {text} ...")
        step = engine.step_on(batches)
        seconds, peak_bytes = time_steps(step, len(batches), setting.device)
        kernels = sorted(_kernels(step, len(batches), setting.device), key=lambda kernel: -kernel.milliseconds)
        kinds, named = by_kind(kernels), kernels[:MOST_KERNELS]
        figures = {
            "text": text,
            "tokens_per_second": sum(batch.num_tokens for batch in batches) / seconds,
            "mfu": setting.flops(text) / seconds / peak,
            "step_milliseconds": 1e3 * seconds / len(batches),  # by the clock, without the profiler
        }
        title = "{text}: {tokens_per_second:,.0f} tokens/s, {mfu:.1%} of peak, {step_milliseconds:.1f} ms a step"
        memory = f", {peak_bytes / 2**30:.1f} GiB" if peak_bytes else ""
        total = sum(kinds.values())
        shares = [[kind, f"{spent:.2f}", f"{spent / total:.1%}"] for kind, spent in kinds.items()]
        columns = {"kernel": "{0.name:.52}", "ms": "{0.milliseconds:.2f}", "times": "{0.count:.0f}"}
        items: list[Item] = [
            note(f"{total:.1f} ms of a step computing (profiled apart)"),
            Table(rows=[["kind", "ms", "share"], *shares]),
            table_of(named, columns, title="longest kernels of a step"),
        ]
        sections.append(Section(title=title.format(**figures) + memory, items=items))
        data.append({**figures, "peak_bytes": peak_bytes, "kinds": kinds, "kernels": [asdict(one) for one in named]})
    return Report(title=f"{setting.source} on {setting.device} in {setting.precision}", sections=sections, data=data)


def by_kind(kernels: Sequence[Kernel]) -> dict[str, float]:
    """Milliseconds of each kind, the largest first."""
    found: dict[str, float] = {}
    for kernel in kernels:
        name = kernel.name.lower()
        kind = next((kind for kind, words in KINDS if any(word in name for word in words)), "other")
        found[kind] = found.get(kind, 0.0) + kernel.milliseconds
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def _kernels(step: Step, count: int, device: torch.device) -> Iterator[Kernel]:
    """Each kernel's own time a step."""
    on_cuda = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_cuda else [])]) as recorded:
        for index in range(count):
            step(index, False)
        if on_cuda:
            torch.cuda.synchronize()
    for event in recorded.key_averages():
        own = event.self_device_time_total if on_cuda else event.self_cpu_time_total
        if own > 0 and (not on_cuda or "CUDA" in str(event.device_type)) and "Optimizer" not in event.key:
            yield Kernel(event.key, own / 1e3 / count, event.count / count)
