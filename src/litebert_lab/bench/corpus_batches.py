"""How fast batches are made, next to transformers' collator for masked language modelling: same rows, one core.

The collator pads rows of ids that are there already and masks single tokens. Ours starts from the store: it cuts
documents into pairs, packs them, draws spans of whole words and masks them. Both are timed over the same rows, in
turns, and the best of each counts. The collator gets its rows as lists, as the datasets library gives them, and as
tensors; the faster of the two is what we compare with.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from litebert.corpus.batches import Batches, BatchSettings
from litebert.corpus.look import originals
from litebert.corpus.store import Store

TARGET = 5.0
MOST_TOKENS = 2_000_000


@dataclass(frozen=True, kw_only=True)
class BatchSpeeds:
    """Tokens a second on one core, padding not counted."""

    tokens: int
    length: int
    budget: int
    collator_lists: float
    collator_tensors: float
    litebert: float
    fill: float
    epoch_start: float  # seconds per 100 million tokens
    first_batch: float  # seconds from an open store to a first batch, functions compiled

    @property
    def ratio(self) -> float:
        """Our speed over the collator's better one."""
        return self.litebert / max(self.collator_lists, self.collator_tensors)

    def table(self) -> str:
        """The figures for a person."""
        rows = [
            ("transformers' collator, rows as lists", self.collator_lists),
            ("transformers' collator, rows as tensors", self.collator_tensors),
            ("litebert: pairs, n-gram masks, packing", self.litebert),
        ]
        return "\n".join(
            [
                f"making batches of {self.budget:,} tokens, inputs of {self.length}: {self.tokens:,} tokens, one core",
                *(f"  {name:42}{speed / 1e6:8.2f} million tokens/s" for name, speed in rows),
                f"  {'ratio':42}{self.ratio:8.1f}   (wanted: {TARGET:.0f} or more)",
                f"  {'fill':42}{self.fill:8.2%}",
                f"  {'start of an epoch':42}{self.epoch_start:8.2f} s per 100 million tokens",
                f"  {'store to first batch':42}{self.first_batch:8.2f} s",
            ]
        )


def bench_batches(folder: Path, *, length: int = 512, budget: int = 65_536, rounds: int = 3) -> BatchSpeeds:
    """Measure with the train split of a store."""
    import torch

    store = Store.open(folder)
    settings = BatchSettings(length=length, budget=min(budget, max(length, store.split("train").num_tokens // 4)))
    warm = Batches(store, "train", settings)
    count = min(warm.len(0), max(1, MOST_TOKENS // settings.budget))
    made = [warm.batch(0, index) for index in range(count)]  # also compiles
    tokens = sum(batch.num_tokens for batch in made)
    lists = [_rows(originals(batch), batch.starts) for batch in made]
    tensors = [[torch.tensor(row) for row in rows] for rows in lists]
    collate = _collator(store)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        speeds = _fastest(
            [
                lambda: [collate([{"input_ids": row} for row in rows]) for rows in lists],
                lambda: [collate([{"input_ids": row} for row in rows]) for rows in tensors],
                lambda: _make_fresh(store, settings, count),
            ],
            rounds,
        )
    finally:
        torch.set_num_threads(threads)
    started = time.perf_counter()
    fresh = Batches(store, "train", settings)
    fresh.batch(0, 0)
    first = time.perf_counter() - started
    started = time.perf_counter()
    fresh.len(1)
    start = time.perf_counter() - started
    return BatchSpeeds(
        tokens=tokens,
        length=length,
        budget=settings.budget,
        collator_lists=tokens / speeds[0],
        collator_tensors=tokens / speeds[1],
        litebert=tokens / speeds[2],
        fill=tokens / count / settings.budget,
        epoch_start=start / store.split("train").num_tokens * 1e8,
        first_batch=first,
    )


def _make_fresh(store: Store, settings: BatchSettings, count: int) -> None:
    """Make the batches from the store on, planning and reading included."""
    batches = Batches(store, "train", settings)
    for index in range(count):
        batches.batch(0, index)


def _fastest(tasks: list[Callable[[], object]], rounds: int) -> list[float]:
    """The least seconds of each task, taken in turns."""
    best = [float("inf")] * len(tasks)
    for _ in range(rounds):
        for number, task in enumerate(tasks):
            started = time.perf_counter()
            task()
            best[number] = min(best[number], time.perf_counter() - started)
    return best


def _rows(ids: np.ndarray[Any, np.dtype[np.int32]], starts: np.ndarray[Any, np.dtype[np.int32]]) -> list[list[int]]:
    return [row.tolist() for row in np.split(ids, starts[1:-1])]


def _collator(store: Store) -> Callable[[list[dict[str, Any]]], object]:
    """The library's collator with its plain token masking, over the store's own tokenizer."""
    from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

    from litebert.text.tokenizer_files import read_tokenizer

    ids = store.special_ids
    tokenizer = read_tokenizer(store.tokenizer_folder)
    names = {f"{role}_token": tokenizer.piece(ids[role]) for role in ("pad", "unk", "cls", "sep", "mask")}
    wrapped = PreTrainedTokenizerFast(tokenizer_file=str(store.tokenizer_folder / "tokenizer.json"), **names)
    return DataCollatorForLanguageModeling(wrapped, mlm_probability=0.15)
