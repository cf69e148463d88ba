"""Sentences of test sets that stand in a text: what a model is trained on must not hold what it is measured with.

A sentence is found where its words (letters and digits, lower case) follow each other in a paragraph. To be fast, a
paragraph is searched only for sentences whose rarest word it has.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

WORD = re.compile(r"[a-z0-9]+")
SENTENCE = re.compile(r"(?<=[.!?])\s+")
FEWEST_WORDS = 8  # shorter ones ("I do not know what you mean") stand anywhere


def words_of(text: str) -> list[str]:
    """The words of a text as they are compared."""
    return WORD.findall(text.lower())


class TestSentences:
    """The sentences to look for; ``common`` is a sample of text that shows which words are frequent."""

    __test__ = False  # not a class of tests

    def __init__(self, texts: Iterable[str], common: Iterable[str]) -> None:
        frequency = Counter(word for text in common for word in words_of(text))
        self._by_word: dict[str, list[str]] = defaultdict(list)
        for sentence in {" ".join(words_of(part)) for text in texts for part in (text, *SENTENCE.split(text))}:
            words = sentence.split()
            if len(words) >= FEWEST_WORDS:
                self._by_word[min(words, key=lambda word: (frequency[word], word))].append(f" {sentence} ")
        self._rarest = frozenset(self._by_word)

    def __len__(self) -> int:
        return sum(map(len, self._by_word.values()))

    def found_in(self, paragraph: str) -> bool:
        """Whether a paragraph holds any of them."""
        words = words_of(paragraph)
        hits = self._rarest.intersection(words)
        if not hits:
            return False
        line = f" {' '.join(words)} "
        return any(sentence in line for word in hits for sentence in self._by_word[word])


def texts_of_tables(folders: Iterable[Path]) -> set[str]:
    """Every cell with several words in the .tsv and .txt tables and .jsonl files below some folders."""
    found: set[str] = set()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".tsv", ".txt", ".csv", ".jsonl") and path.is_file():
                for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                    found.update(cell for cell in line.split("\t") if cell.count(" ") >= FEWEST_WORDS - 1)
    return found
