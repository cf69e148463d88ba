"""Many short texts through the tokenizer library in few calls: joined by a special token, cut apart again at its id.

The library has a cost for every text that it is given, and a corpus is made of short sentences. It cuts special tokens
out of a text before it does anything else and treats what lies between two of them as a text of its own, so the ids
there are those of the sentence alone. Where that is not so (a tokenizer that treats the first stretch differently, a
text that spells the special token itself) the texts are given one by one: the ids never depend on the joining.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from litebert.text.tokenizer import Tokenizer

JOINED = 1 << 11  # characters of a joined text; more gains nothing and takes memory


class JoinedTexts:
    """A tokenizer for many short texts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._separator = tokenizer.separator

    def ids(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """The ids of all texts in one row, as ``Tokenizer.ids`` gives them, and how many each text has."""
        if self._separator is None:
            return self._one_by_one(texts)
        token, index = self._separator
        ids = _row(self._tokenizer.ids_batch(list(_join(texts, token))))
        ends = np.flatnonzero(ids == index)
        if len(ends) != len(texts):  # one of the texts spells the separator
            return self._one_by_one(texts)
        return np.delete(ids, ends), np.diff(ends, prepend=-1) - 1

    def _one_by_one(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        ids = self._tokenizer.ids_batch(texts)
        return _row(ids), np.array([len(each) for each in ids], np.intp)


def _row(ids: Sequence[list[int]]) -> npt.NDArray[np.intp]:
    return np.array(list(chain.from_iterable(ids)), np.intp)


def _join(texts: Sequence[str], token: str) -> Iterator[str]:
    """Texts of about ``JOINED`` characters, with the token after each of those they are made of."""
    first, size = 0, 0
    for place, text in enumerate(texts):
        size += len(text)
        if size >= JOINED or place == len(texts) - 1:
            yield token.join([*texts[first : place + 1], ""])
            first, size = place + 1, 0
