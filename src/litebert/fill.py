"""Texts with a gap and the words that fit it: how often one of them is the model's first choice, or among its first.

An answer is its pieces, so letters are folded as the model folds them. With one piece, which is the norm, its rank is
its place among the guesses for the gap. An answer of several pieces is looked for with as many masks in the gap: its
rank is the worst place of its pieces, each among the guesses for its own mask.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.errors import InputError
from litebert.filling import Guess, gap_places
from litebert.model import Model
from litebert.text.pairs import Encoded

EVERYTHING = "all"


@dataclass(frozen=True, kw_only=True)
class Cloze:
    """A text with one mask, the words that are right there, and what kind of knowledge they take."""

    text: str
    accept: tuple[str, ...]
    kind: str = ""


@dataclass(frozen=True, kw_only=True)
class Filled:
    """What the model said: its guesses for the gap, and the best rank of a right answer, if it has one."""

    cloze: Cloze
    guesses: tuple[Guess, ...]
    rank: int | None


@dataclass(frozen=True, kw_only=True)
class Share:
    """Of so many texts, the share whose first guess is right, and of those with a right one among the first few."""

    items: int
    first: float
    top: float


def read_clozes(path: Path) -> list[Cloze]:
    """Texts from JSON lines: ``{"text": "She [MASK] home.", "accept": ["went"], "kind": "grammar"}``."""
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except FileNotFoundError:
        raise InputError(f"there is no file '{path}'; name one of JSON lines with text and accept") from None
    clozes = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            clozes.append(Cloze(text=row["text"], accept=tuple(row["accept"]), kind=row.get("kind", "")))
        except (ValueError, KeyError, TypeError):
            raise InputError(f'line {number} of {path} is not of the form {{"text": ..., "accept": [...]}}') from None
        if not clozes[-1].accept:
            raise InputError(f"line {number} of {path} accepts no answer; name one or more in accept")
    if not clozes:
        raise InputError(f"{path} is empty; it needs a line of JSON for each text")
    return clozes


def score_clozes(model: Model, clozes: Sequence[Cloze], *, top: int = 5, depth: int | None = None) -> list[Filled]:
    """What the model says of every text, in their order."""
    assert model.tokenizer is not None
    tokenizer = model.tokenizer
    inputs = tokenizer.encode_batch([cloze.text for cloze in clozes])
    answers = [[_pieces(model, cloze.text, answer) for answer in cloze.accept] for cloze in clozes]
    asked: dict[tuple[int, int], Encoded] = {}  # by text and number of masks
    for number, (one, accepted) in enumerate(zip(inputs, answers, strict=True)):
        gaps = gap_places(one.ids, tokenizer)
        if len(gaps) != 1:
            raise InputError(f"'{clozes[number].text}' has {len(gaps)} masks but must have one {tokenizer.mask_token}")
        for count in {1, *map(len, accepted)}:
            asked[number, count] = _widened(one, gaps[0], count)
    found = dict(zip(asked, model.fill_encoded(list(asked.values()), top, depth=depth), strict=True))
    filled = []
    for number, cloze in enumerate(clozes):
        ranks = [_rank(pieces, found[number, len(pieces)]) for pieces in answers[number]]
        rank = min((rank for rank in ranks if rank is not None), default=None)
        filled.append(Filled(cloze=cloze, guesses=tuple(found[number, 1][0]), rank=rank))
    return filled


def _pieces(model: Model, text: str, answer: str) -> list[int]:
    """The ids of an answer where it stands behind a space, or not, as the gap does."""
    assert model.tokenizer is not None
    before = text.partition(model.tokenizer.mask_token or "")[0]
    pieces = model.tokenizer.ids(f" {answer}" if before.endswith(" ") else answer)
    if not pieces:
        raise InputError(f"'{answer}', accepted for '{text}', is no text that the model can read; take it out")
    return pieces


def _widened(one: Encoded, place: int, count: int) -> Encoded:
    """The same input with so many masks in its gap."""

    def widen(row: Sequence[int]) -> list[int]:
        return [*row[:place], *[row[place]] * count, *row[place + 1 :]]

    return Encoded(widen(one.ids), widen(one.segments))


def _rank(pieces: Sequence[int], guesses: Sequence[Sequence[Guess]]) -> int | None:
    """The worst place of an answer's pieces among the guesses, from 1, or None where one is not among them."""
    places = []
    for piece, row in zip(pieces, guesses, strict=True):
        found = [place for place, guess in enumerate(row, 1) if guess.id == piece]
        if not found:
            return None
        places.append(found[0])
    return max(places)


def shares(filled: Sequence[Filled]) -> dict[str, Share]:
    """The score of each kind, and of all together first."""
    kinds = dict.fromkeys(one.cloze.kind for one in filled if one.cloze.kind)
    groups = {EVERYTHING: list(filled)} | {kind: [one for one in filled if one.cloze.kind == kind] for kind in kinds}
    return {
        kind: Share(
            items=len(group),
            first=sum(one.rank == 1 for one in group) / len(group),
            top=sum(one.rank is not None for one in group) / len(group),
        )
        for kind, group in groups.items()
    }


def as_plain(one: Filled) -> dict[str, Any]:
    """A text and what was said of it, for JSON."""
    return {
        "text": one.cloze.text,
        "kind": one.cloze.kind,
        "accept": list(one.cloze.accept),
        "rank": one.rank,
        "guesses": [{"word": guess.word, "probability": guess.probability} for guess in one.guesses],
    }
