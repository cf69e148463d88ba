"""What a token may look at in a layer, as one word: ``full``, ``local(256)``, ``block(512)``, ``local(256)+global``.

In a layer of ``local(W)`` a token sees W tokens on either side, in one of ``block(B)`` those of its own block of B
(every second layer begins with half a block, so that neighbouring blocks exchange what they know). With ``+global`` the
first token sees all and is seen by all, with ``+global(N)`` the first N; windows and blocks are of the other tokens.
Several words after another, ``local(256)+global,full``, repeat over the depths. No torch here.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from litebert.errors import InputError

_WORD = re.compile(r"full|(local|block)\((\d{1,7})\)(\+global(?:\((\d{1,4})\))?)?")
EXAMPLES = "full, local(256), block(512), local(256)+global or block(512)+global(8)"


@dataclass(frozen=True)
class Pattern:
    """What a token sees in one layer."""

    kind: Literal["full", "local", "block"] = "full"
    size: int = 0  # tokens on either side, or of a block
    first: int = 0  # how many of the first tokens are global
    shifted: bool = False  # whether the first block has half the size

    def sees_all(self, length: int) -> bool:
        """Whether every token of a sequence of at most this length sees all of it."""
        if self.kind == "full":
            return True
        others = max(length - self.first, 0)
        return others <= (self.size + 1 if self.kind == "local" else self.size // 2 if self.shifted else self.size)

    @property
    def opening_gap(self) -> int:
        """How many tokens the first block has fewer than the others."""
        return self.size - self.size // 2 if self.shifted else 0

    def mean_seen(self, length: int) -> float:
        """How many tokens one token of a sequence of this length sees on average."""
        if self.sees_all(length):
            return float(length)
        glob, others = min(self.first, length), length - min(self.first, length)
        if self.kind == "local":
            pairs = others * (2 * self.size + 1) - self.size * (self.size + 1)
        else:
            whole, rest = divmod(others - self._opening(others), self.size)
            pairs = self._opening(others) ** 2 + whole * self.size**2 + rest**2
        return (pairs + 2 * glob * length - glob * glob) / length

    def _opening(self, others: int) -> int:
        """The size of a first block that is smaller than the others."""
        return min(others, self.size // 2) if self.shifted else 0


FULL = Pattern()


@lru_cache(maxsize=256)
def patterns_of(words: str, num_layers: int) -> tuple[Pattern, ...]:
    """What tokens see in each layer."""
    each = [_parse(word, words) for word in words.split(",")]
    found = [each[depth % len(each)] for depth in range(num_layers)]
    return tuple(
        Pattern(pattern.kind, pattern.size, pattern.first, pattern.kind == "block" and depth % 2 == 1)
        for depth, pattern in enumerate(found)
    )


def kept_words(words: str, num_layers: int, kept: tuple[int, ...]) -> str:
    """The words for a model that keeps these layers, counted from 1; one where all are the same."""
    each = [word.strip() for word in words.split(",")]
    found = [each[(layer - 1) % len(each)] for layer in kept]
    return found[0] if len(set(found)) == 1 else ",".join(found)


def _parse(word: str, words: str) -> Pattern:
    match = _WORD.fullmatch(word.strip())
    size = int(match[2] or 1) if match else 0
    if match is None or size < 1 or match[4] == "0" or (match[1] == "block" and size < 2):
        raise InputError(f"attention is '{words}' but must be {EXAMPLES}, or several of these separated by commas")
    if match[1] is None:
        return FULL
    kind: Literal["local", "block"] = "local" if match[1] == "local" else "block"
    return Pattern(kind, size, int(match[4] or 1) if match[3] else 0)
