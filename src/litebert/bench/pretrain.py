"""A pretraining step side by side with ``transformers``: same weights, sequences, masks and optimiser, in one run.

Theirs are padded to the longest of each forward pass, as their collator would, at most as many sequences at once as
fill the step at full length; gradients add up over the step. Only real tokens count, in speed and in arithmetic. An
engine that is not ready in time is said to be so and left behind.
"""

import contextlib
import copy
import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import nn

from litebert.bench.made_up import full_batches, mixed_batches
from litebert.bench.theirs import MULTIPLE, Step, TheirPretraining, padded_chunks, their_model
from litebert.checkpoints.folder import model_config
from litebert.corpus.batch_settings import BatchSettings
from litebert.corpus.batches import Batches
from litebert.corpus.rows import Batch
from litebert.corpus.store import Store
from litebert.errors import InputError
from litebert.nn.config import EncoderConfig
from litebert.nn.network import Network, pretraining_network
from litebert.plan.product import product_rate
from litebert.pretrain.objective import LOGIT_CHUNK, Pretraining
from litebert.pretrain.utilisation import batch_flops
from litebert.train import precision
from litebert.train.objective import Learner
from litebert.train.optimiser_settings import OptimiserSettings
from litebert.train.optimisers import build_optimiser

USUAL_MODEL = {"cpu": "albert-small", "cuda": "albert-base-v2"}
USUAL_TOKENS = {"cpu": 4096, "cuda": 65_536}
USUAL_LENGTH = {"cpu": 128, "cuda": 512}
STEPS = {"cpu": 2, "cuda": 4}  # of a timed pass
PASSES = {"cpu": 2, "cuda": 2}  # the best of which counts
LIMIT = {"cpu": 600.0, "cuda": 75.0}  # seconds for one engine on one text, compiling included
LIMIT_OF_ALL = {"cpu": 3600.0, "cuda": 240.0}
OPTIMISER = OptimiserSettings(name="adamw", rate=1e-4)
CLIP = 1.0


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
    lines = [
        f"{report.model} on {report.device} in {report.precision}: steps of {report.tokens:,} tokens, inputs of at "
        f"most {report.length}; a large matrix product runs at {report.product_flops / 1e12:.3g} TFLOP/s"
    ]
    for case in report.cases:
        lines.append(f"\n{case.text}: {case.mean_length:.0f} tokens in the mean, theirs {case.padding:.0%} padding")
        lines.append(
            f"{'engine':24} {'tokens/s':>10} {'ratio':>6} {'MFU':>6} {'memory':>9} {'first loss':>10} {'ready in':>9}"
        )
        for row in case.rows:
            if row.problem:
                lines.append(f"{row.engine:24} {row.problem}")
                continue
            memory = "-" if row.peak_bytes is None else f"{row.peak_bytes / 2**30:.1f} GiB"
            lines.append(
                f"{row.engine:24} {row.tokens_per_second:10,.0f} {row.ratio:6.2f} {row.mfu:6.1%} {memory:>9} "
                f"{row.first_loss:10.5f} {row.ready_seconds:7.1f} s"
            )
    return "\n".join(lines)


def bench_pretrain(
    source: str | None = None,
    *,
    store: Path | None = None,
    device: str = "cpu",
    tokens: int | None = None,
    length: int | None = None,
    compiled: bool | None = None,
    limit: float | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Time both libraries on inputs of full length, on those of a store if there is one, and on mixed ones."""
    if device not in USUAL_MODEL or (device == "cuda" and not torch.cuda.is_available()):
        raise InputError(f"there is no device '{device}' here; use --device cpu")
    source, tokens = source or USUAL_MODEL[device], tokens or USUAL_TOKENS[device]
    length = length or USUAL_LENGTH[device]
    compiled = device == "cuda" if compiled is None else compiled
    opened = Store.open(store) if store else None
    words = ["dropout=0.0", "attention_dropout=0.0", "classifier_dropout=0.0"]
    words += [f"vocab_size={opened.vocab_size}"] if opened else []
    config = model_config(source, words).encoder
    if config.family not in ("albert", "bert"):
        raise InputError(f"{source} is not pretrained with masks and order; name an albert or bert model")
    if not 8 <= length <= min(config.max_positions, tokens):
        most = min(config.max_positions, tokens)
        raise InputError(f"--length is {length} but must lie between 8 and {most} for {source} and {tokens} tokens")
    torch.manual_seed(0)
    network, where = pretraining_network(config), torch.device(device)
    theirs = their_model(network, "AutoModelForPreTraining")
    kind = precision.default_precision(where)
    peak = product_rate(where, kind)
    say(f"a large matrix product runs at {peak / 1e12:.3g} TFLOP/s")
    texts = _texts(config, opened, tokens, length, STEPS[device])
    work = _Work(network, theirs, texts, where, length, tokens // length, peak, limit or LIMIT[device])
    return Report(source, device, kind, tokens, length, peak, work.cases(compiled, say))


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

    def step_on(self, batches: Sequence[Batch]) -> Step:
        """Steps on these batches, from the first weights on."""
        ...


@dataclass(frozen=True)
class _Work:
    """The same batches for every engine."""

    network: Network
    theirs: nn.Module
    texts: Mapping[str, Sequence[Batch]]
    device: torch.device
    length: int
    rows_at_once: int  # of theirs
    peak: float
    limit: float

    def cases(self, compiled: bool, say: Callable[[str], None]) -> tuple[Case, ...]:
        engines: dict[str, Callable[[], _Engine]] = {
            "transformers": lambda: _Theirs(self, False),
            "litebert": lambda: _Ours(self, False),
        }
        if compiled:
            engines["litebert, compiled"] = lambda: _Ours(self, True)
            engines["transformers, compiled"] = lambda: _Theirs(self, True)  # last: it takes longest to be ready
        until = time.monotonic() + LIMIT_OF_ALL[self.device.type]
        rows: dict[str, list[Row]] = {text: [] for text in self.texts}
        for name, make in engines.items():
            _forget(self.device)
            engine = make()
            for text, batches in self.texts.items():
                say(f"timing {name} on {text} ...")
                eager = rows[text][0].tokens_per_second if rows[text] else None
                done = self._row(name, engine, batches, eager, min(self.limit, until - time.monotonic()))
                rows[text].append(done)
                say(f"  {_short(done)}")
            del engine
        return tuple(self._case(text, found) for text, found in rows.items())

    def _case(self, text: str, rows: Sequence[Row]) -> Case:
        batches = self.texts[text]
        chunks = [chunk for batch in batches for chunk in self.chunks(batch, 1)]
        padded = sum(int(chunk["attention_mask"].numel()) for chunk in chunks)
        tokens, sequences = (sum(getattr(b, name) for b in batches) for name in ("num_tokens", "num_sequences"))
        return Case(text, tokens / sequences, 1 - tokens / padded, tuple(rows))

    def chunks(self, batch: Batch, multiple: int) -> list[dict[str, torch.Tensor]]:
        return padded_chunks(batch, self.network.config.encoder, self.rows_at_once, multiple)

    def _row(self, name: str, engine: _Engine, batches: Sequence[Batch], eager: float | None, limit: float) -> Row:
        if limit < 1:
            return Row(name, problem="left out: the time for all is up")
        begun = time.perf_counter()
        try:
            with _at_most(limit):
                step = engine.step_on(batches)
                loss = step(0, True)
                ready = time.perf_counter() - begun
                seconds, peak_bytes = self._time(step, len(batches))
        except torch.OutOfMemoryError:
            return Row(name, problem="out of memory")
        except _TooLong:
            return Row(name, problem=f"not finished in {limit:.0f} s")
        speed = sum(batch.num_tokens for batch in batches) / seconds
        flops = sum(batch_flops(self.network.config.encoder, batch) for batch in batches)
        ratio = speed / eager if eager else float(not eager)
        return Row(name, speed, ratio, flops / seconds / self.peak, peak_bytes, loss, ready)

    def _time(self, step: Step, count: int) -> tuple[float, int | None]:
        """The best pass over all batches after one to warm up, and the allocator's peak in those."""
        on_cuda, best = self.device.type == "cuda", float("inf")
        for number in range(PASSES[self.device.type] + 1):
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


def _short(row: Row) -> str:
    """A row as soon as it is there."""
    if row.problem:
        return row.problem
    memory = "" if row.peak_bytes is None else f", {row.peak_bytes / 2**30:.1f} GiB"
    return f"{row.tokens_per_second:,.0f} tokens/s, {row.ratio:.2f} times, {row.mfu:.1%} of the peak{memory}"


class _Theirs:
    """As their users do it: padded, logits at every position, their own loss."""

    def __init__(self, work: _Work, compiled: bool) -> None:
        self.work, self.multiple = work, MULTIPLE if compiled else 1
        self.training = TheirPretraining(copy.deepcopy(work.theirs), work.device, compiled, OPTIMISER)

    def step_on(self, batches: Sequence[Batch]) -> Step:
        # Padded before the clock starts.
        return self.training.step_on([self.work.chunks(batch, self.multiple) for batch in batches], CLIP)


class _Ours:
    """As the loop does it, on one device."""

    def __init__(self, work: _Work, compiled: bool) -> None:
        self.work = work
        self.objective = Pretraining(work.length, 0 if compiled else LOGIT_CHUNK)
        self.learner = Learner(copy.deepcopy(work.network).to(work.device).train(), self.objective)
        self.learner.network.encoder.narrow_stream()
        if compiled:
            self.learner.compile()

    def step_on(self, batches: Sequence[Batch]) -> Step:
        objective, learner, device = self.objective, self.learner, self.work.device
        learner.network.load_state_dict(self.work.network.state_dict())
        kind = precision.default_precision(device)
        optimiser = build_optimiser(learner.network, OPTIMISER)
        scaler = precision.scaler(kind, device)

        def step(index: int, look: bool) -> float:
            batch = batches[index]
            counts = objective.counts(batch)
            with precision.cast(kind, device):
                parts = learner(objective.tensors(batch, device))
                loss = torch.stack([lost / max(counts[name], 1) for name, (lost, _) in parts.items()]).sum()
            scaler.scale(loss).backward()
            optimiser.update(scaler, CLIP)
            return float(loss.detach()) if look else 0.0

        return step


class _TooLong(BaseException):
    """Not an Exception, which a compiler might take for its own."""


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Break off what takes longer (where a signal can reach it: in the main thread)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(_number: int, _frame: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _forget(device: torch.device) -> None:
    """Nothing of one engine stays for the next."""
    gc.collect()
    torch.compiler.reset()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
