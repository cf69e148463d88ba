"""A pretraining step side by side with ``transformers``: same weights, sequences, masks and optimiser, in one run.

Theirs are padded to the longest of each forward pass, as their collator would, at most as many sequences at once as
fill the step at full length; gradients add up over the step. Only real tokens count, in speed and in arithmetic.
"""

import copy
import gc
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from litebert.bench.made_up import full_batches, mixed_batches
from litebert.checkpoints.folder import model_config, save_model
from litebert.corpus.batch_settings import BatchSettings
from litebert.corpus.batches import Batches
from litebert.corpus.rows import Batch
from litebert.corpus.store import Store
from litebert.errors import InputError
from litebert.nn.network import Network, pretraining_network
from litebert.pretrain.objective import IGNORED, LOGIT_CHUNK, Pretraining
from litebert.pretrain.utilisation import batch_flops, product_rate
from litebert.train import parallel, precision
from litebert.train.objective import Learner
from litebert.train.optimiser_settings import OptimiserSettings
from litebert.train.optimisers import build_optimiser

USUAL_MODEL = {"cpu": "albert-small", "cuda": "albert-base-v2"}
USUAL_TOKENS = {"cpu": 4096, "cuda": 65_536}
USUAL_LENGTH = {"cpu": 128, "cuda": 512}
STEPS = {"cpu": 2, "cuda": 8}  # of a timed pass
PASSES = {"cpu": 2, "cuda": 2}  # the best of which counts
OPTIMISER = OptimiserSettings(name="adamw", rate=1e-4)
CLIP = 1.0


@dataclass(frozen=True)
class Row:
    """One engine on one kind of text."""

    engine: str
    tokens_per_second: float
    ratio: float  # to transformers eager
    mfu: float
    peak_bytes: int | None  # of the allocator, on a GPU
    first_loss: float
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
        lines.append(f"{'engine':24} {'tokens/s':>10} {'ratio':>6} {'MFU':>6} {'memory':>9} {'first loss':>10}")
        for row in case.rows:
            if row.problem:
                lines.append(f"{row.engine:24} {row.problem}")
                continue
            memory = "-" if row.peak_bytes is None else f"{row.peak_bytes / 2**30:.1f} GiB"
            lines.append(
                f"{row.engine:24} {row.tokens_per_second:10,.0f} {row.ratio:6.2f} {row.mfu:6.1%} {memory:>9} "
                f"{row.first_loss:10.5f}"
            )
    return "\n".join(lines)


# Takes a step on a batch; asked to look, it says what it lost (which waits for the device and costs time).
Step = Callable[[int, bool], float]


def bench_pretrain(
    source: str | None = None,
    *,
    store: Path | None = None,
    device: str = "cpu",
    tokens: int | None = None,
    length: int | None = None,
    compiled: bool | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Time both libraries on full-length text and on text of the store's lengths (without a store: mixed ones)."""
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
    network, where, steps = pretraining_network(config), torch.device(device), STEPS[device]
    theirs = _their_model(network)
    kind = precision.default_precision(where)
    peak = product_rate(where, kind)
    if opened:
        settings = BatchSettings(length=length, budget=tokens, fixed=True)
        batches = Batches(opened, "train", settings)
        mixed = [batches.batch(0, number) for number in range(min(steps, batches.len(0)))]
    else:
        mixed = mixed_batches(config, tokens, length, steps)
    texts = {
        "full-length inputs": full_batches(config, tokens, length, steps),
        "the store's own lengths" if opened else "mixed lengths": mixed,
    }
    cases = []
    for text, batches_of_text in texts.items():
        work = _Work(network, theirs, batches_of_text, where, length, tokens // length, peak)
        cases.append(work.case(text, compiled, say))
    return Report(source, device, kind, tokens, length, peak, tuple(cases))


@dataclass(frozen=True)
class _Work:
    """The same batches for every engine."""

    network: Network
    theirs: nn.Module
    batches: Sequence[Batch]
    device: torch.device
    length: int
    rows_at_once: int  # of theirs
    peak: float

    def case(self, text: str, compiled: bool, say: Callable[[str], None]) -> Case:
        makers: dict[str, Callable[[], Step]] = {
            "transformers": lambda: self._theirs(False),
            "litebert": lambda: self._ours(False),
        }
        if compiled:
            makers["transformers, compiled"] = lambda: self._theirs(True)
            makers["litebert, compiled"] = lambda: self._ours(True)
        rows: list[Row] = []
        for name, make in makers.items():
            say(f"timing {name} on {text} ...")
            rows.append(self._row(name, make, rows[0].tokens_per_second if rows else None))
            done = rows[-1]
            say(f"  {done.tokens_per_second:,.0f} tokens/s, {done.mfu:.1%} of the peak {done.problem}".rstrip())
        padded = sum(int(chunk["attention_mask"].numel()) for batch in self.batches for chunk in self._chunks(batch))
        tokens, sequences = (sum(getattr(b, name) for b in self.batches) for name in ("num_tokens", "num_sequences"))
        return Case(text, tokens / sequences, 1 - tokens / padded, tuple(rows))

    def _row(self, name: str, make: Callable[[], Step], eager: float | None) -> Row:
        _forget(self.device)
        try:
            step = make()
            loss = step(0, True)
            seconds, peak_bytes = self._time(step)
        except torch.OutOfMemoryError:
            return Row(name, 0.0, 0.0, 0.0, None, float("nan"), "out of memory")
        speed = sum(batch.num_tokens for batch in self.batches) / seconds
        flops = sum(batch_flops(self.network.config.encoder, batch) for batch in self.batches)
        ratio = speed / eager if eager else 1.0
        return Row(name, speed, ratio, flops / seconds / self.peak, peak_bytes, loss)

    def _time(self, step: Step) -> tuple[float, int | None]:
        """The best pass over all batches after one to warm up, and the allocator's peak in those."""
        on_cuda, best = self.device.type == "cuda", float("inf")
        for number in range(PASSES[self.device.type] + 1):
            if on_cuda:
                torch.cuda.synchronize()
            begun = time.perf_counter()
            for index in range(len(self.batches)):
                step(index, False)
            if on_cuda:
                torch.cuda.synchronize()
            if number:
                best = min(best, time.perf_counter() - begun)
            elif on_cuda:
                torch.cuda.reset_peak_memory_stats()  # compiling tries things out; training does not
        return best, torch.cuda.max_memory_allocated() if on_cuda else None

    def _ours(self, compiled: bool) -> Step:
        """As the loop does it, on one device."""
        network = copy.deepcopy(self.network).to(self.device).train()
        objective = Pretraining(self.length, 0 if compiled else LOGIT_CHUNK)
        learner, kind = Learner(network, objective), precision.default_precision(self.device)
        if compiled:
            learner.compile()
        optimiser = build_optimiser(network, OPTIMISER)
        scaler = precision.scaler(kind, self.device)

        def step(index: int, look: bool) -> float:
            batch = self.batches[index]
            counts = objective.counts(batch)
            with precision.cast(kind, self.device):
                parts = learner(objective.tensors(batch, self.device))
                loss = torch.stack([lost / max(counts[name], 1) for name, (lost, _) in parts.items()]).sum()
            scaler.scale(loss).backward()
            if scaler.is_enabled():
                optimiser.unscale(scaler)
            parameters = optimiser.parameters()
            norm = parallel.norm_of_gradients(parameters)
            nn.utils.clip_grads_with_norm_(parameters, CLIP, norm)
            if scaler.is_enabled():
                optimiser.step_scaled(scaler)
            else:
                optimiser.step()
            optimiser.zero_grad()
            return float(loss.detach()) if look else 0.0

        return step

    def _theirs(self, compiled: bool) -> Step:
        """As their users do it: padded, logits at every position, their own loss."""
        model: nn.Module = copy.deepcopy(self.theirs).to(self.device).train()
        kind = precision.default_precision(self.device)
        run: Callable[..., Any] = torch.compile(model) if compiled else model
        optimiser = torch.optim.AdamW(_decaying(model), OPTIMISER.rate, OPTIMISER.betas, OPTIMISER.eps, fused=True)
        scaler = precision.scaler(kind, self.device)
        chunks = [self._chunks(batch) for batch in self.batches]  # padded before the clock starts

        def step(index: int, look: bool) -> float:
            sums = torch.zeros(2, 2)
            for chunk in chunks[index]:
                inputs = {name: tensor.to(self.device, non_blocking=True) for name, tensor in chunk.items()}
                with precision.cast(kind, self.device):
                    out = run(**inputs)
                scaler.scale(out.loss / len(chunks[index])).backward()
                if look:
                    sums += _lost(out, inputs)
                del out
            scaler.unscale_(optimiser)
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            scaler.step(optimiser)
            scaler.update()
            optimiser.zero_grad(set_to_none=True)
            return float((sums[:, 0] / sums[:, 1].clamp(min=1)).sum())

        return step

    def _chunks(self, batch: Batch) -> list[dict[str, Tensor]]:
        """A batch as padded rows, a few forward passes' worth."""
        ids, segments = (torch.from_numpy(array).long() for array in (batch.ids, batch.segments))
        labels = torch.full_like(ids, IGNORED)
        masked = torch.from_numpy(batch.mask_positions[: batch.num_masked]).long()
        labels[masked] = torch.from_numpy(batch.mask_targets[: batch.num_masked]).long()
        order = torch.from_numpy(batch.order_labels).long()
        bounds = batch.starts[: batch.num_sequences + 1].tolist()
        sequences = [slice(*pair) for pair in pairwise(bounds)]
        key = ORDER_KEYS[self.network.config.encoder.family]
        chunks = []
        for first in range(0, len(sequences), self.rows_at_once):
            chosen = sequences[first : first + self.rows_at_once]
            pad = self.network.config.encoder.pad_id
            chunks.append(
                {
                    "input_ids": _rows(ids, chosen, pad),
                    "attention_mask": _rows(torch.ones_like(ids), chosen, 0),
                    "token_type_ids": _rows(segments, chosen, 0),
                    "labels": _rows(labels, chosen, IGNORED),
                    key: order[first : first + len(chosen)],
                }
            )
        return chunks


ORDER_KEYS = {"albert": "sentence_order_label", "bert": "next_sentence_label"}


def _lost(out: Any, inputs: dict[str, Tensor]) -> Tensor:
    """Sum and count of both losses from their logits; their own loss is a mean over each forward pass."""
    order = next(inputs[name] for name in ORDER_KEYS.values() if name in inputs)
    scores = out.sop_logits if "sop_logits" in out else out.seq_relationship_logits
    sums = []
    for logits, wanted in ((out.prediction_logits, inputs["labels"]), (scores, order)):
        known = wanted != IGNORED
        lost = F.cross_entropy(logits.detach()[known].float(), wanted[known], reduction="sum")
        sums.append([float(lost), float(known.sum())])
    return torch.tensor(sums)


def _rows(flat: Tensor, chosen: list[slice], filler: int) -> Tensor:
    return nn.utils.rnn.pad_sequence([flat[one] for one in chosen], batch_first=True, padding_value=filler)


def _decaying(model: nn.Module) -> list[dict[str, Any]]:
    """Norms and biases do not decay, as in ours."""
    named = list(model.named_parameters())
    plain = [p for name, p in named if name.endswith("bias") or "norm" in name.lower()]
    others = [p for name, p in named if not (name.endswith("bias") or "norm" in name.lower())]
    return [{"params": others, "weight_decay": OPTIMISER.weight_decay}, {"params": plain, "weight_decay": 0.0}]


def _their_model(network: Network) -> nn.Module:
    try:
        import transformers
    except ImportError:
        raise InputError("this compares with transformers; install it: pip install 'litebert[dev]'") from None
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        save_model(folder + "/model", network, None, verb="bench", written_out=True)
        model: nn.Module = transformers.AutoModelForPreTraining.from_pretrained(folder + "/model")
        return model


def _forget(device: torch.device) -> None:
    """Nothing of one engine stays for the next."""
    gc.collect()
    torch.compiler.reset()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
