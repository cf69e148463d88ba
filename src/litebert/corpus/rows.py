"""One batch as a flat row of tokens: the text of its inputs with special tokens around it, and masks over it."""

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from litebert.corpus.masking import draw_spans, find_units, mask_segment, mean_overpay
from litebert.corpus.pairs import LABEL, SECOND_SIZE, SECOND_START, SIZE, START, UNLABELLED

Indices = npt.NDArray[np.int32]


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """T tokens of S sequences, one after the other, of which M are to be predicted.

    With fixed shapes the row is padded: T is the budget and the tail is cut into dummy sequences of ``pad`` no longer
    than ``length``; ``starts`` repeats its last value; labels and targets of what is padded are -100; padded
    ``mask_positions`` are 0. The ``num_`` fields count what is real.
    """

    epoch: int
    index: int
    ids: Indices  # T
    segments: Indices  # T: 0 for [CLS] x1 [SEP], 1 for x2 [SEP]
    positions: Indices  # T: from 0 in each sequence
    word_starts: npt.NDArray[np.uint8]  # T: 1 where a word of the text begins
    starts: Indices  # S + 1: where each sequence starts, then where the last one ends
    order_labels: Indices  # S: 0 in order (sop) or next (nsp), 1 swapped or random, -100 no pair
    mask_positions: Indices  # M, ascending
    mask_targets: Indices  # M: the ids that were there
    ngrams: npt.NDArray[np.uint8]  # the words of each masked span, in the order of the row
    longest: int  # no sequence is longer; the setting itself where shapes are fixed
    num_tokens: int
    num_sequences: int
    num_masked: int


@numba.njit(cache=True, nogil=True)
def _put_text(tokens: Any, word_starts: Any, begin: Any, size: Any, ids: Any, words: Any, place: Any) -> None:
    """Copy a segment's tokens into the row; its first token begins a word even where a long sentence was cut."""
    for offset in range(size):
        ids[place + offset] = tokens[begin + offset]
        words[place + offset] = word_starts[begin + offset]
    words[place] = 1


@numba.njit(cache=True, nogil=True)
def write_inputs(
    tokens: Any,
    word_starts: Any,
    inputs: Any,
    chosen: Any,
    ends: Any,
    ids: Any,
    segments: Any,
    positions: Any,
    words: Any,
    starts: Any,
    labels: Any,
) -> Any:
    """Write the chosen inputs one after the other; ``ends`` = ids of ([CLS], [SEP]). Returns the tokens written."""
    place = 0
    for number in range(len(chosen)):
        row = inputs[chosen[number]]
        begin = place
        starts[number], labels[number] = begin, row[LABEL]
        ids[place], words[place] = ends[0], 0
        _put_text(tokens, word_starts, row[START], row[SIZE], ids, words, place + 1)
        place += 1 + row[SIZE]
        ids[place], words[place] = ends[1], 0
        place += 1
        segments[begin:place] = 0
        if row[SECOND_SIZE] > 0:
            middle = place
            _put_text(tokens, word_starts, row[SECOND_START], row[SECOND_SIZE], ids, words, place)
            place += row[SECOND_SIZE]
            ids[place], words[place] = ends[1], 0
            place += 1
            segments[middle:place] = 1
        for position in range(begin, place):
            positions[position] = position - begin
    starts[len(chosen)] = place
    return place


@numba.njit(cache=True, nogil=True)
def write_masks(
    stream: Any,
    inputs: Any,
    chosen: Any,
    ids: Any,
    words: Any,
    rate: Any,
    longest: Any,
    whole_words: Any,
    special: Any,
    mask_id: Any,
    ordinary: Any,
    positions: Any,
    targets: Any,
    ngrams: Any,
) -> Any:
    """Mask the segments of a row that ``write_inputs`` wrote; returns (tokens chosen, spans)."""
    units = np.empty(len(ids) + 1, np.int64)
    spans = np.empty(len(ids) + 1, np.int64)
    pending = np.zeros(1, np.int64)
    debt, paid, count, num_spans, place = 0.0, False, 0, 0, 0
    for number in range(len(chosen)):
        row = inputs[chosen[number]]
        for column in (SIZE, SECOND_SIZE):
            size = row[column]
            if size == 0:
                continue
            begin = place + 1 if column == SIZE else place
            place = begin + size + 1
            maskable = 0
            for position in range(begin, begin + size):
                maskable += not special[ids[position]]
            num_words = find_units(words, begin, begin + size, whole_words, units)
            if not paid:  # what the last span of a batch overpays on average is taken off in advance
                debt, paid = -mean_overpay(longest) * maskable / num_words, True
            debt += rate * maskable
            drawn, used = draw_spans(stream, debt, num_words, maskable, longest, pending, spans)
            for span in range(drawn):
                ngrams[num_spans + span] = spans[span]
            num_spans += drawn
            before = count
            count = mask_segment(
                stream, ids, units, num_words, spans, drawn, used, special, mask_id, ordinary, positions, targets, count
            )
            debt -= count - before
    return count, num_spans


@numba.njit(cache=True, nogil=True)
def write_padding(
    pad_id: Any,
    length: Any,
    ids: Any,
    segments: Any,
    positions: Any,
    words: Any,
    starts: Any,
    labels: Any,
    used: Any,
    count: Any,
) -> None:
    """Fill a fixed row from ``used`` on with dummy sequences, and ``starts`` and ``labels`` from ``count`` on."""
    for position in range(used, len(ids)):
        ids[position], segments[position], words[position] = pad_id, 0, 0
        positions[position] = (position - used) % length
    for number in range(count, len(labels)):
        labels[number] = UNLABELLED
        starts[number + 1] = min(starts[number] + length, len(ids))
