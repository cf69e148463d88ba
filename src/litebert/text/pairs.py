"""From the ids of one or two texts to one model input: cut to length, special tokens placed, segments given."""

from collections.abc import Sequence
from dataclasses import dataclass

from litebert.families.family import PairLayout


@dataclass(frozen=True, slots=True)
class Encoded:
    """One input of a model; ``segments`` has one entry a token, for single texts too."""

    ids: list[int]
    segments: list[int]


def cut_pair(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens of two texts of these lengths to keep in ``room``: the longer is cut until they are equal.

    As transformers' ``longest_first``: where both must give way the odd token goes to the longer text, and to the
    second of two equally long ones.
    """
    if first + second <= room:
        return first, second
    short, long = min(first, second), max(first, second)
    if 2 * short > room:
        short, long = room // 2, room - room // 2
    else:
        long = room - short
    return (long, short) if first > second else (short, long)


def lay_out(
    layout: PairLayout,
    cls_id: int,
    sep_id: int,
    first: Sequence[int],
    second: Sequence[int] | None = None,
    max_length: int | None = None,
) -> Encoded:
    """The input for one text, or for two, of at most ``max_length`` tokens in all."""
    slots = layout.single if second is None else layout.pair
    if max_length is not None:
        room = max_length - sum(slot.part in ("cls", "sep") for slot in slots)
        if room < 0:
            raise ValueError(f"max_length is {max_length} but the special tokens alone take {max_length - room}")
        keep, keep_second = cut_pair(len(first), len(second or ()), room)
        first = first[:keep]
        second = second[:keep_second] if second is not None else None
    parts = {"A": first, "B": second or (), "cls": (cls_id,), "sep": (sep_id,)}
    ids: list[int] = []
    segments: list[int] = []
    for slot in slots:
        part = parts[slot.part]
        ids.extend(part)
        segments.extend([slot.segment] * len(part))
    return Encoded(ids, segments)
