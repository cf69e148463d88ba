"""Documents cut into inputs: ``[CLS] x1 [SEP] x2 [SEP]`` for the order losses, ``[CLS] x [SEP]`` without one.

An input is as many whole sentences of one document as fit. x1 ends after a sentence drawn anew each epoch. Under
``sop`` x1 and x2 are swapped half of the time; under ``nsp`` half of the inputs exchange their x2 with one another, so
that a random x2 is distributed exactly as a real one and no text is lost or repeated. A document is cut from its front
or from its back, by a coin: cut always from the front, the first sentence of an input is the one that did not fit in
the input before, hence longer than others, and lengths alone would give the order away. For the same reason the edges
of a document are by default used for masking only under ``sop``: "X () is a ..." always comes first, and "since then
..." last. A bag of words orders 83% of the openings of Chinese Wikipedia correctly, 56% of the endings of the Korean
one, and half of what is between.

Arguments are annotated ``Any`` where numba compiles the function: its types are those of the arrays passed in.
"""

from typing import Any, NamedTuple

import numba
import numpy as np

from litebert.corpus.counter_rng import below, open_stream, uniform
from litebert.corpus.settings import Order

NONE, SOP, NSP = range(3)
ORDER_CODES: dict[Order, int] = {"none": NONE, "sop": SOP, "nsp": NSP}

# Columns of a table of inputs. Starts are positions in the window's tokens; a size of 0 means there is no x2. DOCUMENT
# and OTHER are the documents of x1 and x2.
START, SIZE, SECOND_START, SECOND_SIZE, LABEL, DOCUMENT, OTHER = range(7)
COLUMNS = 7

UNLABELLED = -100  # ignored by torch's cross entropy
SHORT = 0.1  # share of inputs that aim at a length drawn uniformly
LOOK_AHEAD = 64


class PairRules(NamedTuple):
    """How documents become inputs."""

    body: int  # maximum tokens of text in an input
    order: int  # NONE, SOP or NSP
    min_document: int  # tokens; shorter documents are left out
    keep_edges: bool  # under sop, inputs that begin in the first length of a document, and its last, get no label


class SliceBounds(NamedTuple):
    """The sentences of a slice, and how positions in its shard relate to those in the window and the corpus."""

    sentences: Any  # of the shard: the token where each starts
    documents: Any  # of the shard: the sentence where each starts
    word_starts: Any  # of the shard; may be empty where no sentence is longer than an input
    begin: int  # first sentence
    end: int  # the sentence after the last
    document: int  # the one that ``begin`` is in
    shift: int  # what to add to a token's position in the shard for its position in the window
    sentences_before: int  # in the shards before this one: random numbers depend on places in the corpus
    documents_before: int


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
    """Where to cut a sentence that extends beyond ``start + body``: before a word, unless one word is that long."""
    for position in range(start + body, start, -1):
        if word_starts[position]:
            return position
    return start + body


@numba.njit(cache=True, nogil=True)
def _cut_sentences(text: Any, begin: Any, end: Any, body: Any) -> Any:
    """Sentences ``begin`` to ``end`` as units (start, size, whole); those longer than ``body`` in pieces."""
    tokens = np.int64(text.sentences[end]) - np.int64(text.sentences[begin])
    units = np.empty((most_inputs(end - begin, tokens, body), 3), np.int64)
    count = 0
    for sentence in range(begin, end):
        start, stop = np.int64(text.sentences[sentence]), np.int64(text.sentences[sentence + 1])
        whole = stop - start <= body
        while stop - start > body:
            cut = _find_cut(text.word_starts, start, body)
            units[count] = (start, cut - start, 0)
            count, start = count + 1, cut
        if stop > start:
            units[count] = (start, stop - start, 1 if whole else 0)
            count += 1
    return units[:count]


@numba.njit(cache=True, nogil=True)
def _take(units: Any, taken: Any, forward: Any, target: Any, rules: Any) -> Any:
    """How many units the next input has, given how many were taken before.

    An input has at least two sentences where two fit the full length, even if its target is shorter: with one there
    would be no pair. Under an order loss the pieces of a cut sentence stand alone: a segment without its end (or its
    beginning) is always the first (or the second), so a pair of them would give its order away.
    """
    step = 1 if forward else -1
    place = taken if forward else len(units) - 1 - taken
    total = units[place, 1]
    size = 1
    paired = rules.order != NONE
    if paired and not units[place, 2]:
        return size
    while taken + size < len(units):
        place += step
        longer = total + units[place, 1]
        fits = longer <= target or (paired and size == 1 and longer <= rules.body)
        if not fits or (paired and not units[place, 2]):
            break
        total, size = longer, size + 1
    return size


@numba.njit(cache=True, nogil=True)
def _group(stream: Any, units: Any, rules: Any) -> Any:
    """Group the units of a document into inputs, as rows (first unit, number of units)."""
    groups = np.empty((len(units), 2), np.int64)
    forward = rules.order == NONE or below(stream, 2) == 0
    taken, number = 0, 0
    while taken < len(units):
        target = rules.body
        if uniform(stream) < SHORT:
            target = 2 + below(stream, rules.body - 1)
        size = _take(units, taken, forward, target, rules)
        groups[number, 0] = taken if forward else len(units) - taken - size
        groups[number, 1] = size
        taken, number = taken + size, number + 1
    if not forward:
        groups[:number] = groups[:number][::-1].copy()
    return groups[:number]


@numba.njit(cache=True, nogil=True)
def _pair_singles(units: Any, groups: Any, body: Any) -> None:
    """Give a sentence that was left alone the nearest sentence of a neighbour that has three or more, if both fit."""
    for at in range(len(groups)):
        first, size = groups[at, 0], groups[at, 1]
        if size > 1 or not units[first, 2]:
            continue
        if at > 0 and groups[at - 1, 1] > 2 and units[first - 1, 1] + units[first, 1] <= body:
            groups[at - 1, 1] -= 1
            groups[at, 0], groups[at, 1] = first - 1, 2
        elif at + 1 < len(groups) and groups[at + 1, 1] > 2 and units[first, 1] + units[first + 1, 1] <= body:
            groups[at + 1, 0] += 1
            groups[at + 1, 1] -= 1
            groups[at, 1] = 2


@numba.njit(cache=True, nogil=True)
def _write_input(stream: Any, units: Any, order: Any, shift: Any, document: Any, row: Any) -> None:
    """Make an input of these units: draw where x1 ends and whether the pair is a true one."""
    start = units[0, 0]
    end = units[-1, 0] + units[-1, 1]
    row[DOCUMENT], row[OTHER] = document, document
    row[START], row[SIZE] = start + shift, end - start
    row[SECOND_START], row[SECOND_SIZE], row[LABEL] = 0, 0, UNLABELLED
    if order == NONE or len(units) < 2:
        return
    middle = units[1 + below(stream, len(units) - 1), 0]
    row[LABEL] = below(stream, 2)
    row[SIZE] = middle - start
    row[SECOND_START], row[SECOND_SIZE] = middle + shift, end - middle
    if order == SOP and row[LABEL] == 1:
        row[START], row[SECOND_START] = row[SECOND_START], row[START]
        row[SIZE], row[SECOND_SIZE] = row[SECOND_SIZE], row[SIZE]


@numba.njit(cache=True, nogil=True)
def cut_documents(text: Any, rules: Any, key: Any, inputs: Any, count: Any) -> Any:
    """Write the inputs of a slice (``SliceBounds``) behind the first ``count``; returns how many there are then."""
    begin, document = text.begin, text.document
    while begin < text.end:
        first, last = np.int64(text.documents[document]), np.int64(text.documents[document + 1])
        stop = min(last, text.end)
        size = np.int64(text.sentences[last]) - np.int64(text.sentences[first])
        if stop > begin and size >= rules.min_document:
            stream = open_stream(key, text.sentences_before + begin)
            units = _cut_sentences(text, begin, stop, rules.body)
            groups = _group(stream, units, rules)
            if rules.order != NONE:
                _pair_singles(units, groups, rules.body)
            apart = rules.keep_edges and rules.order == SOP
            opens, ends = apart and begin == first, apart and stop == last
            for first, size in groups:
                opening = opens and units[first, 0] - units[0, 0] < rules.body
                order = NONE if opening or (ends and first + size == len(units)) else rules.order
                own = units[first : first + size]
                _write_input(stream, own, order, text.shift, text.documents_before + document, inputs[count])
                count += 1
        begin, document = stop, document + 1
    return count


@numba.njit(cache=True, nogil=True)
def exchange_seconds(inputs: Any, key: Any, body: Any) -> Any:
    """For ``nsp``: inputs labelled 1 exchange their x2, two by two, between documents; returns how many could not.

    Partners have an x2 of (nearly) the same size, so each fits where the other was. An input that finds no partner,
    as when there is one document only, becomes one segment without a label.
    """
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
