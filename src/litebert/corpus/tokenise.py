"""What a worker process does: documents to sentences to tokens, with word starts, as a few flat arrays."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from litebert.corpus.sentences import sentence_splitter, split_document
from litebert.corpus.store import token_type
from litebert.corpus.word_starts import word_starts
from litebert.errors import InputError
from litebert.text.joined import JoinedTexts
from litebert.text.normalise import Rules, normalise
from litebert.text.tokenizer_files import Tokenizer, read_tokenizer

# Characters given to the library at once: its results are large, so that more would only take memory.
CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class RawDocument:
    """A document to tokenise and the language of its sentences."""

    text: str
    language: str


@dataclass(frozen=True, slots=True)
class Tokenised:
    """Documents one after the other; one without any token is kept as an empty stretch, so that places still fit."""

    tokens: npt.NDArray[np.unsignedinteger[Any]]
    word_starts: npt.NDArray[np.uint8]
    sentences: npt.NDArray[np.int64]  # where each starts in tokens
    document_sentences: npt.NDArray[np.int64]  # how many each document has
    document_tokens: npt.NDArray[np.int64]
    characters: npt.NDArray[np.int64]  # of each document


@dataclass(frozen=True, slots=True)
class Tools:
    """What a worker needs to start. The rules are applied before the tokenizer's own."""

    tokenizer_folder: Path
    family: str
    rules: Rules
    features: npt.NDArray[np.uint8]  # of ``word_features``, made once for all workers


class DocumentTokeniser:
    """A tokenizer and a sentence splitter at work."""

    def __init__(self, tools: Tools) -> None:
        tokenizer = read_tokenizer(tools.tokenizer_folder, tools.family)
        self._joined = JoinedTexts(tokenizer)
        self._rules = tools.rules
        self._features = tools.features
        self._segment = sentence_splitter()
        self._type = token_type(tokenizer.vocab_size)
        # A text that speaks of [MASK] must not put a real one in the corpus: to a model it would mean something else.
        special = special_ids(tokenizer)
        self._plain = np.arange(tokenizer.vocab_size)
        self._plain[list(special.values())] = special["unk"]

    def __call__(self, documents: Sequence[RawDocument]) -> Tokenised:
        sentences = [split_document(document.text, document.language, self._segment) for document in documents]
        arrays: list[npt.NDArray[np.intp]] = []
        lengths: list[npt.NDArray[np.intp]] = []
        for texts in _chunks(chain.from_iterable(sentences)):
            if self._rules != "none":
                texts = [normalise(text, self._rules) for text in texts]
            ids, sizes = self._joined.ids(texts)
            arrays.append(ids)
            lengths.append(sizes)
        tokens = self._plain[np.concatenate(arrays)] if arrays else np.zeros(0, np.intp)

        length = np.concatenate(lengths) if lengths else np.zeros(0, np.intp)
        owner = np.repeat(np.arange(len(documents)), [len(each) for each in sentences])
        owner, length = owner[length > 0], length[length > 0]
        starts = np.cumsum(length) - length
        return Tokenised(
            tokens=tokens.astype(self._type),
            word_starts=word_starts(tokens, starts, self._features),
            sentences=starts,
            document_sentences=np.bincount(owner, minlength=len(documents)),
            document_tokens=np.bincount(owner, length, minlength=len(documents)).astype(np.int64),
            characters=np.array([len(document.text) for document in documents], np.int64),
        )


def _chunks(texts: Iterator[str]) -> Iterator[list[str]]:
    held: list[str] = []
    size = 0
    for text in texts:
        held.append(text)
        size += len(text)
        if size >= CHUNK:
            yield held
            held, size = [], 0
    if held:
        yield held


def special_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """The ids that pretraining needs; a tokenizer without one of them cannot make a store."""
    found = {
        "pad": tokenizer.pad_id,
        "unk": tokenizer.unk_id,
        "cls": tokenizer.cls_id,
        "sep": tokenizer.sep_id,
        "mask": tokenizer.mask_id,
    }
    ids: dict[str, int] = {}
    for role, index in found.items():
        if index is None:
            raise InputError(
                f"the tokenizer has no {role} token, which pretraining needs; litebert tokenizer train adds it"
            )
        ids[role] = index
    return ids


_at_work: DocumentTokeniser | None = None


def start_worker(tools: Tools) -> None:
    """Make a process ready for ``tokenise``."""
    global _at_work
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
    _at_work = DocumentTokeniser(tools)


def tokenise(documents: Sequence[RawDocument]) -> Tokenised:
    """The work of one task."""
    assert _at_work is not None
    return _at_work(documents)
