"""Inference side by side with ``transformers``: same weights, same texts of mixed length, one run.

Theirs pads each batch to its longest text, as a user's code would; ours packs. Both are also timed compiled, and theirs
once more with the texts sorted by length, which is the best that padding can do.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from litebert.checkpoints.folder import Loaded, load_model
from litebert.errors import InputError
from litebert.nn.layout import Layout
from litebert.nn.network import Network
from litebert.report import Report, Section, table_of
from litebert.tasks.encoding import token_batches
from litebert_lab.bench.random_batches import mixed_lengths
from litebert_lab.bench.theirs import their_model

TOKENS_PER_BATCH = {"cpu": 4096, "cuda": 32768}
COLUMNS = {
    "engine": "{0.engine}",
    "tokens/s": "{0.tokens_per_second:,.0f}",
    "texts/s": "{0.texts_per_second:,.1f}",
    "ratio": "{0.ratio:.2f}",
    "difference": "{0.worst_difference:.1e}",
}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Row:
    """One engine's speed, and how far its pooled vectors are from our eager fp32 ones."""

    engine: str
    tokens_per_second: float
    texts_per_second: float
    ratio: float  # to the first engine
    worst_difference: float


def bench_forward(
    source: str,
    *,
    texts: Sequence[str] | None = None,
    count: int = 128,
    mean: float = 25,
    batch: int = 32,
    device: str = "cpu",
    compiled: bool = True,
    repeats: int = 3,
) -> Report:
    """Time both libraries on real ``texts`` (or random ids of mixed length) and compare what they compute."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    loaded = load_model(source, device=device)
    ids = _ids(loaded, texts, count, mean)
    theirs = their_model(loaded.network, "AutoModel").to(device).eval()
    with torch.inference_mode():
        expected = _packed(loaded.network, ids, device)()
    ours, theirs = loaded.network.to(dtype), theirs.to(dtype)
    engines: list[tuple[str, Callable[[], Tensor]]] = [
        ("transformers, batches as they come", _padded(theirs, ids, batch, device, by_length=False)),
        ("transformers, sorted by length", _padded(theirs, ids, batch, device, by_length=True)),
        ("litebert, packed", _packed(ours, ids, device)),
    ]
    if compiled:
        theirs_compiled = torch.compile(theirs, dynamic=True)
        engines.insert(2, ("transformers compiled, as they come", _padded(theirs_compiled, ids, batch, device, False)))
        engines.insert(3, ("transformers compiled, sorted", _padded(theirs_compiled, ids, batch, device, True)))
        engines.append(
            ("litebert compiled, packed", _packed(ours, ids, device, torch.compile(ours.encoder, dynamic=True)))
        )
    tokens = sum(map(len, ids))
    rows: list[Row] = []
    for name, run in engines:
        log.info(f"timing {name} ...")
        seconds, vectors = _best_time(run, repeats, device)
        difference, speed = (vectors.float() - expected).abs().max().item(), tokens / seconds
        ratio = speed / rows[0].tokens_per_second if rows else 1.0
        rows.append(Row(name, speed, len(ids) / seconds, ratio, difference))
    facts = {"model": source, "device": device, "dtype": str(dtype).removeprefix("torch.")}
    return Report(
        title="{model} on {device} in {dtype}: ".format(**facts) + f"{len(ids)} texts, {tokens} tokens",
        sections=[Section(items=[table_of(rows, COLUMNS)])],
        data={**facts, "texts": len(ids), "tokens": tokens, "rows": [asdict(row) for row in rows]},
    )


def _ids(loaded: Loaded, texts: Sequence[str] | None, count: int, mean: float) -> list[list[int]]:
    config = loaded.network.config.encoder
    longest = config.max_positions or 512
    if texts is not None:
        if loaded.tokenizer is None:
            raise InputError("this model has no tokenizer; leave --texts out to time it on random ids of mixed length")
        return [one.ids for one in loaded.tokenizer.encode_batch(list(texts), max_length=longest)]
    generator = np.random.default_rng(1)
    low = min(10, config.vocab_size - 1)
    return [generator.integers(low, config.vocab_size, n).tolist() for n in mixed_lengths(count, mean, longest)]


def _padded(
    model: Callable[..., object], ids: list[list[int]], batch: int, device: str, by_length: bool
) -> Callable[[], Tensor]:
    order = sorted(range(len(ids)), key=lambda i: -len(ids[i])) if by_length else list(range(len(ids)))

    def run() -> Tensor:
        out: list[Tensor] = []
        for start in range(0, len(order), batch):
            chosen = [ids[i] for i in order[start : start + batch]]
            longest = max(map(len, chosen))
            rows = torch.tensor([one + [0] * (longest - len(one)) for one in chosen]).to(device)
            mask = torch.tensor([[1] * len(one) + [0] * (longest - len(one)) for one in chosen]).to(device)
            out.append(model(input_ids=rows, attention_mask=mask).last_hidden_state[:, 0])  # type: ignore[attr-defined]
        return torch.cat(out)[torch.tensor(order).argsort()]

    return run


def _packed(
    network: Network, ids: list[list[int]], device: str, encoder: Callable[..., Tensor] | None = None
) -> Callable[[], Tensor]:
    encoder = network.encoder if encoder is None else encoder

    def run() -> Tensor:
        out: list[Tensor] = []
        order: list[int] = []
        for batch in token_batches([len(one) for one in ids], TOKENS_PER_BATCH[device]):
            flat = torch.tensor([id for index in batch for id in ids[index]]).to(device)
            layout = Layout.of([len(ids[index]) for index in batch], device)
            out.append(encoder(flat, layout)[layout.first])
            order += batch.tolist()
        return torch.cat(out)[torch.tensor(order).argsort()]

    return run


def _best_time(run: Callable[[], Tensor], repeats: int, device: str) -> tuple[float, Tensor]:
    """The best of several passes after one to warm up."""
    best = float("inf")
    with torch.inference_mode():
        vectors = run()
        for _ in range(repeats):
            start = time.perf_counter()
            vectors = run()
            if device == "cuda":
                torch.cuda.synchronize()
            best = min(best, time.perf_counter() - start)
    return best, vectors
