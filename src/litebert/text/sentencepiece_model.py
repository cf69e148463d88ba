"""A SentencePiece ``.model`` file, read as what it is: a protocol buffer of pieces, scores and a character map.

Only the few fields that decide ids are read, with a reader of the wire format small enough not to need a dependency.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from litebert.errors import InputError

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5  # wire types
UNIGRAM = 1  # the first of TrainerSpec.ModelType
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4  # of SentencePiece.Type


@dataclass(frozen=True, slots=True)
class Piece:
    """One entry of the vocabulary; ``kind`` as in the SentencePiece format (1 normal, 2 unknown, 3 control, ...)."""

    text: str
    score: float
    kind: int


@dataclass(frozen=True, slots=True)
class SentencePieceModel:
    """What of a model file decides ids."""

    pieces: list[Piece]
    unk_id: int
    model_type: int
    character_map: bytes  # the compiled normalisation rules; empty when there are none


def read_sentencepiece_model(path: Path) -> SentencePieceModel:
    """The pieces and the normalisation of a ``.model`` file."""
    try:
        return _parse_model(path.read_bytes())
    except (ValueError, IndexError, struct.error, OverflowError) as error:
        raise InputError(f"{path} is not a SentencePiece model, or is damaged ({error})") from None


def _parse_model(data: bytes) -> SentencePieceModel:
    pieces: list[Piece] = []
    unk_id, model_type, character_map = 0, UNIGRAM, b""
    for number, value in _fields(data):
        if number == 1:
            pieces.append(_parse_piece(_as_bytes(value)))
        elif number == 2:  # TrainerSpec
            settings = dict(_fields(_as_bytes(value)))
            unk_id = _as_int(settings.get(40, 0))
            model_type = _as_int(settings.get(3, UNIGRAM))
        elif number == 3:  # NormalizerSpec
            character_map = _as_bytes(dict(_fields(_as_bytes(value))).get(2, b""))
    if not pieces:
        raise ValueError("it holds no pieces")
    return SentencePieceModel(pieces, unk_id, model_type, character_map)


def _parse_piece(data: bytes) -> Piece:
    fields = dict(_fields(data))
    score = struct.unpack("<f", _as_bytes(fields.get(2, bytes(4))))[0]
    return Piece(_as_bytes(fields.get(1, b"")).decode("utf-8"), score, _as_int(fields.get(3, NORMAL)))


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The numbered fields of one message: numbers for varints, bytes for everything else."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire == LENGTH:
            size, position = _varint(data, position)
        elif wire in (FIXED32, FIXED64):
            size = 4 if wire == FIXED32 else 8
        else:
            raise ValueError(f"wire type {wire} at byte {position}")
        if number == 0 or position + size > len(data):
            raise ValueError(f"field {number} runs past the end at byte {position}")
        yield number, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A base-128 number, least significant group first."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError(f"a number that does not end at byte {position}")


def _as_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where text was expected")
    return value


def _as_int(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("text where a number was expected")
    return value
