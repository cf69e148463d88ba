"""Words for the masks of texts: the likeliest pieces, how they read where they stand, and lists of texts to score.

A list (a cloze test) has texts with one mask and the words that fit. An answer is its pieces, so letters are folded as
the model folds them. With one piece, which is the norm, its rank is its place among the guesses for the mask. An answer
of several pieces is looked for with as many masks: its rank is the worst place of its pieces, each among the guesses
for its own mask. Light to import: torch is imported where a network is asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from litebert.data.files import parse_json, read_text
from litebert.errors import InputError
from litebert.text.tokenizer import Encoded, Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from litebert.nn.layout import Layout
    from litebert.nn.network import Network

EVERYTHING = "all"


@dataclass(frozen=True)
class Guess:
    """A piece for a gap: as a person reads it, its id, how likely the model thinks it is, and the word it makes."""

    token: str
    id: int
    probability: float
    word: str = ""  # with the pieces beside the gap that belong to the same word


def best_pieces(
    network: "Network",
    packed: "tuple[Tensor, Layout, Tensor | None]",
    places: "Tensor",
    top: int,
    depth: int | None,
) -> list[list[tuple[int, float]]]:
    """The ``top`` likeliest ids, with their probabilities, at each of these places of a packed batch."""
    import torch

    ids, layout, kinds = packed
    if network.encoder.embeddings.mask is None:
        states = network.encoder(ids, layout, kinds, depth=depth)
    else:  # a permutation language model predicts from its query stream, which sees the text but not the gaps
        ranks = torch.full_like(ids, -1).index_fill(0, places, 0)
        states = network.encoder.two_streams(ids, layout, ranks, kinds, depth=depth)[1]
    shares = network.masked_lm(states, places).float().softmax(-1)
    best = shares.topk(min(top, shares.shape[-1]))
    return [
        list(zip(ids, values, strict=True))
        for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def gap_places(ids: Sequence[int], tokenizer: Tokenizer) -> list[int]:
    """Where the masks are."""
    return [place for place, id in enumerate(ids) if id == tokenizer.mask_id]


def guess_at(ids: Sequence[int], place: int, id: int, probability: float, tokenizer: Tokenizer) -> Guess:
    """A guess for the gap at ``place`` of an input."""
    token = tokenizer.decode([id]) or tokenizer.piece(id)
    return Guess(token, id, probability, _word(ids, place, id, tokenizer) or token)


def _word(ids: Sequence[int], place: int, id: int, tokenizer: Tokenizer) -> str:
    """The whole word that a piece is part of in this place; ``…`` where its beginning is not known."""
    first, last = place, place + 1
    begins = tokenizer.starts_word
    while not begins[id if first == place else ids[first]] and _letters(ids[first - 1], tokenizer):
        first -= 1
    while last < len(ids) and not begins[ids[last]] and _letters(ids[last], tokenizer):
        last += 1
    if not _letters(id, tokenizer):
        return ""  # a mark or a special token stands for itself
    word = tokenizer.decode([*ids[first:place], id, *ids[place + 1 : last]])
    # A byte-level vocabulary marks spaces, and there is none before the first word of a text.
    known = begins[id if first == place else ids[first]] or (tokenizer.marking == "byte-level" and first == 1)
    return word if known else f"…{word.removeprefix('##')}"


def _letters(id: int, tokenizer: Tokenizer) -> bool:
    """Whether an id is of a piece of a word, not of a special token or a mark."""
    return any(character.isalnum() for character in tokenizer.decode([id]))


class Filler(Protocol):
    """What a cloze test needs of a model."""

    @property
    def tokenizer(self) -> Tokenizer | None: ...

    def fill_encoded(
        self, inputs: Sequence[Encoded], top: int = 5, *, depth: int | None = None
    ) -> list[list[list[Guess]]]: ...


@dataclass(frozen=True, kw_only=True)
class Cloze:
    """A text with one mask, the words that are correct there, and what kind of knowledge they need."""

    text: str
    accept: tuple[str, ...]
    kind: str = ""


@dataclass(frozen=True, kw_only=True)
class Filled:
    """The model's guesses for the gap, and the best rank of an accepted answer, if there is one."""

    cloze: Cloze
    guesses: tuple[Guess, ...]
    rank: int | None


@dataclass(frozen=True, kw_only=True)
class Share:
    """The number of texts, the share whose first guess is correct, and that with a correct one among the first few."""

    items: int
    first: float
    top: float


def read_clozes(path: Path) -> list[Cloze]:
    """Texts from JSON lines: ``{"text": "She [MASK] home.", "accept": ["went"], "kind": "grammar"}``."""
    if not path.is_file():
        raise InputError(f"there is no file '{path}'; name one of JSON lines with text and accept")
    lines = [line for line in read_text(path).splitlines() if line.strip()]
    clozes = []
    for number, line in enumerate(lines, 1):
        row = parse_json(line, f"{path}, line {number}")
        try:
            clozes.append(Cloze(text=row["text"], accept=tuple(row["accept"]), kind=row.get("kind", "")))
        except (KeyError, TypeError, AttributeError):
            raise InputError(f'line {number} of {path} is not of the form {{"text": ..., "accept": [...]}}') from None
        if not clozes[-1].accept:
            raise InputError(f"line {number} of {path} accepts no answer; name one or more in accept")
    if not clozes:
        raise InputError(f"{path} is empty; it needs a line of JSON for each text")
    return clozes


def score_clozes(model: Filler, clozes: Sequence[Cloze], *, top: int = 5, depth: int | None = None) -> list[Filled]:
    """The model's guesses for every text, in order."""
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


def _pieces(model: Filler, text: str, answer: str) -> list[int]:
    """The ids of an answer where it stands behind a space, or not, as the gap does."""
    assert model.tokenizer is not None
    before = text.partition(model.tokenizer.mask_token or "")[0]
    pieces = model.tokenizer.ids(f" {answer}" if before.endswith(" ") else answer)
    if not pieces:
        raise InputError(f"'{answer}', accepted for '{text}', has no tokens in this vocabulary; remove it")
    return pieces


def _widened(one: Encoded, place: int, count: int) -> Encoded:
    """The same input with ``count`` masks in its gap."""

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
    """A text and the guesses for it, for JSON."""
    return {
        "text": one.cloze.text,
        "kind": one.cloze.kind,
        "accept": list(one.cloze.accept),
        "rank": one.rank,
        "guesses": [{"word": guess.word, "probability": guess.probability} for guess in one.guesses],
    }
