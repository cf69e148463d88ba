"""From items to the inputs of a model: ids and segments of every input, laid end to end in flat arrays.

An example is one input, a question with options one for each of them, a question about a long passage one for each
window of it. Any tokenizer will do. No torch here.

R inputs, T tokens of all of them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from litebert.errors import InputError
from litebert.tasks.examples import Choice, Example, Item, Question
from litebert.text.tokenizer import Encoded, Tokenizer

Integers = npt.NDArray[np.int64]
Small = npt.NDArray[np.int32]

CHUNK = 2048  # items whose texts are tokenised at once
OUTSIDE = -1  # the place, in characters, of a token that is not of the passage,
NULL = -2  # and of the one that stands for no answer


@dataclass(frozen=True, kw_only=True)
class EncodingSettings:
    """How long inputs may be, and how windows over a long passage lie."""

    length: int = 128
    stride: int = 128  # tokens from the start of one window to that of the next
    question: int = 64  # the most tokens of a question that is asked about windows

    def __post_init__(self) -> None:
        if self.length < 8:
            raise InputError(f"length is {self.length} but inputs must have room for 8 tokens or more")
        if self.stride < 1 or self.question < 1:
            raise InputError(f"stride ({self.stride}) and question ({self.question}) must be 1 token or more")


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


@dataclass
class _Pile:
    """Inputs as they are made."""

    ids: list[list[int]] = field(default_factory=list)
    segments: list[list[int]] = field(default_factory=list)
    items: list[int] = field(default_factory=list)
    characters: list[Small] = field(default_factory=list)

    def add(self, item: int, encoded: Encoded) -> None:
        self.ids.append(encoded.ids)
        self.segments.append(encoded.segments)
        self.items.append(item)

    def inputs(self) -> Inputs:
        lengths = [len(row) for row in self.ids]
        return Inputs(
            _flat(self.ids),
            _flat(self.segments),
            np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64),
            np.asarray(self.items, np.int64),
            np.concatenate(self.characters) if self.characters else np.empty((0, 2), np.int32),
        )


def encode(
    items: Sequence[Item],
    tokenizer: Tokenizer,
    settings: EncodingSettings,
    progress: Callable[[int], None] = lambda _: None,
) -> Inputs:
    """The inputs of all items, in their order; ``progress`` is told how many items are done."""
    if tokenizer.cls_id is None or tokenizer.sep_id is None:
        raise InputError("this model's tokenizer has no tokens to begin and end an input with; use another model")
    parts = []
    for first in range(0, len(items), CHUNK):
        pile = _Pile()
        some = list(enumerate(items[first : first + CHUNK], start=first))
        _examples(pile, [(n, item) for n, item in some if isinstance(item, Example)], tokenizer, settings)
        _choices(pile, [(n, item) for n, item in some if isinstance(item, Choice)], tokenizer, settings)
        _questions(pile, [(n, item) for n, item in some if isinstance(item, Question)], tokenizer, settings)
        parts.append(pile.inputs())
        progress(first + len(some))
    return joined(parts)


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


def _examples(
    pile: _Pile, items: Sequence[tuple[int, Example]], tokenizer: Tokenizer, settings: EncodingSettings
) -> None:
    """One text or two; of two the longer is cut first."""
    ids = _Ids(tokenizer, [text for _, item in items for text in (item.first, item.second) if text is not None])
    for number, item in items:
        second = None if item.second is None else ids[item.second]
        pile.add(number, tokenizer.lay_out(ids[item.first], second, settings.length))


def _choices(
    pile: _Pile, items: Sequence[tuple[int, Choice]], tokenizer: Tokenizer, settings: EncodingSettings
) -> None:
    """The passage, then question and option as one text, for each option (ALBERT appendix A.4)."""
    pairs = [(number, *pair) for number, item in items for pair in _options(item)]
    ids = _Ids(tokenizer, [text for _, first, second in pairs for text in (first, second)])
    for number, first, second in pairs:
        pile.add(number, tokenizer.lay_out(ids[first], ids[second], settings.length))


def _options(item: Choice) -> Iterator[tuple[str, str]]:
    for option in item.options:
        if not item.passage.strip():
            yield item.question, option
        elif "_" in item.question:  # a gap to fill
            yield item.passage, item.question.replace("_", option)
        else:
            yield item.passage, f"{item.question} {option}"


def _questions(
    pile: _Pile, items: Sequence[tuple[int, Question]], tokenizer: Tokenizer, settings: EncodingSettings
) -> None:
    """The question and a window of the passage, for each window."""
    asked = _Ids(tokenizer, [item.question for _, item in items])
    passages: dict[str, tuple[list[int], Small]] = {}
    for number, item in items:
        if item.passage not in passages:
            ids, spans = tokenizer.offsets(item.passage)
            passages[item.passage] = ids, np.asarray(spans, np.int32).reshape(-1, 2)
        ids, places = passages[item.passage]
        question = asked[item.question][: settings.question]
        marks = tokenizer.lay_out([-1] * len(question), [-2]).ids
        before = marks.index(-2)
        room = settings.length - len(marks) + 1
        for begin, end in windows(len(ids), room, settings.stride):
            encoded = tokenizer.lay_out(question, ids[begin:end])
            where = np.full((len(encoded.ids), 2), OUTSIDE, np.int32)
            where[before : before + end - begin] = places[begin:end]
            where[0 if marks[0] == tokenizer.cls_id else -1] = NULL
            pile.add(number, encoded)
            pile.characters.append(where)


def windows(tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Begin and end of windows of at most ``room`` tokens, a stride apart, the last one reaching the end."""
    if room < 1:
        raise InputError("the length limit leaves no room for the passage beside the question; raise --length")
    step = min(stride, room)
    found = [(0, min(room, tokens))]
    while found[-1][1] < tokens:
        begin = found[-1][0] + step
        found.append((begin, min(begin + room, tokens)))
    return found


class _Ids:
    """The ids of texts, each tokenised once however often it occurs."""

    def __init__(self, tokenizer: Tokenizer, texts: Sequence[str]) -> None:
        unique = list(dict.fromkeys(texts))
        self._ids = dict(zip(unique, tokenizer.ids_batch(unique), strict=True)) if unique else {}

    def __getitem__(self, text: str) -> list[int]:
        return self._ids[text]


def _flat(rows: Sequence[Sequence[int]]) -> Small:
    total = sum(map(len, rows))
    return np.fromiter(chain.from_iterable(rows), np.int32, count=total)


def _concatenated(arrays: Sequence[npt.NDArray[Any]], dtype: Any) -> npt.NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype)
