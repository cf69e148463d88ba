"""Sets of characters as the ``tokenizers`` library knows them, for a tokenizer in JavaScript.

Browsers have newer Unicode tables than the library, each browser its own: what is a mark, a punctuation character or a
letter differs by some hundred characters. So a page carries the sets that its tokenizer asks for, found by asking the
library about every character.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from tokenizers import normalizers, pre_tokenizers

# Every assigned character but those of planes for private use, and no halves of surrogate pairs.
POINTS = (*range(1, 0xD800), *range(0xE000, 0x32000), *range(0xE0000, 0xE0200))
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def _removed(normaliser: Any) -> Callable[[str], bool]:
    return lambda char: normaliser.normalize_str(f"a{char}a") == "aa"


def _changed(normaliser: Any) -> Callable[[str], bool]:
    return lambda char: normaliser.normalize_str(f"a{char}") != f"a{char}"


def _pieces(splitter: Any, before: str, after: str, count: int) -> Callable[[str], bool]:
    return lambda char: len(splitter.pre_tokenize_str(f"{before}{char}{after}")) == count


def _questions() -> Mapping[str, Callable[[str], bool]]:
    """What to ask the library about a character, by the name of the set."""
    bert = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    forms = {name: _changed(getattr(normalizers, name)()) for name in ("NFC", "NFD", "NFKC", "NFKD")}
    bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return {
        "mark": _removed(normalizers.StripAccents()),
        "bert mark": _removed(normalizers.BertNormalizer(**bert | {"strip_accents": True})),
        "bert control": _removed(normalizers.BertNormalizer(**bert | {"clean_text": True})),
        "punctuation": _pieces(pre_tokenizers.BertPreTokenizer(), "a", "a", 3),
        "letter": _pieces(bytes_of, "a", "", 1),
        "number": _pieces(bytes_of, "1", "", 1),
        **forms,
    }


NEEDED: Mapping[str, tuple[str, ...]] = {
    "StripAccents": ("mark",),
    "BertNormalizer": ("bert mark", "bert control", "NFD"),
    "BertPreTokenizer": ("punctuation",),
    "Punctuation": ("punctuation",),
    "ByteLevel": ("letter", "number"),
    **{name: (name,) for name in ("NFC", "NFD", "NFKC", "NFKD")},
}


def character_sets(steps: Iterable[str]) -> dict[str, str]:
    """The sets that these steps of a tokenizer ask for, by name, as ``ranges`` writes them."""
    names = dict.fromkeys(name for step in steps for name in NEEDED.get(step, ()))
    return {name: _set(name) for name in names}


@cache
def _set(name: str) -> str:
    belongs = _questions()[name]
    return ranges(point for point in POINTS if belongs(chr(point)))


def ranges(points: Iterable[int]) -> str:
    """Rising numbers as the lengths of gaps and runs in turns, in base 36: 5, 6, 9 are ``5 2 2 1``."""
    found = []
    at = 0
    for first, after in _runs(points):
        found += [first - at, after - first]
        at = after
    return " ".join(map(_base36, found))


def _runs(points: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = after = -1
    for point in points:
        if point != after:
            if first >= 0:
                yield first, after
            first = point
        after = point + 1
    if first >= 0:
        yield first, after


def _base36(number: int) -> str:
    found = ""
    while number or not found:
        number, digit = divmod(number, 36)
        found = DIGITS[digit] + found
    return found
