"""Which tokens a batch asks for: spans of whole words, of words, or tokens, at a rate that is met and without bias.

The rate is kept as a debt in tokens that runs through the segments of a batch: each adds ``rate`` times its tokens,
and spans are drawn until the debt is paid. The last span of a segment may overpay; it is kept, and the next segment
asks for less. Nothing is shortened or refused to meet the budget, so the lengths drawn are the lengths placed, and
their shares stay 6/11, 3/11, 2/11 (stopping does not look at the length to come: Wald's identity). Cutting the last
span to what is left of a budget of 15% is what makes short spans too frequent elsewhere. The spans of a segment are
placed together, uniformly over all ways that they fit, so any rate works.
"""

from typing import Any, Literal

import numba

from litebert.corpus.counter_rng import below, uniform

Masking = Literal["ngram", "whole-word", "plain"]
MASKINGS: tuple[Masking, ...] = ("ngram", "whole-word", "plain")
LONGEST_NGRAM = 3  # ALBERT, section 4.1
MASKED, RANDOM = 0.8, 0.9  # bounds of the draw: below .8 [MASK], from there below .9 a random token, else kept


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
def find_units(word_starts: Any, begin: Any, end: Any, whole_words: Any, units: Any) -> Any:
    """Write where the units (words, or tokens) of ``begin`` to ``end`` start, then ``end``; returns how many."""
    count = 0
    for position in range(begin, end):
        if not whole_words or word_starts[position] or position == begin:
            units[count] = position
            count += 1
    units[count] = end
    return count


@numba.njit(cache=True, nogil=True)
def draw_spans(stream: Any, debt: Any, words: Any, tokens: Any, longest: Any, pending: Any, spans: Any) -> Any:
    """Fill ``spans`` with the lengths, in words, that pay ``debt`` tokens in a segment; returns (count, words used).

    A length too long for what is left of the segment waits in ``pending`` for the next one, so that long spans are not
    lost to short segments; only a segment that has fewer words than ``longest`` draws among those it can hold.
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
    return count, used


@numba.njit(cache=True, nogil=True)
def replace(stream: Any, mask_id: Any, ordinary: Any, original: Any) -> Any:
    """What stands at a chosen place: 80% ``[MASK]``, 10% an ordinary token, 10% what was there."""
    draw = uniform(stream)
    if draw < MASKED:
        return mask_id
    if draw < RANDOM:
        return ordinary[below(stream, len(ordinary))]
    return original


@numba.njit(cache=True, nogil=True)
def mask_segment(
    stream: Any,
    ids: Any,
    units: Any,
    words: Any,
    spans: Any,
    num_spans: Any,
    used: Any,
    special: Any,
    mask_id: Any,
    ordinary: Any,
    positions: Any,
    targets: Any,
    count: Any,
) -> Any:
    """Place the spans over the words of a segment and replace their tokens; returns how many are chosen in all.

    Walking the words, a span starts with probability spans left / (spans left + free words left), which makes every
    arrangement equally likely. A special token inside a span (an unknown character) is left as it is.
    """
    word, placed, free = 0, 0, words - used
    while placed < num_spans:
        if below(stream, num_spans - placed + free) >= num_spans - placed:
            word, free = word + 1, free - 1
            continue
        begin, end = units[word], units[word + spans[placed]]
        word, placed = word + spans[placed], placed + 1
        if count + end - begin > len(positions):
            continue  # only where the caller's arrays are of a fixed size, which leaves room to spare
        for position in range(begin, end):
            original = ids[position]
            if special[original]:
                continue
            positions[count], targets[count] = position, original
            ids[position] = replace(stream, mask_id, ordinary, original)
            count += 1
    return count
