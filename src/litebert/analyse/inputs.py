"""Text as packed batches for measuring a model: read line by line, so that memory does not grow with the file."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from litebert.errors import InputError
from litebert.nn.config import EncoderConfig
from litebert.nn.layout import Layout
from litebert.text.documents import documents
from litebert.text.tokenizer import Encoded, Tokenizer
from litebert.text.tokenizer_files import read_tokenizer

BATCH_TOKENS = 2048
WINDOW = 512  # texts that are sorted by length together, so that attention weights need little padding


@dataclass(frozen=True)
class Inputs:
    """Some texts, packed."""

    ids: Tensor
    layout: Layout
    segments: Tensor

    @property
    def texts(self) -> int:
        return self.layout.num_sequences


def text_lines(sources: Sequence[str], most: int | None = None) -> Iterator[str]:
    """Every non-empty line of files (or of the records of .jsonl and .parquet), at most ``most``."""
    lines = (line for document in documents(sources) for line in document.text.split("\n") if line.strip())
    return islice(lines, most)


def count_texts(sources: Sequence[str], most: int | None = None) -> int | None:
    """The number of texts, to show progress; None for standard input, which can be read once only."""
    return None if "-" in sources else sum(1 for _ in text_lines(sources, most))


def first_tokens(texts: Iterator[str], tokenizer: Tokenizer, tokens: int) -> Iterator[str]:
    """Texts up to a total of ``tokens``."""
    for text in texts:
        yield text
        tokens -= len(tokenizer.ids(text))
        if tokens <= 0:
            return


def batches(
    texts: Iterator[str], tokenizer: Tokenizer, config: EncoderConfig, *, max_length: int = 512, device: str = "cpu"
) -> Iterator[Inputs]:
    """Texts as batches of a bounded number of tokens; longer texts are cut (``max_length``, positions)."""
    longest = min(max_length, config.max_positions) if config.positions == "absolute" else max_length
    while window := list(islice(texts, WINDOW)):
        encoded = tokenizer.encode_batch(window, max_length=longest)
        encoded.sort(key=lambda one: len(one.ids))
        batch: list[Encoded] = []
        for one in encoded:
            if batch and (len(batch) + 1) * len(one.ids) > BATCH_TOKENS:
                yield _pack(batch, config, device)
                batch = []
            batch.append(one)
        yield _pack(batch, config, device)


def _pack(encoded: Sequence[Encoded], config: EncoderConfig, device: str) -> Inputs:
    ids = torch.tensor([id for one in encoded for id in one.ids])
    if int(ids.max()) >= config.vocab_size:
        raise InputError(
            f"the tokenizer gives id {int(ids.max())} but the model has {config.vocab_size} tokens; set tokenizer to "
            "the model's own"
        )
    segments = torch.tensor([segment for one in encoded for segment in one.segments])
    return Inputs(ids.to(device), Layout.of([len(one.ids) for one in encoded], device), segments.to(device))


def tokenizer_for(model: str, own: Tokenizer | None, other: Path | None, family: str) -> Tokenizer:
    """The tokenizer to read text with: ``other`` where given, else the model's own."""
    if other is not None:
        return read_tokenizer(other, family)
    if own is None:
        raise InputError(f"{model} has no tokenizer, so it cannot read text; set tokenizer to a folder with one")
    return own
