"""How well a tokenizer fits a text: tokens per word, tokens per character, and how many are unknown."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from litebert.text.documents import lines_of
from litebert.text.tokenizer import Tokenizer


@dataclass(slots=True)
class Fertility:
    """Counts over a text; words are what white space parts, which says little for Chinese and Japanese."""

    documents: int = 0
    words: int = 0
    characters: int = 0
    tokens: int = 0
    unknown: int = 0

    @property
    def per_word(self) -> float:
        """Tokens per word."""
        return self.tokens / self.words if self.words else 0.0

    @property
    def per_character(self) -> float:
        """Tokens per character, white space not counted."""
        return self.tokens / self.characters if self.characters else 0.0

    @property
    def unknown_share(self) -> float:
        """The share of tokens that are the unknown token."""
        return self.unknown / self.tokens if self.tokens else 0.0


def measure_fertility(tokenizers: list[Tokenizer], texts: Iterable[str]) -> list[Fertility]:
    """The same documents seen by each tokenizer."""
    results = [Fertility() for _ in tokenizers]
    texts = iter(texts)
    while group := list(islice(texts, 32)):
        lines = [line for text in group for line in lines_of(text)]
        words = [word for line in lines for word in line.split()]
        for tokenizer, result in zip(tokenizers, results, strict=True):
            ids = tokenizer.ids_batch(lines)
            result.documents += len(group)
            result.words += len(words)
            result.characters += sum(map(len, words))
            result.tokens += sum(map(len, ids))
            if tokenizer.unk_id is not None:
                result.unknown += sum(row.count(tokenizer.unk_id) for row in ids)
    return results
