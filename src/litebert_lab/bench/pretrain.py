"""A pretraining step side by side with ``transformers``: same weights, sequences, masks and optimiser, in one run.

Theirs are padded to the longest of each forward pass, as their collator would, at most as many sequences at once as
fill the step at full length; gradients add up over the step. Only real tokens count, in speed and in arithmetic. An
engine that is not ready in time is said to be so and left behind.
"""

import contextlib
import copy
import gc
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, cast

import torch
from torch import nn

from litebert.checkpoints.folder import model_config
from litebert.corpus.batches import Batch, Batches
from litebert.corpus.settings import BatchSettings
from litebert.corpus.store import Store
from litebert.errors import InputError, nearest
from litebert.nn.config import EncoderConfig
from litebert.nn.network import Network, pretraining_network
from litebert.planning.devices import product_rate
from litebert.pretraining.objective import batch_flops
from litebert.train import precision
from litebert.train.settings import OPTIMISERS, OptimiserSettings, Precision
from litebert_lab.bench.made_up import full_batches, mixed_batches
from litebert_lab.bench.ours import OurPretraining
from litebert_lab.bench.theirs import Step, TheirPretraining, padded_chunks, their_model

USUAL_MODEL = {"cpu": "albert-small", "cuda": "albert-base-v2"}
USUAL_TOKENS = {"cpu": 4096, "cuda": 65_536}
USUAL_LENGTH = {"cpu": 128, "cuda": 512}
STEPS = {"cpu": 2, "cuda": 4}  # of a timed pass
PASSES = {"cpu": 2, "cuda": 2}  # the best of which counts
LIMIT = {"cpu": 600.0, "cuda": 75.0}  # seconds for one engine on one text, compiling included
LIMIT_OF_ALL = {"cpu": 3600.0, "cuda": 240.0}
OPTIMISER = OptimiserSettings(name="adamw", rate=1e-4)
CLIP = 1.0

log = logging.getLogger(__name__)


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

    def short(self) -> str:
        """The row in a few words, to be said as soon as it is there."""
        if self.problem:
            return self.problem
        memory = "" if self.peak_bytes is None else f", {self.peak_bytes / 2**30:.1f} GiB"
        return f"{self.tokens_per_second:,.0f} tokens/s, {self.ratio:.2f} times, {self.mfu:.1%} of the peak{memory}"


@dataclass(frozen=True)
class Case:
    """All engines on the same batches."""

    text: str
    mean_length: float
    padding: float  # of the tokens that transformers computes, those that are padding
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Report:
    """What was measured."""

    model: str
    device: str
    precision: str
    tokens: int
    length: int
    product_flops: float
    cases: tuple[Case, ...]


def table(report: Report) -> str:
    """The figures as lines of text."""
    head = (
        f"{report.model} on {report.device} in {report.precision}: steps of {report.tokens:,} tokens, inputs of at "
        f"most {report.length}; a large matrix product runs at {report.product_flops / 1e12:.3g} TFLOP/s"
    )
    return "\n".join([head, *(line for case in report.cases for line in _lines(case))])


def _lines(case: Case) -> Iterator[str]:
    yield f"\n{case.text}: {case.mean_length:.0f} tokens in the mean, theirs {case.padding:.0%} padding"
    yield f"{'engine':24} {'tokens/s':>10} {'ratio':>6} {'MFU':>6} {'memory':>9} {'first loss':>10} {'ready in':>9}"
    for row in case.rows:
        if row.problem:
            yield f"{row.engine:24} {row.problem}"
            continue
        memory = "-" if row.peak_bytes is None else f"{row.peak_bytes / 2**30:.1f} GiB"
        yield (
            f"{row.engine:24} {row.tokens_per_second:10,.0f} {row.ratio:6.2f} {row.mfu:6.1%} {memory:>9} "
            f"{row.first_loss:10.5f} {row.ready_seconds:7.1f} s"
        )


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


def bench_pretrain(setting: Setting, limit: float | None = None) -> Report:
    """Time both libraries on inputs of full length, on those of a store if there is one, and on mixed ones."""
    if setting.optimiser != OPTIMISER:
        raise InputError("next to transformers both have AdamW; --optimiser is for --profile")
    torch.manual_seed(0)
    network, device = pretraining_network(setting.config), setting.device
    theirs = their_model(network, "AutoModelForPreTraining")
    peak = product_rate(device, setting.precision)
    log.info(f"a large matrix product runs at {peak / 1e12:.3g} TFLOP/s")
    rows_at_once, limit = setting.tokens // setting.length, limit or LIMIT[device.type]
    work = _Work(network, theirs, setting.texts, device, setting.precision, setting.length, rows_at_once, peak, limit)
    cases = work.cases(setting.compiled)
    return Report(setting.source, device.type, setting.precision, setting.tokens, setting.length, peak, cases)


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
    """What was asked for, and what suits the device for the rest."""
    if device not in USUAL_MODEL or (device == "cuda" and not torch.cuda.is_available()):
        raise InputError(f"there is no device '{device}' here; use --device cpu")
    if numbers not in (None, "bf16", "fp16", "fp32"):
        raise InputError(f"--precision is '{numbers}' but must be bf16, fp16 or fp32")
    if optimiser not in OPTIMISERS:
        raise InputError(f"there is no optimiser '{optimiser}'{nearest(optimiser, OPTIMISERS)}")
    source, tokens = source or USUAL_MODEL[device], tokens or USUAL_TOKENS[device]
    length = length or USUAL_LENGTH[device]
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
    update = replace(OPTIMISER, name=optimiser)
    return Setting(source, config, where, chosen, tokens, length, texts, compiled, update)


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


class _Engine(Protocol):
    """A library's way to take steps."""

    def step_on(self, batches: Sequence[Batch], clip: float) -> Step:
        """Steps on these batches, from the first weights on."""
        ...


@dataclass(frozen=True)
class _Work:
    """The same batches for every engine."""

    network: Network
    theirs: nn.Module
    texts: Mapping[str, Sequence[Batch]]
    device: torch.device
    precision: Precision
    length: int
    rows_at_once: int  # of theirs
    peak: float
    limit: float

    def cases(self, compiled: bool) -> tuple[Case, ...]:
        engines: dict[str, Callable[[], _Engine]] = {
            "transformers": lambda: self._theirs(False),
            "litebert": lambda: self._ours(False),
        }
        if compiled:
            engines["litebert, compiled"] = lambda: self._ours(True)
            engines["transformers, compiled"] = lambda: self._theirs(True)  # last: it takes longest to be ready
        until = time.monotonic() + LIMIT_OF_ALL[self.device.type]
        rows: dict[str, list[Row]] = {text: [] for text in self.texts}
        for name, make in engines.items():
            _forget(self.device)
            engine = make()
            for text, batches in self.texts.items():
                log.info(f"timing {name} on {text} ...")
                eager = rows[text][0].tokens_per_second if rows[text] else None
                done = self._row(name, engine, batches, eager, min(self.limit, until - time.monotonic()))
                rows[text].append(done)
                log.info(f"  {done.short()}")
            del engine
        return tuple(self._case(text, found) for text, found in rows.items())

    def _ours(self, compiled: bool) -> _Engine:
        return OurPretraining(self.network, self.device, self.precision, compiled, OPTIMISER, self.length)

    def _theirs(self, compiled: bool) -> _Engine:
        model, encoder = copy.deepcopy(self.theirs), self.network.config.encoder
        return TheirPretraining(model, encoder, self.device, self.precision, compiled, OPTIMISER, self.rows_at_once)

    def _case(self, text: str, rows: Sequence[Row]) -> Case:
        batches, encoder = self.texts[text], self.network.config.encoder
        chunks = [chunk for batch in batches for chunk in padded_chunks(batch, encoder, self.rows_at_once)]
        padded = sum(int(chunk["attention_mask"].numel()) for chunk in chunks)
        tokens, sequences = (sum(getattr(b, name) for b in batches) for name in ("num_tokens", "num_sequences"))
        return Case(text, tokens / sequences, 1 - tokens / padded, tuple(rows))

    def _row(self, name: str, engine: _Engine, batches: Sequence[Batch], eager: float | None, limit: float) -> Row:
        if limit < 1:
            return Row(name, problem="left out: the time for all is up")
        begun = time.perf_counter()
        try:
            with at_most(limit):
                step = engine.step_on(batches, CLIP)
                loss = step(0, True)
                ready = time.perf_counter() - begun
                seconds, peak_bytes = time_steps(step, len(batches), self.device)
        except torch.OutOfMemoryError:
            return Row(name, problem="out of memory")
        except TooLong:
            return Row(name, problem=f"not finished in {limit:.0f} s")
        speed = sum(batch.num_tokens for batch in batches) / seconds
        flops = sum(batch_flops(self.network.config.encoder, batch) for batch in batches)
        ratio = speed / eager if eager else float(not eager)
        return Row(name, speed, ratio, flops / seconds / self.peak, peak_bytes, loss, ready)


def time_steps(step: Step, count: int, device: torch.device) -> tuple[float, int | None]:
    """The best pass over all batches after one to warm up, and the allocator's peak in those."""
    on_cuda, best = device.type == "cuda", float("inf")
    for number in range(PASSES[device.type] + 1):
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


def _forget(device: torch.device) -> None:
    """Nothing of one engine stays for the next."""
    gc.collect()
    torch.compiler.reset()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


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
