"""Guesses for the gaps of texts, and how a piece of a word reads where it stands."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from litebert.nn.layout import Layout
from litebert.nn.network import Network
from litebert.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Guess:
    """A piece for a gap: as a person reads it, its id, how likely the model thinks it is, and the word it makes."""

    token: str
    id: int
    probability: float
    word: str = ""  # with the pieces beside the gap that belong to the same word


def best_pieces(
    network: Network,
    packed: tuple[Tensor, Layout, Tensor | None],
    places: Tensor,
    top: int,
    depth: int | None,
) -> list[list[tuple[int, float]]]:
    """The ``top`` likeliest ids, with their probabilities, at each of these places of a packed batch."""
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
