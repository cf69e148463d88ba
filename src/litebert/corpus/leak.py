"""Can the order of a pair be told from its words alone? A bag-of-words classifier that tries.

If it can, a model will learn that shortcut and not what the loss is for. The classifier is logistic regression on
hashed words, solved to its optimum. For ``nsp`` features are the words of x1, those of x2, those in both, and the
share of words in both. For ``sop`` a pair and its mirror image have opposite labels, so all that can count is which
words are in x1 and not in x2 (+1) or the other way round (-1); there is no constant, and a guess is half right.

The accuracy is that of cross-validation by documents: whoever is tested has seen no pair of the document, in any epoch.
A document is cut anew each epoch, so a small corpus is looked at in several, and the folds are drawn more than once:
by one epoch and one draw, 1,700 pairs of Japanese books gave anything from 47% to 54%, all of it chance. Pairs of one
document are right or wrong together, so it is documents that the standard error counts, not pairs.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numba
import numpy as np
import numpy.typing as npt

from litebert.corpus.batches import Batches
from litebert.corpus.counter_rng import below, make_key, mix, open_stream
from litebert.corpus.pairs import DOCUMENT, LABEL, OTHER, SECOND_SIZE, SECOND_START, SIZE, START
from litebert.corpus.windows import Integers, TooLittleTextError, Window

BINS = 1 << 16  # hash values of a word
GROUPS = 3  # words of x1, words of x2, words of both
WEIGHTS = GROUPS * BINS + 2  # one for the share of words in both, one for a constant
OVERLAP = 30.0  # makes that share count as much as some tens of words
FOLDS = 5  # every pair is tested once a draw, by a classifier that has seen no pair of its documents
DRAWS = 2  # of the folds
PAIRS = 20_000  # enough for a standard error of about half a percent
EPOCHS = 8  # at the most, where one has fewer pairs
STEPS = 150
# What is tested in one fold is trained on in the others, so that folds err together (Nadeau and Bengio, 2003). Labels
# flipped by a coin for each document spread 1.3 times as far as they would if folds were independent; this says 1.5.
SHARED_TRAINING = float(np.sqrt(1 + FOLDS / (FOLDS - 1)))
PRECISION = 1e-2  # of the slope, as a share of the first one, at which the weights are good enough
TOLERANCE = 0.02
STRENGTH = 0.001  # how much a pair counts against the penalty on weights; near the best on all the texts tried

Verdict = Literal["leaks", "tight", "unsure"]
VERDICTS: dict[Verdict, str] = {
    "leaks": "words tell them apart",
    "tight": "words do not tell",
    "unsure": "too few documents to be sure",
}


@dataclass(frozen=True)
class Leak:
    """How well words alone tell the label of pairs of documents that the classifier has not seen."""

    accuracy: float
    standard_error: float
    guess: float  # the accuracy of a guess: of the more frequent label, for nsp
    num_pairs: int
    num_documents: int

    @property
    def verdict(self) -> Verdict:
        """Whether it is right more than 2% oftener than a guess: surely, surely not, or not to be said."""
        more, doubt = self.accuracy - self.guess - TOLERANCE, 2 * self.standard_error
        return "leaks" if more > doubt else "tight" if more < -doubt else "unsure"

    @property
    def leaks(self) -> bool:
        """Whether words surely tell."""
        return self.verdict == "leaks"


@dataclass(frozen=True)
class Bags:
    """Sparse features of pairs: those of pair i are from bounds[i] to bounds[i + 1]."""

    bounds: Integers
    features: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int8]
    inputs: Integers  # the rows of the pairs, with the columns of pairs.py
    mirrored: bool  # swapping a pair flips its label


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
    """Features times weights for each chosen pair; a weight after the last feature is that of a constant."""
    scores = np.full(len(chosen), weights[-1] if len(weights) == WEIGHTS else 0.0)
    for number in range(len(chosen)):
        for place in range(bounds[chosen[number]], bounds[chosen[number] + 1]):
            scores[number] += weights[features[place]] * values[place]
    return scores


@numba.njit(cache=True, nogil=True)
def _slope(bounds: Any, features: Any, values: Any, chosen: Any, errors: Any, size: Any) -> Any:
    """Features, transposed, times the errors of the chosen pairs, over their number; ``size`` weights there are."""
    slope = np.zeros(size)
    for number in range(len(chosen)):
        error = errors[number] / len(chosen)
        if size == WEIGHTS:
            slope[-1] += error
        for place in range(bounds[chosen[number]], bounds[chosen[number] + 1]):
            slope[features[place]] += error * values[place]
    return slope


def _train(bags: Bags, chosen: Integers) -> npt.NDArray[np.float64]:
    """The weights of logistic regression with a squared penalty, by Nesterov's accelerated descent."""
    table = (bags.bounds, bags.features, bags.values, chosen)
    size = BINS if bags.mirrored else WEIGHTS
    penalty = 1 / (STRENGTH * len(chosen))
    direction = np.ones(size)
    for _ in range(15):  # power iteration: the steepest curvature gives the step that is safe
        direction /= np.linalg.norm(direction)
        direction = _slope(*table, _scores(*table, direction), size)
    step = 1 / (0.25 * float(np.linalg.norm(direction)) * 1.1 + penalty)
    momentum = (1 - np.sqrt(step * penalty)) / (1 + np.sqrt(step * penalty))
    weights = ahead = np.zeros(size)
    enough = 0.0
    for _ in range(STEPS):
        errors = 1 / (1 + np.exp(-_scores(*table, ahead))) - bags.labels[chosen]
        slope = _slope(*table, errors, size) + penalty * ahead
        steepness = float(np.linalg.norm(slope))
        enough = enough or PRECISION * steepness
        if steepness <= enough:
            break
        before, weights = weights, ahead - step * slope
        ahead = weights + momentum * (weights - before)
    return weights


def make_bags(window: Window, *, mirrored: bool, most: int) -> Bags | None:
    """The features of the first labelled pairs of a window, None where it has none."""
    inputs = window.plan.inputs
    inputs = inputs[inputs[:, LABEL] >= 0][:most]
    if not len(inputs):
        return None
    room = GROUPS * int(inputs[:, SIZE].sum() + inputs[:, SECOND_SIZE].sum()) + len(inputs)
    bounds = np.zeros(len(inputs) + 1, np.int64)
    features, values = np.empty(room, np.int32), np.empty(room, np.float32)
    _make_bags(window.tokens, window.word_starts, inputs, mirrored, bounds, features, values)
    used = int(bounds[-1])
    labels = inputs[:, LABEL].astype(np.int8)
    return Bags(bounds, features[:used].copy(), values[:used].copy(), labels, inputs, mirrored)


def join_bags(parts: list[Bags]) -> Bags:
    """All pairs of several."""
    starts = np.cumsum([0, *(part.bounds[-1] for part in parts)])
    return Bags(
        np.concatenate([part.bounds[:-1] + start for part, start in zip(parts, starts, strict=False)] + [starts[-1:]]),
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.inputs for part in parts]),
        parts[0].mirrored,
    )


def draw_folds(inputs: Integers, draw: int) -> npt.NDArray[np.int8]:
    """The folds of the documents of x1 and x2, a row a pair.

    A pair of two documents (``nsp``) can be used only where both are on one side. As many of the pairs within one
    document must go, or the labels would no longer be even: there the second fold is drawn as if for another document.
    """
    first = _draw_folds(inputs[:, DOCUMENT], make_key(draw, 1))
    second = _draw_folds(inputs[:, OTHER], make_key(draw, 1))
    same = inputs[:, DOCUMENT] == inputs[:, OTHER]
    if not same.all():
        second = np.where(same, _draw_folds(inputs[:, START] ^ (inputs[:, DOCUMENT] << 32), make_key(draw, 2)), second)
    return np.stack([first, second], axis=1)


@numba.njit(cache=True, nogil=True)
def _draw_folds(numbers: Any, key: Any) -> Any:
    folds = np.empty(len(numbers), np.int8)
    for place in range(len(numbers)):
        folds[place] = below(open_stream(key, numbers[place]), FOLDS)
    return folds


def classify(bags: Bags) -> Leak:
    """Train on all folds of the documents but one, measure on that one, for each; and so again with other folds."""
    right, tests = np.zeros(len(bags.labels)), np.zeros(len(bags.labels))
    for draw in range(DRAWS):
        folds = draw_folds(bags.inputs, draw)
        for fold in range(FOLDS):
            test = np.flatnonzero((folds == fold).all(axis=1))
            train = np.flatnonzero((folds != fold).all(axis=1))
            if len(test) and len(train):
                scores = _scores(bags.bounds, bags.features, bags.values, test, _train(bags, train))
                right[test] += np.where(scores == 0, 0.5, (scores > 0) == bags.labels[test])
                tests[test] += 1
    if not tests.any():
        raise TooLittleTextError("the order labels are all of one document, so there is nothing to check them against")
    accuracy = float(right.sum() / tests.sum())
    documents = bags.inputs[tests > 0, DOCUMENT]
    _, document = np.unique(documents, return_inverse=True)
    excess = np.bincount(document, (right - accuracy * tests)[tests > 0])
    share = float((bags.labels * tests).sum() / tests.sum())
    return Leak(
        accuracy=accuracy,
        standard_error=float(SHARED_TRAINING * np.sqrt((excess**2).sum()) / tests.sum()),
        guess=0.5 if bags.mirrored else max(share, 1 - share),
        num_pairs=int((tests > 0).sum()),
        num_documents=len(excess),
    )


def check_leak(batches: Batches, *, most: int = PAIRS, epoch: int = 0) -> Leak:
    """Whether words alone tell swapped from ordered, or real from random, from ``epoch`` on.

    Held-out batches are the same in every epoch, so that there is but one to look at.
    """
    parts: list[Bags] = []
    found = 0
    for number in range(1 if batches.split == "held_out" else EPOCHS):
        for place in range(batches.num_windows(epoch + number)):
            if found >= most:
                break
            window = batches.window(epoch + number, place)
            part = make_bags(window, mirrored=batches.settings.order == "sop", most=most - found)
            if part is not None:
                parts.append(part)
                found += len(part.labels)
        if not found:
            raise TooLittleTextError(
                "no input has an order label, so there is nothing to check: the documents are too short"
            )
    return classify(join_bags(parts))
