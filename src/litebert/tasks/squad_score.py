"""SQuAD's own scores: exact match and F1 of answers after its normalisation, and the best threshold for no answer.

The rules are those of the official evaluators of SQuAD 1.1 and 2.0, down to which characters count as punctuation. Of
several right answers the one closest to the prediction counts.
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from litebert.tasks.examples import Question

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)  # ASCII only, as in the official scripts


@dataclass(frozen=True, kw_only=True)
class AnswerScore:
    """How good one answer is."""

    exact: float
    f1: float


def normalise(text: str) -> str:
    """Lower case, without punctuation, articles and needless spaces."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def score_answer(question: Question, found: str) -> AnswerScore:
    """Exact match and F1 of ``found`` against the right answer closest to it; empty is right where there is none."""
    # Answers of which normalisation leaves nothing do not count (SQuAD 2.0's evaluator), lest silence be right.
    answers = [answer.text for answer in question.answers if normalise(answer.text)]
    if question.impossible or not answers:
        answers = [""]
    given = normalise(found)
    wanted = [normalise(answer) for answer in answers]
    return AnswerScore(exact=float(given in wanted), f1=max(_f1(answer, given) for answer in wanted))


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


@dataclass(frozen=True, kw_only=True)
class NullThreshold:
    """Say "no answer" where the odds of it are above ``value``: what that gives."""

    value: float
    score: float


def best_threshold(
    questions: Sequence[Question], found: Mapping[str, str], odds: Mapping[str, float], *, metric: str = "f1"
) -> NullThreshold:
    """The threshold on ``odds`` (of having no answer, higher is surer) that is best for ``metric``.

    ``found`` holds the best answer that is not empty. Unlike the official script, questions with equal odds change
    sides together, so that the score is one that the threshold really gives.
    """
    gains: dict[float, float] = {}
    silent = 0.0
    for question in questions:
        text = found[question.key]
        none = score_answer(question, "")
        some = score_answer(question, text)
        before, after = (none.f1, some.f1) if metric == "f1" else (none.exact, some.exact)
        silent += before
        gains[odds[question.key]] = gains.get(odds[question.key], 0.0) + after - before
    best, score, total = min(gains, default=0.0) - 1.0, silent, silent
    for value in sorted(gains):
        total += gains[value]
        if total > score:
            best, score = value, total
    return NullThreshold(value=best, score=score / max(1, len(questions)))


def _f1(answer: str, found: str) -> float:
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
