"""The inputs of a model as flat arrays: ids and segments of every input laid end to end, and the targets beside them.

What an item becomes is up to its kind of task (``kinds``): one input, one for each option, one for each window of a
long passage. Any tokenizer will do. No torch here.

R inputs, T tokens of all of them, U units of learning, L labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from litebert.text.tokenizer import Encoded, Tokenizer

Integers = npt.NDArray[np.int64]
Small = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.float32]

OUTSIDE = -1  # the place, in characters, of a token that is not of the passage,
NULL = -2  # and of the one that stands for no answer
NONE_WHOLE = np.empty(0, np.int64)
NONE_REAL = np.empty(0, np.float32)


@dataclass(frozen=True)
class Inputs:
    """Every input of some items. ``starts`` has one entry more than there are inputs, the end of the last."""

    ids: Small  # (T)
    segments: Small  # (T)
    starts: Integers  # (R + 1)
    items: Integers  # (R) the number of the item that each input is of, rising
    characters: Small  # (T, 2) where a token of a passage begins and ends in it; empty where nobody asks for it

    def __len__(self) -> int:
        return len(self.items)

    @cached_property
    def lengths(self) -> Integers:
        return np.diff(self.starts)

    @cached_property
    def longest(self) -> int:
        return int(self.lengths.max(initial=0))

    def of_items(self, count: int) -> Integers:
        """(count + 1) the number of the first input of each item, and the number of inputs."""
        return np.searchsorted(self.items, np.arange(count + 1))

    def tokens_of(self, rows: Integers) -> Integers:
        """The places of all tokens of some inputs."""
        return np.concatenate([np.arange(self.starts[row], self.starts[row + 1]) for row in rows])


@dataclass(frozen=True)
class Targets:
    """Of every unit of learning: an item, or a window of a passage where that is asked about."""

    bounds: Integers  # (U + 1) the first input of each unit, then the number of inputs
    labels: Integers = field(default_factory=lambda: NONE_WHOLE)  # (U) label or option; the first token of an answer
    ends: Integers = field(default_factory=lambda: NONE_WHOLE)  # (U) the last token of the answer; else empty
    values: Numbers = field(default_factory=lambda: NONE_REAL)  # (U) numbers, or (U, L) ones and zeros; else empty
    answered: Numbers = field(default_factory=lambda: NONE_REAL)  # (U) 1 where a window holds the answer; else empty

    def __len__(self) -> int:
        return len(self.bounds) - 1


@dataclass
class Pile:
    """Inputs as they are made."""

    ids: list[list[int]] = field(default_factory=list)
    segments: list[list[int]] = field(default_factory=list)
    items: list[int] = field(default_factory=list)
    characters: list[Small] = field(default_factory=list)

    def add(self, item: int, encoded: Encoded) -> None:
        """One more input, of this item."""
        self.ids.append(encoded.ids)
        self.segments.append(encoded.segments)
        self.items.append(item)

    def inputs(self) -> Inputs:
        """All of them as arrays."""
        lengths = [len(row) for row in self.ids]
        return Inputs(
            _flat(self.ids),
            _flat(self.segments),
            np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64),
            np.asarray(self.items, np.int64),
            np.concatenate(self.characters) if self.characters else np.empty((0, 2), np.int32),
        )


class TextIds:
    """The ids of texts, each tokenised once however often it occurs."""

    def __init__(self, tokenizer: Tokenizer, texts: Sequence[str]) -> None:
        unique = list(dict.fromkeys(texts))
        self._ids = dict(zip(unique, tokenizer.ids_batch(unique), strict=True)) if unique else {}

    def __getitem__(self, text: str) -> list[int]:
        return self._ids[text]


def joined(parts: Sequence[Inputs]) -> Inputs:
    """Inputs of several parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    ends = np.cumsum([0, *(part.starts[-1] for part in parts)])
    starts = [part.starts[:-1] + begin for part, begin in zip(parts, ends[:-1], strict=True)]
    return Inputs(
        _concatenated([part.ids for part in parts], np.int32),
        _concatenated([part.segments for part in parts], np.int32),
        np.concatenate([*starts, ends[-1:]]).astype(np.int64),
        _concatenated([part.items for part in parts], np.int64),
        np.concatenate([part.characters for part in parts]) if parts else np.empty((0, 2), np.int32),
    )


def _flat(rows: Sequence[Sequence[int]]) -> Small:
    total = sum(map(len, rows))
    return np.fromiter(chain.from_iterable(rows), np.int32, count=total)


def _concatenated(arrays: Sequence[npt.NDArray[Any]], dtype: Any) -> npt.NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype)
