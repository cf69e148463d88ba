"""Which pieces of a vocabulary begin a word, as a table by id: what whole-word masking needs to know.

A piece begins a word where the tokenizer says so ('▁' in SentencePiece, no '##' in wordpiece, 'Ġ' in byte-level), and
in scripts written without spaces every piece does: there, a word is a piece.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt

Marking = Literal["metaspace", "wordpiece", "byte-level", "whole"]

# Scripts without spaces between words. Korean is not one: its words are parted by spaces.
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),  # 々〆〇
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x31F0, 0x31FF),  # Katakana extensions
    (0x3400, 0x4DBF),  # Han extension A
    (0x4E00, 0x9FFF),  # Han
    (0xF900, 0xFAFF),  # Han compatibility
    (0xFF66, 0xFF9F),  # half-width Katakana
    (0x20000, 0x3FFFF),  # Han extensions B and later
)


def is_unspaced(character: str) -> bool:
    """Whether a character belongs to a script that is written without spaces."""
    point = ord(character)
    return any(first <= point <= last for first, last in _UNSPACED)


def begins_word(piece: str, marking: Marking) -> bool:
    """Whether ``piece`` begins a word, by how its tokenizer marks that."""
    if marking == "whole":
        return True
    if marking == "byte-level":
        return piece.startswith(("Ġ", "Ċ", "ĉ"))  # space, newline and tab as byte-level tokenizers spell them
    if marking == "wordpiece":
        continues = piece.startswith("##") and len(piece) > 2
        return not continues or is_unspaced(piece[2])
    return piece.startswith("▁") or (piece != "" and is_unspaced(piece[0]))


def word_start_table(vocabulary: dict[str, int], special: set[int], marking: Marking) -> npt.NDArray[np.bool_]:
    """One flag for every id; special tokens stand alone, so they begin a word."""
    table = np.zeros(max(vocabulary.values(), default=-1) + 1, dtype=np.bool_)
    for piece, index in vocabulary.items():
        table[index] = index in special or begins_word(piece, marking)
    return table
