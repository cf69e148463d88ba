"""What one would write with ``transformers`` to pretrain a BERT in some minutes: its model, AdamW, full rows, compiled.

Rows are ``[CLS] A [SEP] B [SEP]`` of equal halves cut from one document, swapped in half of the cases; 15% of the
tokens are masked; the learning rate warms up and falls to zero by the clock. Rows of full length suit padded code best.

N rows of L tokens.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from litebert.checkpoints.folder import load_model, save_model
from litebert.corpus.store import Store
from litebert.errors import InputError
from litebert.pretraining.vocabulary_loss import IGNORED
from litebert.text.tokenizer_files import read_tokenizer
from litebert.train import precision

MASKED, REPLACED = 0.8, 0.9  # of the chosen tokens: [MASK] below the first, a random one up to the second
WARM_UP = 3  # passes that compile


@dataclass(frozen=True, kw_only=True)
class PlainSettings:
    """How to train; the defaults are for a BERT-base on one large GPU."""

    model: Mapping[str, int]  # fields of their BertConfig that differ from BERT-base
    length: int = 128
    rows: int = 512  # of a step
    rate: float = 4e-4
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    warmup: float = 0.06  # share of the time
    mask_rate: float = 0.15
    clip: float = 1.0


def row_starts(store: Store, body: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """All training tokens in a row, and where rows of ``body`` tokens begin: side by side, each in one document."""
    tokens, starts, offset = [], [], 0
    for shard in store.split("train").shards:
        bounds = shard.sentences[shard.documents].astype(np.int64)
        for begin, end in pairwise(bounds):
            starts.append(np.arange(begin, end - body + 1, body) + offset)
        tokens.append(shard.tokens.astype(np.int32))
        offset += shard.num_tokens
    found = np.concatenate(starts) if starts else np.zeros(0, np.int64)
    if not len(found):
        raise InputError(f"{store.folder} has no document of {body} tokens; choose shorter rows or another store")
    return np.concatenate(tokens), found


class Rows:
    """Draws batches of rows on the device."""

    def __init__(self, store: Store, settings: PlainSettings, device: torch.device, seed: int) -> None:
        tokens, starts = row_starts(store, settings.length - 3)
        self.tokens, self.starts = torch.from_numpy(tokens).to(device), torch.from_numpy(starts).to(device)
        self.settings, self.device, self.ids, self.vocab_size = settings, device, store.special_ids, store.vocab_size
        self.special = torch.tensor(sorted(set(self.ids.values())), device=device)
        self.random = torch.Generator(device).manual_seed(seed)

    def batch(self) -> dict[str, Tensor]:
        """N rows as their model takes them."""
        count, body, half = self.settings.rows, self.settings.length - 3, (self.settings.length - 3) // 2
        chosen = torch.randint(len(self.starts), (count,), generator=self.random, device=self.device)
        text = self.tokens[self.starts[chosen][:, None] + torch.arange(body, device=self.device)].long()
        swapped = self._uniform(count, 1) < 0.5
        first, second = text[:, :half], text[:, half : 2 * half]
        first, second = torch.where(swapped, second, first), torch.where(swapped, first, second)
        begin, end = (torch.full((count, 1), self.ids[name], device=self.device) for name in ("cls", "sep"))
        ids = torch.cat([begin, first, end, second, end], 1)
        segments = torch.zeros_like(ids)
        segments[:, half + 2 :] = 1
        masked = (self._uniform(*ids.shape) < self.settings.mask_rate) & ~torch.isin(ids, self.special)
        how, others = self._uniform(*ids.shape), torch.randint(
            self.vocab_size, ids.shape, generator=self.random, device=self.device
        )  # fmt: skip
        shown = torch.where(masked & (how < MASKED), self.ids["mask"], ids)
        shown = torch.where(masked & (how >= REPLACED), others, shown)
        return {
            "input_ids": shown,
            "token_type_ids": segments,
            "attention_mask": torch.ones_like(ids),
            "labels": torch.where(masked, ids, IGNORED),
            "next_sentence_label": swapped.squeeze(1).long(),
        }

    def _uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.random, device=self.device)


def pretrain_plain(
    corpus: Path,
    out: Path,
    seconds: float,
    settings: PlainSettings,
    *,
    seed: int,
    device: str,
    begun: float | None = None,
) -> dict[str, Any]:
    """Train for ``seconds`` since ``begun`` (None: since everything is compiled) and leave a model folder of ours."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    torch.manual_seed(seed)
    store, where = Store.open(corpus), torch.device(device)
    fields = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, **settings.model}
    model = transformers.BertForPreTraining(transformers.BertConfig(vocab_size=store.vocab_size, **fields)).to(where)
    rows, kind = Rows(store, settings, where, seed), precision.training_precision(where, model.config.hidden_size)
    run: Any = torch.compile(model) if device == "cuda" else model
    optimiser = torch.optim.AdamW(
        model.parameters(), settings.rate, settings.betas, weight_decay=settings.weight_decay, fused=True
    )

    def learn() -> Tensor:
        with precision.cast(kind, where):
            loss: Tensor = run(**rows.batch()).loss
        loss.backward()
        return loss.detach()

    for _ in range(WARM_UP):
        learn()
    optimiser.zero_grad(set_to_none=True)
    _wait(where)
    ready = time.monotonic()
    begun = ready if begun is None else begun
    if ready >= begun + seconds:
        raise InputError(f"the budget of {seconds:g} s was up when the first step could be taken; give it longer")
    end, steps, loss = begun + seconds, 0, torch.zeros(())
    while (now := time.monotonic()) < end:
        progress = (now - ready) / max(end - ready, 1e-9)
        rate = min(progress / settings.warmup, (1 - progress) / (1 - settings.warmup))
        for group in optimiser.param_groups:
            group["lr"] = settings.rate * max(rate, 0.0)
        loss = learn()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        steps += 1
        if steps % 8 == 0:
            _wait(where)  # or the clock would run ahead of the device
    _wait(where)
    spent = time.monotonic() - begun
    model.save_pretrained(out / "theirs")
    network = load_model(out / "theirs").network
    save_model(out / "model", network, read_tokenizer(store.tokenizer_folder, "bert"), verb="bench")
    tokens = steps * settings.rows * (2 * ((settings.length - 3) // 2) + 3)
    return {"steps": steps, "tokens": tokens, "seconds": spent, "ready": ready - begun, "loss": float(loss)}


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
