"""The metrics of the benchmarks: accuracy, F1 in its forms, Matthews, Pearson, Spearman, errors of numbers, and the
scores of SQuAD's answers.

Each gives what scikit-learn or SciPy gives. Where those have no number (a correlation with something constant) the
result is 0, because a model that predicts the same for everything has found nothing, and a run must be able to compare.
Answers are scored by the rules of the official evaluators of SQuAD 1.1 and 2.0, down to which characters count as
punctuation; of several right answers the one closest to the prediction counts.
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from litebert.tasks.examples import Question

Floats = np.ndarray[Any, np.dtype[np.float64]]
Counts = np.ndarray[Any, np.dtype[np.int64]]
LabelSet = tuple[int, ...]
IN_UNITS = ("mean_absolute_error", "root_mean_squared_error")  # of the target; every other one is a share
ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)  # ASCII only, as in the official scripts


def accuracy(targets: Sequence[int], found: Sequence[int]) -> float:
    """The share that is right."""
    return float(np.mean(np.asarray(targets) == np.asarray(found)))


def confusion(targets: Sequence[int], found: Sequence[int], num_labels: int) -> Counts:
    """How often each label (row) was taken for each (column)."""
    table = np.zeros((num_labels, num_labels), np.int64)
    np.add.at(table, (np.asarray(targets, np.int64), np.asarray(found, np.int64)), 1)
    return table


def binary_f1(targets: Sequence[int], found: Sequence[int]) -> float:
    """F1 of label 1."""
    wanted, given = np.asarray(targets) == 1, np.asarray(found) == 1
    return _f1(int(np.sum(wanted & given)), int(wanted.sum()), int(given.sum()))


def macro_f1(targets: Sequence[int], found: Sequence[int]) -> float:
    """The mean of the F1 of every label that occurs."""
    table = confusion(targets, found, 1 + max(*targets, *found))
    rows = zip(np.diag(table).tolist(), table.sum(1).tolist(), table.sum(0).tolist(), strict=True)
    return float(np.mean([_f1(*row) for row in rows if row[1] + row[2]]))


def matthews(targets: Sequence[int], found: Sequence[int]) -> float:
    """Matthews' correlation, for any number of labels (Gorodkin 2004)."""
    table = confusion(targets, found, 1 + max(*targets, *found)).astype(object)  # whole numbers without a limit
    wanted, given = table.sum(1), table.sum(0)
    total = int(table.sum())
    both = int(np.trace(table)) * total - int(wanted @ given)
    of_found, of_targets = total**2 - int(given @ given), total**2 - int(wanted @ wanted)
    return both / float(of_found * of_targets) ** 0.5 if of_found and of_targets else 0.0


def pearson(targets: Sequence[float], found: Sequence[float]) -> float:
    """Pearson's correlation; 0 where one side is constant."""
    left, right = _centred(targets), _centred(found)
    if left is None or right is None:
        return 0.0
    return float(np.clip(left @ right, -1.0, 1.0))


def spearman(targets: Sequence[float], found: Sequence[float]) -> float:
    """Spearman's correlation: Pearson's of the ranks, where equal values share the mean of theirs."""
    return pearson(_ranks(targets).tolist(), _ranks(found).tolist())


def mean_absolute_error(targets: Sequence[float], found: Sequence[float]) -> float:
    """How far off, in the mean."""
    return float(np.mean(np.abs(np.asarray(targets, np.float64) - np.asarray(found, np.float64))))


def root_mean_squared_error(targets: Sequence[float], found: Sequence[float]) -> float:
    """How far off, with large errors counting more."""
    return float(np.sqrt(np.mean((np.asarray(targets, np.float64) - np.asarray(found, np.float64)) ** 2)))


def exact_sets(targets: Sequence[LabelSet], found: Sequence[LabelSet], num_labels: int) -> float:
    """The share of items whose every label is right."""
    return float(np.mean([set(wanted) == set(given) for wanted, given in zip(targets, found, strict=True)]))


def micro_f1(targets: Sequence[LabelSet], found: Sequence[LabelSet], num_labels: int) -> float:
    """F1 over all labels of all items at once."""
    return _f1(*(int(counts.sum()) for counts in set_counts(targets, found, num_labels)))


def macro_set_f1(targets: Sequence[LabelSet], found: Sequence[LabelSet], num_labels: int) -> float:
    """The mean of the F1 of every label, those that never occur counting 0."""
    counts = (array.tolist() for array in set_counts(targets, found, num_labels))
    return float(np.mean([_f1(*row) for row in zip(*counts, strict=True)]))


def set_f1(wanted: LabelSet, given: LabelSet) -> float:
    """F1 of the labels of one item; saying nothing is right where there is nothing."""
    if not wanted and not given:
        return 1.0
    return _f1(len(set(wanted) & set(given)), len(set(wanted)), len(set(given)))


class AnswerScore(NamedTuple):
    """How good one answer is."""

    exact: float
    f1: float


def normalise(text: str) -> str:
    """Lower case, without punctuation, articles and needless spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def score_answer(question: Question, found: str) -> AnswerScore:
    """Exact match and F1 of ``found`` against the right answer closest to it; empty is right where there is none."""
    # Answers of which normalisation leaves nothing do not count (SQuAD 2.0's evaluator), or no answer would be right.
    answers = [answer.text for answer in question.answers if normalise(answer.text)]
    if question.impossible or not answers:
        answers = [""]
    given = normalise(found)
    wanted = [normalise(answer) for answer in answers]
    return AnswerScore(exact=float(given in wanted), f1=max(_words_f1(answer, given) for answer in wanted))


def score_answers(questions: Sequence[Question], found: Mapping[str, str]) -> dict[str, float]:
    """The means over all questions, and apart for those with and without an answer where there are both."""
    scores = [(question, score_answer(question, found[question.key])) for question in questions]
    result = {"f1": _mean([s.f1 for _, s in scores]), "exact_match": _mean([s.exact for _, s in scores])}
    without = [score for question, score in scores if question.impossible]
    with_one = [score for question, score in scores if not question.impossible]
    if without and with_one:
        result["answerable_f1"] = _mean([score.f1 for score in with_one])
        result["answerable_exact_match"] = _mean([score.exact for score in with_one])
        result["unanswerable_accuracy"] = _mean([score.exact for score in without])
    return result


def best_threshold(
    questions: Sequence[Question], found: Mapping[str, str], odds: Mapping[str, float], *, metric: str = "f1"
) -> tuple[float, float]:
    """The threshold on ``odds`` (of having no answer, higher is surer) that is best for ``metric``, and its score.

    ``found`` holds the best answer that is not empty; with odds above the threshold there is none. Unlike the official
    script, questions with equal odds change sides together, so that the score is one that the threshold really gives.
    """
    gains: dict[float, float] = {}
    silent = 0.0
    for question in questions:
        none, some = score_answer(question, ""), score_answer(question, found[question.key])
        before, after = (none.f1, some.f1) if metric == "f1" else (none.exact, some.exact)
        silent += before
        gains[odds[question.key]] = gains.get(odds[question.key], 0.0) + after - before
    best, score, total = min(gains, default=0.0) - 1.0, silent, silent
    for value in sorted(gains):
        total += gains[value]
        if total > score:
            best, score = value, total
    return best, score / max(1, len(questions))


def _f1(right: int, wanted: int, given: int) -> float:
    return 2 * right / (wanted + given) if wanted + given else 0.0


def _centred(values: Sequence[float]) -> Floats | None:
    """Values less their mean, as a vector of length one; None where they are all the same."""
    array = np.asarray(values, np.float64)
    if not len(array) or (array == array[0]).all():
        return None
    # Scaled before they are squared, so that neither tiny nor huge values are lost.
    away = array - array.mean()
    away /= np.abs(away).max()
    centred: Floats = away / np.linalg.norm(away)
    return centred


def _ranks(values: Sequence[float]) -> Floats:
    """Places in ascending order, from 1; equal values get the mean of their places."""
    _, place, counts = np.unique(np.asarray(values, np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: Floats = (last - counts + 1 + last) / 2.0
    return means[place]


def set_counts(
    targets: Sequence[LabelSet], found: Sequence[LabelSet], num_labels: int
) -> tuple[Counts, Counts, Counts]:
    """For each label: how often rightly given, how often wanted, how often given."""
    right, wanted, given = (np.zeros(num_labels, np.int64) for _ in range(3))
    for of_target, of_found in zip(targets, found, strict=True):
        wanted[list(set(of_target))] += 1
        given[list(set(of_found))] += 1
        right[list(set(of_target) & set(of_found))] += 1
    return right, wanted, given


def _words_f1(answer: str, found: str) -> float:
    wanted, given = answer.split(), found.split()
    if not wanted or not given:
        return float(wanted == given)
    common = sum((Counter(wanted) & Counter(given)).values())
    if not common:
        return 0.0
    precision, recall = common / len(given), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
