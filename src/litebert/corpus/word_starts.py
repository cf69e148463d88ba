"""Which tokens begin a word, for masks that never split one. The piece alone cannot say; its neighbours matter.

- A word begins where the tokenizer marks it ('▁', no '##', 'Ġ'): punctuation belongs to the word it is written
  against, and so does an unknown piece.
- In scripts without spaces (Han, kana, Thai, ..., and their punctuation) every piece is a word, and so is what comes
  right after one: in 東京Tokyo the Latin part is a word of its own, however many pieces it has.
- Korean words are parted by spaces only: between two spaces with Hangul in it, all is one word, 한국(韓國)은 too.
- A bare '▁' is no word: it belongs to the piece after it.
- A sentence begins a word.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from litebert.text.tokenizer import Marking, is_unspaced
from litebert.text.tokenizer_files import Tokenizer

MARKED, UNSPACED_FIRST, UNSPACED_LAST, HANGUL, BARE = (np.uint8(1 << bit) for bit in range(5))

# What East Asian text puts between words, none of it a letter: 、。「」・ and the full-width ，．（）！？
_UNSPACED_PUNCTUATION = ((0x3000, 0x303F), (0xFF01, 0xFF0F), (0xFF1A, 0xFF20), (0xFF3B, 0xFF40), (0xFF5B, 0xFF65))
_HANGUL = ((0x1100, 0x11FF), (0x3130, 0x318F), (0xA960, 0xA97F), (0xAC00, 0xD7FF))
# First bytes of UTF-8 for U+3000..U+9FFF and for Hangul syllables, for pieces that are parts of a character.
_UNSPACED_LEAD = range(0xE3, 0xEA)
_HANGUL_LEAD = range(0xEA, 0xEE)


def word_features(tokenizer: Tokenizer) -> npt.NDArray[np.uint8]:
    """What there is to know of every id's piece, as bits."""
    marking = tokenizer.marking
    special = {tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id}
    table = np.zeros(tokenizer.vocab_size, np.uint8)
    for index in range(len(table)):
        if index in special:
            table[index] = MARKED
        elif index == tokenizer.unk_id:
            # In wordpiece it stands for a word; elsewhere for some characters of one.
            table[index] = MARKED if marking in ("wordpiece", "whole") else 0
        else:
            table[index] = piece_features(tokenizer.piece(index), marking)
    return table


def piece_features(piece: str, marking: Marking) -> np.uint8:
    """The bits of one piece."""
    if marking == "whole":
        return MARKED
    marked, data = _bytes_of(piece, marking)
    features = MARKED if marked else np.uint8(0)
    if not data:
        return features | BARE if marked else features
    if data.isascii():
        return features
    text = data.decode("utf-8", "replace")
    if _unspaced(text[0]) or (text[0] == "\ufffd" and data[0] in _UNSPACED_LEAD):
        features |= UNSPACED_FIRST
    if _unspaced(text[-1]):
        features |= UNSPACED_LAST
    if any(map(_is_hangul, text)) or (text[0] == "\ufffd" and data[0] in _HANGUL_LEAD):
        features |= HANGUL
    return features


def word_starts(
    tokens: npt.NDArray[np.intp], sentences: npt.NDArray[np.intp], features: npt.NDArray[np.uint8]
) -> npt.NDArray[np.uint8]:
    """1 for every token that begins a word; ``sentences`` are the tokens that begin a sentence, 0 the first."""
    if not len(tokens):
        return np.zeros(0, np.uint8)
    own = features[tokens]
    starts = (own & MARKED) != 0
    starts[sentences] = True
    before = np.zeros_like(own)
    before[1:] = own[:-1]
    unspaced = ((own & UNSPACED_FIRST) | (before & UNSPACED_LAST)) != 0
    if unspaced.any():
        if (own & HANGUL).any():
            firsts = np.flatnonzero(starts)
            korean = np.bitwise_or.reduceat(own & HANGUL, firsts) != 0
            unspaced &= ~np.repeat(korean, np.diff(firsts, append=len(own)))
        after_bare = (before & BARE) != 0
        starts |= unspaced & ~after_bare
    return starts.astype(np.uint8)


def _bytes_of(piece: str, marking: Marking) -> tuple[bool, bytes]:
    """Whether a piece is marked as the beginning of a word, and the bytes of text it stands for."""
    if marking == "wordpiece":
        continues = piece.startswith("##") and len(piece) > 2
        return not continues, (piece[2:] if continues else piece).encode()
    if marking == "byte-level":
        data = bytes(_BYTES[sign] for sign in piece if sign in _BYTES)
        return data[:1] in (b" ", b"\n", b"\t"), data.lstrip(b" \n\t")
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):  # byte fallback
        return False, bytes([int(piece[3:5], 16)])
    return piece.startswith("▁"), piece.lstrip("▁").encode()


def _byte_signs() -> dict[str, int]:
    """How byte-level vocabularies spell bytes: as the character of that number, or from 256 on where it is unseen."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    unseen = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + place): byte for place, byte in enumerate(unseen)}


_BYTES = _byte_signs()


def _within(character: str, ranges: Sequence[tuple[int, int]]) -> bool:
    point = ord(character)
    return any(first <= point <= last for first, last in ranges)


def _unspaced(character: str) -> bool:
    return is_unspaced(character) or _within(character, _UNSPACED_PUNCTUATION)


def _is_hangul(character: str) -> bool:
    return _within(character, _HANGUL)
