"""Can the order of a pair be told from its words alone? A bag-of-words classifier that tries.

If it can, a model will learn that shortcut and not what the loss is for. The classifier is logistic regression on
hashed words. For ``nsp`` features are the words of x1, those of x2, those in both, and the share of words in both. For
``sop`` a pair and its mirror image have opposite labels, so all that can count is which words are in x1 and not in x2
(+1) or the other way round (-1); there is no intercept, and chance is one half.

The accuracy is that of cross-validation by documents: whoever is tested has seen no pair of the document, in any epoch.
A document is cut anew each epoch, so a small corpus is looked at in several, and the folds are drawn more than once:
by one epoch and one draw, 1,700 pairs of Japanese books gave anything from 47% to 54%, all of it chance. Pairs of one
document are right or wrong together, so it is documents that the standard error counts, not pairs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from litebert.corpus.batches import Batches
from litebert.corpus.look import LABELS, Look, look_report
from litebert.corpus.pairs import DOCUMENT, LABEL, OTHER, SECOND_SIZE, SECOND_START, SIZE, START
from litebert.corpus.windows import Integers, TooLittleTextError, Window
from litebert.report import BLUE, GREY, ORANGE, Note, Plot, Report, Section

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = 1 << 16  # hash values of a word: its upper 16 bits
MIX = 0x9E3779B97F4A7C15  # an odd number without a pattern
OVERLAP = 30.0  # makes the share of words in both count as much as some tens of words
FOLDS = 5  # every pair is tested once a draw, by a classifier that has seen no pair of its documents
DRAWS = 2  # of the folds
PAIRS = 20_000  # enough for a standard error of about half a percent
EPOCHS = 8  # at the most, where one has fewer pairs
# What is tested in one fold is trained on in the others, so that folds err together (Nadeau and Bengio, 2003). Labels
# flipped by a coin for each document spread 1.3 times as far as they would if folds were independent; this says 1.5.
SHARED_TRAINING = float(np.sqrt(1 + FOLDS / (FOLDS - 1)))
TOLERANCE = 0.02
STRENGTH = 0.001  # inverse of the penalty on weights; near the best on all the texts tried

SEGMENTS = ((START, SIZE), (SECOND_START, SECOND_SIZE))

Verdict = Literal["leaks", "tight", "unsure"]
VERDICTS: dict[Verdict, str] = {
    "leaks": "above chance: words tell them apart",
    "tight": "not above chance",
    "unsure": "inconclusive: too few documents",
}


@dataclass(frozen=True)
class Leak:
    """How well words alone tell the label of pairs of documents that the classifier has not seen."""

    accuracy: float
    standard_error: float
    guess: float  # the accuracy of chance: of the more frequent label, for nsp
    num_pairs: int
    num_documents: int

    @property
    def verdict(self) -> Verdict:
        """Above chance by more than 2 points: yes, no, or inconclusive."""
        more, doubt = self.accuracy - self.guess - TOLERANCE, 2 * self.standard_error
        return "leaks" if more > doubt else "tight" if more < -doubt else "unsure"

    @property
    def leaks(self) -> bool:
        """Whether words surely tell."""
        return self.verdict == "leaks"

    def __str__(self) -> str:
        return (
            f"accuracy of a bag of words: {self.accuracy:.1%} ± {self.standard_error:.1%} ({self.num_pairs:,} pairs of "
            f"{self.num_documents:,} documents; chance {self.guess:.1%} ± {TOLERANCE:.0%}): {VERDICTS[self.verdict]}"
        )


@dataclass(frozen=True)
class Bags:
    """Sparse features of pairs, a row each."""

    features: Any  # a sparse matrix
    labels: npt.NDArray[np.int8]
    inputs: Integers  # the rows of the pairs, with the columns of pairs.py
    mirrored: bool  # swapping a pair flips its label


def make_bags(window: Window, *, mirrored: bool, most: int) -> Bags | None:
    """The features of the first labelled pairs of a window, None where it has none."""
    inputs = window.plan.inputs
    inputs = inputs[inputs[:, LABEL] >= 0][:most]
    if not len(inputs):
        return None
    first, second = (_words(window, inputs[:, start], inputs[:, size]) for start, size in SEGMENTS)
    if mirrored:
        features = first - second  # words of both cancel
    else:
        both = first.multiply(second)
        shared, all_words = both.sum(axis=1), (first + second - both).sum(axis=1)
        features = sparse.hstack([first, second, both, sparse.csr_matrix(OVERLAP * shared / all_words)])
    return Bags(sparse.csr_matrix(features), inputs[:, LABEL].astype(np.int8), inputs, mirrored)


def _words(window: Window, starts: Integers, sizes: Integers) -> Any:
    """For each segment which hashed words are in it, as a matrix of ones."""
    begins = np.union1d(np.flatnonzero(window.word_starts), starts)  # a segment begins with a word
    positions = np.arange(len(window.tokens))
    place = (positions - begins[np.searchsorted(begins, positions, "right") - 1]).astype(np.uint64)  # in its word
    with np.errstate(over="ignore"):  # a token's hash depends on its place, a word's is the sum of its tokens'
        mixed = (window.tokens.astype(np.uint64) + (place << np.uint64(32)) + np.uint64(1)) * np.uint64(MIX)
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(MIX)
        hashed = np.add.reduceat(mixed, begins) >> np.uint64(48)
    lows, highs = np.searchsorted(begins, starts), np.searchsorted(begins, starts + sizes)
    counts = highs - lows
    bounds = np.concatenate([[0], np.cumsum(counts)])
    columns = hashed[np.arange(bounds[-1]) - np.repeat(bounds[:-1] - lows, counts)].astype(np.int64)
    found = sparse.csr_matrix((np.ones(len(columns)), columns, bounds), shape=(len(starts), BINS))
    found.sum_duplicates()
    found.data[:] = 1
    return found


def join_bags(parts: list[Bags]) -> Bags:
    """All pairs of several."""
    return Bags(
        sparse.csr_matrix(sparse.vstack([part.features for part in parts])),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.inputs for part in parts]),
        parts[0].mirrored,
    )


def draw_folds(inputs: Integers, draw: int) -> npt.NDArray[np.int64]:
    """The folds of the documents of x1 and x2, a row a pair.

    A pair of two documents (``nsp``) can be used only where both are on one side. As many of the pairs within one
    document must go, or the labels would no longer be even: there the second fold is drawn as if for another document.
    """
    random = np.random.default_rng(draw)
    documents, numbers = np.unique(inputs[:, [DOCUMENT, OTHER]], return_inverse=True)
    folds = random.integers(FOLDS, size=len(documents))[numbers.reshape(-1, 2)]
    same = inputs[:, DOCUMENT] == inputs[:, OTHER]
    if not same.all():
        folds[same, 1] = random.integers(FOLDS, size=int(same.sum()))
    return folds


def classify(bags: Bags) -> Leak:
    """Train on all folds of the documents but one, measure on that one, for each; and so again with other folds."""
    right, tests = np.zeros(len(bags.labels)), np.zeros(len(bags.labels))
    for draw in range(DRAWS):
        folds = draw_folds(bags.inputs, draw)
        for fold in range(FOLDS):
            test = np.flatnonzero((folds == fold).all(axis=1))
            train = np.flatnonzero((folds != fold).all(axis=1))
            if len(test) and len(np.unique(bags.labels[train])) > 1:
                model = LogisticRegression(C=STRENGTH, fit_intercept=not bags.mirrored, max_iter=500)
                scores = model.fit(bags.features[train], bags.labels[train]).decision_function(bags.features[test])
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


def store_report(look: Look, leak: Leak) -> Report:
    """The report of ``litebert corpus look`` with the leak check and plots in front."""
    report = look_report(look)
    check = Section(title="Leak check", items=[Note(((str(leak), ""),)), _leak_plot(leak)])
    data = report.data | {"leak": {**leak.__dict__, "verdict": leak.verdict}}
    return Report(
        title=look.store, sections=[check, *report.sections, Section(title="Plots", items=_plots(look))], data=data
    )


def _leak_plot(leak: Leak) -> Plot:
    def draw(axes: "Axes") -> None:
        axes.axhspan(leak.guess - TOLERANCE, leak.guess + TOLERANCE, color="#dcefdc")
        axes.axhline(leak.guess, color=GREY)
        axes.errorbar(["words alone"], [leak.accuracy], yerr=[2 * leak.standard_error], fmt="o", color=BLUE, capsize=4)
        axes.set_ylim(min(0.4, leak.accuracy - 0.05), max(0.6, leak.accuracy + 0.05))
        axes.set_ylabel("accuracy")

    return Plot(title="Can a bag of words tell?", reading="Green: within 2 points of chance.", draw=draw)


def _plots(look: Look) -> list[Plot]:
    """Lengths, masks and labels."""
    split = next(iter(look.splits.values()))
    assert look.batches is not None, "what was checked for leaks has batches"
    figures = look.batches
    sentences = split.sentence_histogram[: 2 * split.sentence_percentiles[99]]
    doublings = {f"{2**n:,}": count for n, count in enumerate(split.document_histogram)}
    spans = max(1, sum(figures.ngrams))
    ngrams = {str(n): count / spans for n, count in enumerate(figures.ngrams, 1)}
    shown = {"[MASK]": figures.shown_as_mask, "random": figures.shown_as_random, "unchanged": figures.shown_as_is}
    counts = (figures.in_order, figures.swapped, figures.unlabelled)
    labels = dict(zip((*LABELS[look.settings.order], "no pair"), counts, strict=True))
    drawn = "Orange: as drawn."
    return [
        Plot(title="tokens of a sentence", draw=partial(_draw_bars, dict(enumerate(sentences)))),
        Plot(title="tokens of an input", draw=partial(_draw_bars, dict(enumerate(figures.lengths)))),
        Plot(title="tokens of a document, in doublings", draw=partial(_draw_bars, doublings)),
        Plot(
            title="words of a masked span, share of spans",
            reading=drawn,
            draw=partial(_draw_bars, ngrams, expected=figures.ngrams_expected),
        ),
        Plot(
            title="what stands at a masked place",
            reading=drawn,
            draw=partial(_draw_bars, shown, expected=[0.8, 0.1, 0.1]),
        ),
        Plot(title="order labels, inputs", draw=partial(_draw_bars, labels)),
    ]


def _draw_bars(values: Mapping[Any, float], axes: "Axes", expected: Sequence[float] = ()) -> None:
    places = list(values)
    axes.bar(places, list(values.values()), width=0.8 if expected else 1, color=BLUE)
    if expected:
        axes.hlines(
            expected, [n - 0.4 for n in range(len(places))], [n + 0.4 for n in range(len(places))], color=ORANGE
        )
    if len(places) > 12 and isinstance(places[0], str):
        axes.set_xticks(range(0, len(places), 2), places[::2], rotation=45)
