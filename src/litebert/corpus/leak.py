"""Can the order of a pair be told from its words alone? A bag-of-words classifier that tries.

If it can, a model will learn that shortcut and not what the loss is for. The classifier is logistic regression on
hashed words, solved to its optimum. For ``nsp`` features are the words of x1, those of x2, those in both, and the
share of words in both. For ``sop`` a pair and its mirror image have opposite labels, so all that can count is which
words are in x1 and not in x2 (+1) or the other way round (-1). The accuracy is that of cross-validation by documents.
"""

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from litebert.corpus.batches import Batches
from litebert.corpus.draws import below, make_key, mix, open_stream
from litebert.corpus.pairs import DOCUMENT, LABEL, OTHER, SECOND_SIZE, SECOND_START, SIZE, START
from litebert.corpus.slices import Integers
from litebert.corpus.windows import Window
from litebert.errors import InputError

BINS = 1 << 16  # hash values of a word
GROUPS = 3  # words of x1, words of x2, words of both
FOLDS = 3  # every pair is tested once, by a classifier that has seen no pair of its documents
WEIGHTS = GROUPS * BINS + 2  # one for the share of words in both, one for a constant
OVERLAP = 30.0  # makes that share count as much as some tens of words
STEPS = 150
STRENGTH = 0.01  # how much a pair counts against the penalty on weights; near the best on all the texts tried
TOLERANCE = 0.02


@dataclass(frozen=True)
class Leak:
    """How well words alone tell the label of pairs of documents that the classifier has not seen."""

    accuracy: float
    standard_error: float
    majority: float  # the accuracy of always answering the more frequent label
    num_pairs: int

    @property
    def leaks(self) -> bool:
        """Whether it is right more than 2% oftener than a guess, beyond what chance explains."""
        return self.accuracy - 2 * self.standard_error > self.majority + TOLERANCE


@dataclass(frozen=True)
class Bags:
    """Sparse features of pairs: those of pair i are from bounds[i] to bounds[i + 1]."""

    bounds: Integers
    features: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int8]
    folds: npt.NDArray[np.int8]  # of the documents of x1 and x2, one row a pair


@numba.njit(cache=True, nogil=True)
def _find_words(
    tokens: Any, word_starts: Any, start: Any, size: Any, side: Any, seen: Any, words: Any, found: Any
) -> Any:
    """Mark the hashed words of a segment in ``seen`` with ``side``; append to ``words`` those not seen before."""
    word = np.uint64(0)
    for position in range(start, start + size):
        if position == start or word_starts[position]:
            word = np.uint64(0)
        word = mix(word ^ np.uint64(tokens[position] + 1))
        if position + 1 == start + size or word_starts[position + 1]:
            feature = np.int64(word % np.uint64(BINS))
            if seen[feature] == 0:
                words[found] = feature
                found += 1
            seen[feature] |= side
    return found


@numba.njit(cache=True, nogil=True)
def _make_bags(
    tokens: Any, word_starts: Any, inputs: Any, mirrored: Any, bounds: Any, features: Any, values: Any
) -> None:
    """Features and values of each input, and where each begins."""
    seen = np.zeros(BINS, np.uint8)
    words = np.empty(inputs[:, SIZE].max() + inputs[:, SECOND_SIZE].max(), np.int64)
    place = 0
    for number in range(len(inputs)):
        row = inputs[number]
        bounds[number] = place
        found = _find_words(tokens, word_starts, row[START], row[SIZE], 1, seen, words, 0)
        found = _find_words(tokens, word_starts, row[SECOND_START], row[SECOND_SIZE], 2, seen, words, found)
        shared = 0
        for word in words[:found]:
            shared += seen[word] == 3
        if not mirrored:
            features[place], values[place] = GROUPS * BINS, OVERLAP * shared / found
            place += 1
        for word in words[:found]:
            side, seen[word] = seen[word], 0
            if mirrored and side < 3:
                features[place], values[place] = word, 1 if side == 1 else -1
                place += 1
            elif not mirrored:
                for group in range(GROUPS):
                    if side & (group + 1) == group + 1:
                        features[place], values[place] = group * BINS + word, 1
                        place += 1
    bounds[len(inputs)] = place


@numba.njit(cache=True, nogil=True)
def _scores(bounds: Any, features: Any, values: Any, chosen: Any, weights: Any) -> Any:
    """Features times weights for each chosen pair; the last weight is that of a constant."""
    scores = np.full(len(chosen), weights[-1])
    for number in range(len(chosen)):
        for place in range(bounds[chosen[number]], bounds[chosen[number] + 1]):
            scores[number] += weights[features[place]] * values[place]
    return scores


@numba.njit(cache=True, nogil=True)
def _slope(bounds: Any, features: Any, values: Any, chosen: Any, errors: Any) -> Any:
    """Features, transposed, times the errors of the chosen pairs, over their number."""
    slope = np.zeros(WEIGHTS)
    for number in range(len(chosen)):
        error = errors[number] / len(chosen)
        slope[-1] += error
        for place in range(bounds[chosen[number]], bounds[chosen[number] + 1]):
            slope[features[place]] += error * values[place]
    return slope


def _train(bags: Bags, chosen: Integers) -> npt.NDArray[np.float64]:
    """The weights of logistic regression with a squared penalty, by Nesterov's accelerated descent."""
    table = (bags.bounds, bags.features, bags.values, chosen)
    penalty = 1 / (STRENGTH * len(chosen))
    direction = np.ones(WEIGHTS)
    for _ in range(15):  # power iteration: the steepest curvature gives the step that is safe
        direction /= np.linalg.norm(direction)
        direction = _slope(*table, _scores(*table, direction))
    step = 1 / (0.25 * float(np.linalg.norm(direction)) * 1.1 + penalty)
    momentum = (1 - np.sqrt(step * penalty)) / (1 + np.sqrt(step * penalty))
    weights = ahead = np.zeros(WEIGHTS)
    for _ in range(STEPS):
        errors = 1 / (1 + np.exp(-_scores(*table, ahead))) - bags.labels[chosen]
        before, weights = weights, ahead - step * (_slope(*table, errors) + penalty * ahead)
        ahead = weights + momentum * (weights - before)
    return weights


def make_bags(windows: list[Window], *, mirrored: bool, seed: int, most: int) -> Bags:
    """The features of up to ``most`` labelled pairs; ``mirrored`` where swapping a pair flips its label."""
    parts = []
    for window in windows:
        inputs = window.plan.inputs
        inputs = inputs[inputs[:, LABEL] >= 0][:most]
        most -= len(inputs)
        if not len(inputs):
            continue
        room = GROUPS * int(inputs[:, SIZE].sum() + inputs[:, SECOND_SIZE].sum()) + len(inputs)
        bounds = np.zeros(len(inputs) + 1, np.int64)
        features, values = np.empty(room, np.int32), np.empty(room, np.float32)
        _make_bags(window.tokens, window.word_starts, inputs, mirrored, bounds, features, values)
        used = int(bounds[-1])
        labels = inputs[:, LABEL].astype(np.int8)
        parts.append(Bags(bounds, features[:used].copy(), values[:used].copy(), labels, _folds(inputs, seed)))
    if not parts:
        raise InputError("no input has an order label, so there is nothing to check; the documents are too short")
    starts = np.cumsum([0, *(part.bounds[-1] for part in parts)])
    return Bags(
        np.concatenate([part.bounds[:-1] + start for part, start in zip(parts, starts, strict=False)] + [starts[-1:]]),
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.folds for part in parts]),
    )


def _folds(inputs: Integers, seed: int) -> npt.NDArray[np.int8]:
    """The folds of the documents of x1 and x2.

    A pair of two documents (``nsp``) can be used only where both are on one side. As many of the pairs within one
    document must go, or the labels would no longer be even: there the second fold is drawn as if for another document.
    """
    first = _draw_folds(inputs[:, DOCUMENT], make_key(seed, 1))
    second = _draw_folds(inputs[:, OTHER], make_key(seed, 1))
    same = inputs[:, DOCUMENT] == inputs[:, OTHER]
    if not same.all():
        second = np.where(same, _draw_folds(inputs[:, START] ^ (inputs[:, DOCUMENT] << 32), make_key(seed, 2)), second)
    return np.stack([first, second], axis=1)


@numba.njit(cache=True, nogil=True)
def _draw_folds(numbers: Any, key: Any) -> Any:
    folds = np.empty(len(numbers), np.int8)
    for place in range(len(numbers)):
        folds[place] = below(open_stream(key, numbers[place]), FOLDS)
    return folds


def classify(bags: Bags) -> Leak:
    """Train on all folds of the documents but one, measure on that one, for each."""
    right, labels = [], []
    for fold in range(FOLDS):
        test = np.flatnonzero((bags.folds == fold).all(axis=1))
        train = np.flatnonzero((bags.folds != fold).all(axis=1))
        if len(test) and len(train):
            scores = _scores(bags.bounds, bags.features, bags.values, test, _train(bags, train))
            right.append((scores > 0) == bags.labels[test])
            labels.append(bags.labels[test])
    if not right:
        raise InputError("the order labels are all of one document, so there is nothing to check them against")
    count, share = sum(map(len, right)), float(np.concatenate(labels).mean())
    return Leak(float(np.concatenate(right).mean()), float(np.sqrt(0.25 / count)), max(share, 1 - share), count)


def check_leak(batches: Batches, *, most: int = 30_000, epoch: int = 0, seed: int = 0) -> Leak:
    """Whether words alone tell swapped from ordered, or real from random, in one epoch of ``batches``."""
    windows, found = [], 0
    for number in range(batches.num_windows(epoch)):
        windows.append(batches.window(epoch, number))
        found += int((windows[-1].plan.inputs[:, LABEL] >= 0).sum())
        if found >= most:
            break
    return classify(make_bags(windows, mirrored=batches.settings.order == "sop", seed=seed, most=most))
