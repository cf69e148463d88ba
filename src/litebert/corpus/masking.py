"""Which tokens a batch predicts: spans of words, whole words or single tokens, at an exact rate and without bias.

The rate is kept as a debt in tokens that runs through the segments of a batch: each segment adds ``rate`` times its
tokens, and spans are drawn until the debt is paid. The last span of a segment may overpay; it is kept, and the next
segment masks less. No span is shortened or rejected to meet the budget, so the lengths drawn are the lengths placed,
and their shares stay 6/11, 3/11, 2/11 (stopping does not look at the next length: Wald's identity). Other
implementations cut the last span to what is left of a budget of 15%, which makes short spans too frequent. The spans of
a segment are placed together, uniformly over all arrangements that fit, so any rate works.

Arguments are annotated ``Any`` where numba compiles the function: its types are those of the arrays passed in.
"""

from typing import Any, NamedTuple

import numba
import numpy as np

from litebert.corpus.counter_rng import below, uniform
from litebert.corpus.pairs import SECOND_SIZE, SIZE

LONGEST_NGRAM = 3  # ALBERT, section 4.1
MASKED, RANDOM = 0.8, 0.9  # bounds of the draw: below .8 [MASK], from there below .9 a random token, else kept


class MaskRules(NamedTuple):
    """How tokens are chosen and what replaces them."""

    rate: float  # share of tokens to predict
    longest: int  # maximum words of a span
    whole_words: bool  # False: every token counts as a word
    mask_id: int
    special: Any  # (V) bool: ids that are never masked
    ordinary: Any  # int32: the other ids, which random replacements are drawn from


class Masks(NamedTuple):
    """Arrays that ``write_masks`` fills from the front."""

    positions: Any
    targets: Any
    ngrams: Any  # words of each span


@numba.njit(cache=True, nogil=True)
def draw_words(stream: Any, longest: Any) -> Any:
    """A span length n from 1 to ``longest`` with probability proportional to 1/n."""
    total = 0.0
    for words in range(1, longest + 1):
        total += 1.0 / words
    draw = uniform(stream) * total
    for words in range(1, longest):
        draw -= 1.0 / words
        if draw < 0:
            return words
    return longest


@numba.njit(cache=True, nogil=True)
def mean_overpay(longest: Any) -> Any:
    """By how many words a debt is overpaid on average when paid in spans: E[n^2] / 2 E[n] of renewal theory."""
    square = 0.0
    for words in range(1, longest + 1):
        square += words
    return square / (2.0 * longest)


@numba.njit(cache=True, nogil=True)
def _find_words(word_starts: Any, begin: Any, end: Any, whole_words: Any, words: Any) -> Any:
    """Write where the words (or tokens) from ``begin`` to ``end`` start, then ``end``; returns how many there are."""
    count = 0
    for position in range(begin, end):
        if not whole_words or word_starts[position] or position == begin:
            words[count] = position
            count += 1
    words[count] = end
    return count


@numba.njit(cache=True, nogil=True)
def _draw_spans(stream: Any, debt: Any, words: Any, tokens: Any, longest: Any, pending: Any, spans: Any) -> Any:
    """Fill ``spans`` with lengths, in words, that pay ``debt`` tokens in a segment; returns how many.

    A length too long for the rest of the segment waits in ``pending`` for the next one, so that long spans are not lost
    to short segments; only a segment that has fewer words than ``longest`` draws among the lengths that it can hold.
    """
    count, used = 0, 0
    limit = min(longest, words)
    while debt > 0 and used < words:
        length = pending[0] if 0 < pending[0] <= limit else draw_words(stream, limit)
        if limit == longest:
            pending[0] = length if used + length > words else 0
        if used + length > words:
            break
        spans[count] = length
        count, used = count + 1, used + length
        debt -= length * tokens / words
    return count


@numba.njit(cache=True, nogil=True)
def _replacement(stream: Any, rules: Any, original: Any) -> Any:
    """What stands at a chosen position: 80% ``[MASK]``, 10% an ordinary token, 10% the original."""
    draw = uniform(stream)
    if draw < MASKED:
        return rules.mask_id
    if draw < RANDOM:
        return rules.ordinary[below(stream, len(rules.ordinary))]
    return original


@numba.njit(cache=True, nogil=True)
def _mask_segment(stream: Any, ids: Any, words: Any, spans: Any, rules: Any, masks: Any, count: Any) -> Any:
    """Place the spans over the words of a segment and replace their tokens; returns the masked tokens so far.

    Walking the words, a span starts with probability spans left / (spans left + free words left), which makes every
    arrangement equally likely. A special token inside a span (an unknown character) stays.
    """
    word, placed, free = 0, 0, len(words) - 1 - spans.sum()
    while placed < len(spans):
        if below(stream, len(spans) - placed + free) >= len(spans) - placed:
            word, free = word + 1, free - 1
            continue
        begin, end = words[word], words[word + spans[placed]]
        word, placed = word + spans[placed], placed + 1
        if count + end - begin > len(masks.positions):
            continue  # only with arrays of fixed size, which have room to spare
        for position in range(begin, end):
            original = ids[position]
            if rules.special[original]:
                continue
            masks.positions[count], masks.targets[count] = position, original
            ids[position] = _replacement(stream, rules, original)
            count += 1
    return count


@numba.njit(cache=True, nogil=True)
def write_masks(stream: Any, inputs: Any, ids: Any, word_starts: Any, rules: Any, masks: Any) -> Any:
    """Mask the segments of inputs that lie one after the other in ``ids``; returns (tokens masked, spans)."""
    words = np.empty(len(ids) + 1, np.int64)
    spans = np.empty(len(ids) + 1, np.int64)
    pending = np.zeros(1, np.int64)
    debt, first, count, num_spans, place = 0.0, True, 0, 0, 0
    for row in inputs:
        for column in (SIZE, SECOND_SIZE):
            size = row[column]
            if size == 0:
                continue
            begin = place + 1 if column == SIZE else place
            place = begin + size + 1
            maskable = 0
            for position in range(begin, begin + size):
                maskable += not rules.special[ids[position]]
            num_words = _find_words(word_starts, begin, begin + size, rules.whole_words, words)
            if first:  # what the last span of a batch overpays on average is subtracted in advance
                debt, first = -mean_overpay(rules.longest) * maskable / num_words, False
            debt += rules.rate * maskable
            drawn = _draw_spans(stream, debt, num_words, maskable, rules.longest, pending, spans)
            for span in range(drawn):
                masks.ngrams[num_spans + span] = spans[span]
            num_spans += drawn
            before = count
            count = _mask_segment(stream, ids, words[: num_words + 1], spans[:drawn], rules, masks, count)
            debt -= count - before
    return count, num_spans
