"""A pretraining step side by side with ``transformers``: same weights, sequences, masks and optimiser, in one run.

Theirs are padded to the longest of each forward pass, as their collator would, at most as many sequences at once as
fill the step at full length; gradients add up over the step. Only real tokens count, in speed and in arithmetic. An
engine that is not ready in time is said to be so and left behind.
"""

import copy
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, cast

import torch
from torch import nn

from litebert.bench.made_up import full_batches, mixed_batches
from litebert.bench.ours import OurPretraining
from litebert.bench.pretrain_report import Case, Report, Row
from litebert.bench.theirs import Step, TheirPretraining, padded_chunks, their_model
from litebert.bench.time_limit import TooLong, at_most
from litebert.checkpoints.folder import model_config
from litebert.corpus.batch_settings import BatchSettings
from litebert.corpus.batches import Batches
from litebert.corpus.rows import Batch
from litebert.corpus.store import Store
from litebert.errors import InputError, nearest
from litebert.nn.config import EncoderConfig
from litebert.nn.network import Network, pretraining_network
from litebert.plan.product import product_rate
from litebert.pretrain.stages import batch_flops
from litebert.train import precision
from litebert.train.settings import OPTIMISERS, OptimiserSettings, Precision

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


def bench_pretrain(setting: Setting, limit: float | None = None, say: Callable[[str], None] = lambda _: None) -> Report:
    """Time both libraries on inputs of full length, on those of a store if there is one, and on mixed ones."""
    if setting.optimiser != OPTIMISER:
        raise InputError("next to transformers both have AdamW; --optimiser is for --profile")
    torch.manual_seed(0)
    network, device = pretraining_network(setting.config), setting.device
    theirs = their_model(network, "AutoModelForPreTraining")
    peak = product_rate(device, setting.precision)
    say(f"a large matrix product runs at {peak / 1e12:.3g} TFLOP/s")
    rows_at_once, limit = setting.tokens // setting.length, limit or LIMIT[device.type]
    work = _Work(network, theirs, setting.texts, device, setting.precision, setting.length, rows_at_once, peak, limit)
    cases = work.cases(setting.compiled, say)
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

    def cases(self, compiled: bool, say: Callable[[str], None]) -> tuple[Case, ...]:
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
                say(f"timing {name} on {text} ...")
                eager = rows[text][0].tokens_per_second if rows[text] else None
                done = self._row(name, engine, batches, eager, min(self.limit, until - time.monotonic()))
                rows[text].append(done)
                say(f"  {done.short()}")
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
