"""Documents to sentences to tokens, with word starts: what a worker process of a build does.

Word starts are for masks that never split a word. A piece alone does not decide; its neighbours matter:

- A word begins where the tokenizer marks it ('▁', no '##', 'Ġ'): punctuation belongs to the word it is written
  against, and so does an unknown piece.
- In scripts without spaces (Han, kana, Thai, ..., and their punctuation) every piece is a word, and so is what comes
  right after one: in 東京Tokyo the Latin part is a word of its own, however many pieces it has.
- Korean words are separated by spaces only: everything between two spaces that contains Hangul is one word, including
  한국(韓國)은.
- A bare '▁' is not a word: it belongs to the piece after it.
- A sentence begins a word.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from litebert.corpus.sentences import sentence_splitter, split_document
from litebert.corpus.store import token_type
from litebert.errors import InputError
from litebert.text.joined import JoinedTexts
from litebert.text.normalise import Rules, normalise
from litebert.text.tokenizer import Marking, is_unspaced
from litebert.text.tokenizer_files import Tokenizer, read_tokenizer

# Characters given to the library at once: its results are large, so more would only cost memory.
CHUNK = 1 << 16

# What is known of a vocabulary piece, as bits.
MARKED, UNSPACED_FIRST, UNSPACED_LAST, HANGUL, BARE = (np.uint8(1 << bit) for bit in range(5))

# What East Asian text puts between words, none of it a letter: 、。「」・ and the full-width ，．（）！？
_UNSPACED_PUNCTUATION = ((0x3000, 0x303F), (0xFF01, 0xFF0F), (0xFF1A, 0xFF20), (0xFF3B, 0xFF40), (0xFF5B, 0xFF65))
_HANGUL = ((0x1100, 0x11FF), (0x3130, 0x318F), (0xA960, 0xA97F), (0xAC00, 0xD7FF))
# First bytes of UTF-8 for U+3000..U+9FFF and for Hangul syllables, for pieces that are parts of a character.
_UNSPACED_LEAD = range(0xE3, 0xEA)
_HANGUL_LEAD = range(0xEA, 0xEE)


@dataclass(frozen=True, slots=True)
class RawDocument:
    """A document to tokenise and the language of its sentences."""

    text: str
    language: str


@dataclass(frozen=True, slots=True)
class Tokenised:
    """Documents one after the other; one without tokens is kept with a count of 0, so that numbering stays right."""

    tokens: npt.NDArray[np.unsignedinteger[Any]]
    word_starts: npt.NDArray[np.uint8]
    sentences: npt.NDArray[np.int64]  # where each starts in tokens
    document_sentences: npt.NDArray[np.int64]  # sentences of each document
    document_tokens: npt.NDArray[np.int64]
    characters: npt.NDArray[np.int64]  # of each document


class DocumentTokeniser:
    """A tokenizer and a sentence splitter, ready for use. ``rules`` are applied before the tokenizer's own."""

    def __init__(self, tokenizer: Tokenizer, rules: Rules, features: npt.NDArray[np.uint8]) -> None:
        self._joined = JoinedTexts(tokenizer)
        self._rules = rules
        self._features = features
        self._segment = sentence_splitter()
        self._type = token_type(tokenizer.vocab_size)
        # A text that contains "[MASK]" must not put a real one in the corpus: a model would take it for a mask.
        special = special_ids(tokenizer)
        self._plain = np.arange(tokenizer.vocab_size)
        self._plain[list(special.values())] = special["unk"]

    def __call__(self, documents: Sequence[RawDocument]) -> Tokenised:
        sentences = [split_document(document.text, document.language, self._segment) for document in documents]
        arrays: list[npt.NDArray[np.intp]] = []
        lengths: list[npt.NDArray[np.intp]] = []
        for texts in _chunks(chain.from_iterable(sentences)):
            if self._rules != "none":
                texts = [normalise(text, self._rules) for text in texts]
            ids, sizes = self._joined.ids(texts)
            arrays.append(ids)
            lengths.append(sizes)
        tokens = self._plain[np.concatenate(arrays)] if arrays else np.zeros(0, np.intp)

        length = np.concatenate(lengths) if lengths else np.zeros(0, np.intp)
        owner = np.repeat(np.arange(len(documents)), [len(each) for each in sentences])
        owner, length = owner[length > 0], length[length > 0]
        starts = np.cumsum(length) - length
        return Tokenised(
            tokens=tokens.astype(self._type),
            word_starts=word_starts(tokens, starts, self._features),
            sentences=starts,
            document_sentences=np.bincount(owner, minlength=len(documents)),
            document_tokens=np.bincount(owner, length, minlength=len(documents)).astype(np.int64),
            characters=np.array([len(document.text) for document in documents], np.int64),
        )


def _chunks(texts: Iterator[str]) -> Iterator[list[str]]:
    held: list[str] = []
    size = 0
    for text in texts:
        held.append(text)
        size += len(text)
        if size >= CHUNK:
            yield held
            held, size = [], 0
    if held:
        yield held


def special_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """The ids that pretraining needs; an error where the tokenizer lacks one."""
    ids = {role: getattr(tokenizer, f"{role}_id") for role in ("pad", "unk", "cls", "sep", "mask")}
    for role, index in ids.items():
        if index is None:
            raise InputError(
                f"the tokenizer has no {role} token, which pretraining needs; litebert tokenizer train adds it"
            )
    return ids


@dataclass
class TokeniseDocuments:
    """What a worker does, with all that it needs: it may share no disk with the build. Made ready by its first call."""

    files: Mapping[str, bytes]  # of the tokenizer's folder
    family: str
    rules: Rules
    features: npt.NDArray[np.uint8]  # from ``word_features``, made once for all workers

    @classmethod
    def of(cls, folder: Path, tokenizer: Tokenizer, rules: Rules) -> "TokeniseDocuments":
        """With the tokenizer that was saved to a folder."""
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        files = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
        return cls(files, tokenizer.family, rules, word_features(tokenizer))

    @cached_property
    def _tokeniser(self) -> DocumentTokeniser:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
        with tempfile.TemporaryDirectory() as temporary:
            for name, content in self.files.items():
                path = Path(temporary) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            tokenizer = read_tokenizer(Path(temporary), self.family)
        self.files = {}  # megabytes that nothing reads again
        return DocumentTokeniser(tokenizer, self.rules, self.features)

    def __call__(self, documents: Sequence[RawDocument]) -> Tokenised:
        return self._tokeniser(documents)


def word_features(tokenizer: Tokenizer) -> npt.NDArray[np.uint8]:
    """The bits of every piece of a vocabulary."""
    marking = tokenizer.marking
    special = {tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id}
    table = np.zeros(tokenizer.vocab_size, np.uint8)
    for index in range(len(table)):
        if index in special:
            table[index] = MARKED
        elif index == tokenizer.unk_id:
            # In wordpiece it stands for a whole word; elsewhere for some characters of one.
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
    """Whether a piece is marked as the beginning of a word, and the bytes of its text."""
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
    """How byte-level vocabularies spell bytes: as the character of that number, or from 256 on if unprintable."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTES = _byte_signs()


def _within(character: str, ranges: Sequence[tuple[int, int]]) -> bool:
    point = ord(character)
    return any(first <= point <= last for first, last in ranges)


def _unspaced(character: str) -> bool:
    return is_unspaced(character) or _within(character, _UNSPACED_PUNCTUATION)


def _is_hangul(character: str) -> bool:
    return _within(character, _HANGUL)
