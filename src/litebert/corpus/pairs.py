"""Documents cut into inputs: ``[CLS] x1 [SEP] x2 [SEP]`` for the order losses, ``[CLS] x [SEP]`` without one.

An input is as many whole sentences of one document as fit. x1 ends after a sentence drawn anew each epoch. Under
``sop`` x1 and x2 are swapped half of the time; under ``nsp`` half of the inputs exchange their x2 with one another, so
that a random x2 is distributed exactly as a real one and no text is lost or repeated. A document is cut from its front
or from its back, by a coin: cut always from the front, the first sentence of an input is the one that did not fit in
the input before, hence longer than others, and lengths alone would give the order away. For the same reason the edges
of a document are for masking only under ``sop`` unless asked otherwise: "X () is a ..." comes first, always, and "since
then ..." last. A bag of words orders 83% of the openings of Chinese Wikipedia rightly, 56% of the endings of the Korean
one, and half of what is between.
"""

from typing import Any, Literal

import numba
import numpy as np

from litebert.corpus.counter_rng import below, open_stream, uniform

Order = Literal["sop", "nsp", "none"]
NONE, SOP, NSP = range(3)
ORDER_CODES: dict[Order, int] = {"none": NONE, "sop": SOP, "nsp": NSP}

# Columns of a table of inputs. Starts are positions in the window's tokens; a size of 0 means there is no x2. DOCUMENT
# and OTHER are the documents of x1 and x2.
START, SIZE, SECOND_START, SECOND_SIZE, LABEL, DOCUMENT, OTHER = range(7)
COLUMNS = 7

UNLABELLED = -100  # what torch's cross entropy leaves out
SHORT = 0.1  # the share of inputs that aim at a length drawn uniformly
LOOK_AHEAD = 64


@numba.njit(cache=True, nogil=True)
def body_size(length: Any, order: Any) -> Any:
    """How many tokens of text an input of ``length`` tokens holds."""
    return length - 2 if order == NONE else length - 3


@numba.njit(cache=True, nogil=True)
def most_inputs(num_sentences: Any, num_tokens: Any, body: Any) -> Any:
    """No text of this size gives more inputs: two pieces of one long sentence are together longer than ``body``."""
    return num_sentences + 2 * (num_tokens // body + 1)


@numba.njit(cache=True, nogil=True)
def _find_cut(word_starts: Any, start: Any, body: Any) -> Any:
    """Where to cut a sentence that goes on beyond ``start + body``: before a word, unless one word is that long."""
    for position in range(start + body, start, -1):
        if word_starts[position]:
            return position
    return start + body


@numba.njit(cache=True, nogil=True)
def _cut_sentences(sentences: Any, word_starts: Any, begin: Any, end: Any, body: Any, units: Any) -> Any:
    """Sentences ``begin`` to ``end`` as (start, size, whole) with those over ``body`` in pieces; returns the count."""
    count = 0
    for sentence in range(begin, end):
        start, stop = np.int64(sentences[sentence]), np.int64(sentences[sentence + 1])
        whole = stop - start <= body
        while stop - start > body:
            cut = _find_cut(word_starts, start, body)
            units[count] = (start, cut - start, 0)
            count, start = count + 1, cut
        if stop > start:
            units[count] = (start, stop - start, 1 if whole else 0)
            count += 1
    return count


@numba.njit(cache=True, nogil=True)
def _take(units: Any, taken: Any, count: Any, forward: Any, target: Any, body: Any, order: Any) -> Any:
    """How many units the next input has, given how many were taken before.

    An input has at least two sentences where two fit the full length, even if its target is shorter: with one there
    would be no pair. Under an order loss the pieces of a cut sentence stand alone: a segment without its end (or its
    beginning) is always the first (or the second), so a pair of them would tell its order.
    """
    step = 1 if forward else -1
    place = taken if forward else count - 1 - taken
    total = units[place, 1]
    size = 1
    if order != NONE and not units[place, 2]:
        return size
    while taken + size < count:
        place += step
        longer = total + units[place, 1]
        fits = longer <= target or (order != NONE and size == 1 and longer <= body)
        if not fits or (order != NONE and not units[place, 2]):
            break
        total, size = longer, size + 1
    return size


@numba.njit(cache=True, nogil=True)
def _group(stream: Any, units: Any, count: Any, body: Any, order: Any, groups: Any) -> Any:
    """Group the units of a document into inputs, as rows (first unit, number of units) of ``groups``."""
    forward = order == NONE or below(stream, 2) == 0
    taken, number = 0, 0
    while taken < count:
        target = body
        if uniform(stream) < SHORT:
            target = 2 + below(stream, body - 1)
        size = _take(units, taken, count, forward, target, body, order)
        groups[number, 0] = taken if forward else count - taken - size
        groups[number, 1] = size
        taken, number = taken + size, number + 1
    if not forward:
        groups[:number] = groups[:number][::-1].copy()
    return number


@numba.njit(cache=True, nogil=True)
def _pair_singles(units: Any, groups: Any, number: Any, body: Any) -> None:
    """Give a sentence that was left alone the nearest sentence of a neighbour that has three or more, if both fit."""
    for at in range(number):
        first, size = groups[at, 0], groups[at, 1]
        if size > 1 or not units[first, 2]:
            continue
        if at > 0 and groups[at - 1, 1] > 2 and units[first - 1, 1] + units[first, 1] <= body:
            groups[at - 1, 1] -= 1
            groups[at, 0], groups[at, 1] = first - 1, 2
        elif at + 1 < number and groups[at + 1, 1] > 2 and units[first, 1] + units[first + 1, 1] <= body:
            groups[at + 1, 0] += 1
            groups[at + 1, 1] -= 1
            groups[at, 1] = 2


@numba.njit(cache=True, nogil=True)
def _write_input(
    stream: Any, units: Any, first: Any, size: Any, order: Any, shift: Any, document: Any, row: Any
) -> None:
    """Make an input of ``size`` units from ``first`` on: draw where x1 ends and whether the pair is a true one."""
    start = units[first, 0]
    end = units[first + size - 1, 0] + units[first + size - 1, 1]
    row[DOCUMENT], row[OTHER] = document, document
    row[START], row[SIZE] = start + shift, end - start
    row[SECOND_START], row[SECOND_SIZE], row[LABEL] = 0, 0, UNLABELLED
    if order == NONE or size < 2:
        return
    middle = units[first + 1 + below(stream, size - 1), 0]
    row[LABEL] = below(stream, 2)
    row[SIZE] = middle - start
    row[SECOND_START], row[SECOND_SIZE] = middle + shift, end - middle
    if order == SOP and row[LABEL] == 1:
        row[START], row[SECOND_START] = row[SECOND_START], row[START]
        row[SIZE], row[SECOND_SIZE] = row[SECOND_SIZE], row[SIZE]


@numba.njit(cache=True, nogil=True)
def cut_documents(
    sentences: Any,
    documents: Any,
    word_starts: Any,
    begin: Any,
    end: Any,
    document: Any,
    numbering: Any,
    shift: Any,
    length: Any,
    order: Any,
    keep_edges: Any,
    key: Any,
    inputs: Any,
    count: Any,
) -> Any:
    """Append to ``inputs`` those of the sentences ``begin`` to ``end``; ``document`` is the one ``begin`` is in.

    ``numbering`` = (sentences, documents) before this shard, which make draws and document numbers those of the corpus.
    ``keep_edges``: under ``sop``, inputs that begin in the first length of a document, and its last, get no label.
    """
    body = body_size(length, order)
    while begin < end:
        stop = min(np.int64(documents[document + 1]), end)
        if stop > begin:
            size = np.int64(sentences[stop]) - np.int64(sentences[begin])
            units = np.empty((most_inputs(stop - begin, size, body), 3), np.int64)
            groups = np.empty((len(units), 2), np.int64)
            stream = open_stream(key, numbering[0] + begin)
            pieces = _cut_sentences(sentences, word_starts, begin, stop, body, units)
            number = _group(stream, units, pieces, body, order, groups)
            if order != NONE:
                _pair_singles(units, groups, number, body)
            apart = keep_edges and order == SOP
            opens = apart and begin == np.int64(documents[document])
            ends = apart and stop == np.int64(documents[document + 1])
            for first, size in groups[:number]:
                opening = opens and units[first, 0] - units[0, 0] < body
                kind = NONE if opening or (ends and first + size == pieces) else order
                _write_input(stream, units, first, size, kind, shift, numbering[1] + document, inputs[count])
                count += 1
        begin, document = stop, document + 1
    return count


@numba.njit(cache=True, nogil=True)
def exchange_seconds(inputs: Any, key: Any, length: Any) -> Any:
    """For ``nsp``: inputs labelled 1 exchange their x2, two by two, between documents; returns how many could not.

    Partners have an x2 of (nearly) the same size, so each fits where the other was. An input that finds no partner,
    as when there is one document only, becomes one segment without a label.
    """
    body = body_size(length, NSP)
    stream = open_stream(key, len(inputs))
    chosen = np.flatnonzero(inputs[:, LABEL] == 1)
    ties = np.empty(len(chosen), np.int64)
    for number in range(len(chosen)):
        ties[number] = inputs[chosen[number], SECOND_SIZE] * (1 << 32) + below(stream, 1 << 31)
    chosen = chosen[np.argsort(ties)]
    matched = np.zeros(len(chosen), np.bool_)
    failed = 0
    for number in range(len(chosen)):
        if matched[number]:
            continue
        one = inputs[chosen[number]]
        for ahead in range(number + 1, min(number + 1 + LOOK_AHEAD, len(chosen))):
            two = inputs[chosen[ahead]]
            if matched[ahead] or one[OTHER] == two[OTHER]:
                continue
            if one[SIZE] + two[SECOND_SIZE] <= body and two[SIZE] + one[SECOND_SIZE] <= body:
                for column in (SECOND_START, SECOND_SIZE, OTHER):
                    one[column], two[column] = two[column], one[column]
                matched[number] = matched[ahead] = True
                break
        if not matched[number]:
            one[SIZE] += one[SECOND_SIZE]
            one[SECOND_START], one[SECOND_SIZE], one[LABEL] = 0, 0, UNLABELLED
            failed += 1
    return failed
