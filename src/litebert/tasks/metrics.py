"""The metrics of the benchmarks: accuracy, F1 in its forms, Matthews, Pearson, Spearman, and errors of numbers.

Each gives what scikit-learn or SciPy gives. Where those have no number (a correlation with something constant) the
answer is 0, because a model that says the same of everything has found nothing, and a run must be able to compare.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]
Counts = np.ndarray[Any, np.dtype[np.int64]]
LabelSet = tuple[int, ...]


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
    wanted, given = table.sum(1), table.sum(0)
    scores = [
        _f1(int(table[label, label]), int(wanted[label]), int(given[label]))
        for label in range(len(table))
        if wanted[label] + given[label]
    ]
    return float(np.mean(scores))


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


def exact_sets(targets: Sequence[LabelSet], found: Sequence[LabelSet]) -> float:
    """The share of items whose every label is right."""
    return float(np.mean([set(wanted) == set(given) for wanted, given in zip(targets, found, strict=True)]))


def micro_f1(targets: Sequence[LabelSet], found: Sequence[LabelSet]) -> float:
    """F1 over all labels of all items at once."""
    right, wanted, given = _set_counts(targets, found, 1 + _largest(targets, found))
    return _f1(int(right.sum()), int(wanted.sum()), int(given.sum()))


def macro_set_f1(targets: Sequence[LabelSet], found: Sequence[LabelSet], num_labels: int) -> float:
    """The mean of the F1 of every label, those that never occur counting 0."""
    right, wanted, given = _set_counts(targets, found, num_labels)
    rows = zip(right.tolist(), wanted.tolist(), given.tolist(), strict=True)
    return float(np.mean([_f1(*row) for row in rows]))


def set_f1(wanted: LabelSet, given: LabelSet) -> float:
    """F1 of the labels of one item; saying nothing is right where there is nothing."""
    if not wanted and not given:
        return 1.0
    return _f1(len(set(wanted) & set(given)), len(set(wanted)), len(set(given)))


Metric = Callable[[Sequence[Any], Sequence[Any], int], float]  # targets, predictions, number of labels

METRICS: Mapping[str, Mapping[str, Metric]] = {
    "classify": {
        "accuracy": lambda targets, found, _: accuracy(targets, found),
        "f1": lambda targets, found, _: binary_f1(targets, found),
        "macro_f1": lambda targets, found, _: macro_f1(targets, found),
        "matthews": lambda targets, found, _: matthews(targets, found),
    },
    "choice": {"accuracy": lambda targets, found, _: accuracy(targets, found)},
    "multilabel": {
        "micro_f1": lambda targets, found, _: micro_f1(targets, found),
        "macro_f1": macro_set_f1,
        "exact_match": lambda targets, found, _: exact_sets(targets, found),
    },
    "regress": {
        "pearson": lambda targets, found, _: pearson(targets, found),
        "spearman": lambda targets, found, _: spearman(targets, found),
        "mean_absolute_error": lambda targets, found, _: mean_absolute_error(targets, found),
        "root_mean_squared_error": lambda targets, found, _: root_mean_squared_error(targets, found),
    },
}
IN_UNITS = ("mean_absolute_error", "root_mean_squared_error")  # of the target; every other one is a share


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


def _largest(targets: Sequence[LabelSet], found: Sequence[LabelSet]) -> int:
    return max((label for labels in (*targets, *found) for label in labels), default=0)


def _set_counts(
    targets: Sequence[LabelSet], found: Sequence[LabelSet], num_labels: int
) -> tuple[Counts, Counts, Counts]:
    """For each label: how often rightly given, how often wanted, how often given."""
    right, wanted, given = (np.zeros(num_labels, np.int64) for _ in range(3))
    for of_target, of_found in zip(targets, found, strict=True):
        wanted[list(set(of_target))] += 1
        given[list(set(of_found))] += 1
        right[list(set(of_target) & set(of_found))] += 1
    return right, wanted, given
