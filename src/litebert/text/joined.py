"""Many short texts through the tokenizer library at the least cost, with the ids that each has by itself.

The library has a cost for every text that it is given, and a corpus is made of short sentences. So they are joined by a
special token and cut apart again at its id: the library cuts special tokens out of a text before it does anything else
and treats what lies between two of them as a text of its own. And it takes a fifth of its time to normalise, where most
text needs next to nothing done: that is done here. Where either would not be sure (a tokenizer that treats the first
stretch differently, a text that spells the special token itself, a rare character) the library does it all: the ids
never depend on which way they were found.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from litebert.text.normalise import WIDENED_MEANINGS, quick_nfkc
from litebert.text.tokenizer import Tokenizer

JOINED = 1 << 10  # characters of a joined text; of longer ones, more would hold a rare character

Row = npt.NDArray[np.intp]


class JoinedTexts:
    """A tokenizer for many short texts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._separator = tokenizer.separator
        # A special token must not come about by normalising, which the library does only after looking for them.
        safe = tokenizer.normalises_safely_by("nfkc", without=WIDENED_MEANINGS)
        self._bare = tokenizer.without_normaliser() if safe else None

    def ids(self, texts: Sequence[str]) -> tuple[Row, Row]:
        """The ids of all texts in one row, as ``Tokenizer.ids`` gives them, and how many each text has."""
        if self._separator is None:
            return self._one_by_one(texts)
        token, index = self._separator
        ids = _row(self._encode(list(_join(texts, token))))
        ends = np.flatnonzero(ids == index)
        if len(ends) != len(texts):  # one of the texts spells the separator
            return self._one_by_one(texts)
        return np.delete(ids, ends), np.diff(ends, prepend=-1) - 1

    def _encode(self, texts: list[str]) -> list[list[int]]:
        """The ids of each text, normalised here where that is easy."""
        if self._bare is None:
            return self._tokenizer.ids_batch(texts)
        quick = [quick_nfkc(text) for text in texts]
        easy = iter(self._bare.ids_batch([text for text in quick if text is not None]))
        hard = iter(self._tokenizer.ids_batch([text for text, done in zip(texts, quick, strict=True) if done is None]))
        return [next(hard) if done is None else next(easy) for done in quick]

    def _one_by_one(self, texts: Sequence[str]) -> tuple[Row, Row]:
        ids = self._tokenizer.ids_batch(texts)
        return _row(ids), np.array([len(each) for each in ids], np.intp)


def _row(ids: Sequence[list[int]]) -> Row:
    return np.array(list(chain.from_iterable(ids)), np.intp)


def _join(texts: Sequence[str], token: str) -> Iterator[str]:
    """Texts of about ``JOINED`` characters, with the token after each of those they are made of."""
    first, size = 0, 0
    for place, text in enumerate(texts):
        size += len(text)
        if size >= JOINED or place == len(texts) - 1:
            yield token.join([*texts[first : place + 1], ""])
            first, size = place + 1, 0
