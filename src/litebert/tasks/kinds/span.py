"""From the scores of tokens to answers: the best stretches of a passage over all its windows, or none.

A stretch is as good as the sum of the scores of its first and last token. Whether there is an answer at all is judged
by the score of the token for no answer, and by the head for that where the model has one (ALBERT appendix A.4). The
paper's code asks the head alone; together they were right earlier in training.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from litebert.tasks.encoding import Inputs
from litebert.tasks.examples import Prediction, Question
from litebert.tasks.targets import null_place

if TYPE_CHECKING:
    from litebert.tasks.predicting import TaskNote

Floats = npt.NDArray[np.float32]

BEST = 20  # stretches that are kept, and tokens that one may begin or end with
MOST_TOKENS = 30  # of an answer


@dataclass(frozen=True)
class SpanAnswer:
    """The best answers to a question, and how likely it is to have none."""

    key: str
    texts: tuple[str, ...]  # the best first
    scores: tuple[float, ...]
    odds: float  # of no answer, as a logit: above 0 it is the likelier


def best_answers(
    questions: Sequence[Question], inputs: Inputs, starts: Floats, ends: Floats, answerable: Floats
) -> Iterator[SpanAnswer]:
    """For each question its best answers; ``answerable`` (one an input) is empty where the model has no such head."""
    bounds = inputs.of_items(len(questions))
    for question, first, last in zip(questions, bounds[:-1], bounds[1:], strict=True):
        found: dict[str, float] = {}
        null = float("inf")
        for row in range(first, last):
            at = slice(inputs.starts[row], inputs.starts[row + 1])
            places = inputs.characters[at]
            nowhere = null_place(places)
            null = min(null, float(starts[at][nowhere] + ends[at][nowhere]))
            for score, begin, end in _stretches(starts[at], ends[at], places):
                text = question.passage[begin:end]
                found[text] = max(score, found.get(text, -np.inf))
        best = sorted(found.items(), key=lambda pair: -pair[1])[:BEST]
        odds = null - (best[0][1] if best else -np.inf)
        if len(answerable):
            odds -= float(answerable[first:last].max(initial=-np.inf))
        yield SpanAnswer(question.key, tuple(text for text, _ in best), tuple(score for _, score in best), odds)


def _stretches(starts: Floats, ends: Floats, places: npt.NDArray[np.int32]) -> Iterator[tuple[float, int, int]]:
    """Scores and characters of the best stretches of a window."""
    inside = np.flatnonzero(places[:, 0] >= 0)
    if not len(inside):
        return
    first = inside[np.argsort(-starts[inside], kind="stable")[:BEST]]
    last = inside[np.argsort(-ends[inside], kind="stable")[:BEST]]
    lengths = last[None, :] - first[:, None]
    sums = starts[first][:, None] + ends[last][None, :]
    sums = np.where((lengths >= 0) & (lengths < MOST_TOKENS), sums, -np.inf)
    for cell in np.argsort(-sums, axis=None, kind="stable")[:BEST]:
        row, column = divmod(int(cell), len(last))
        if np.isfinite(sums[row, column]):
            yield float(sums[row, column]), int(places[first[row], 0]), int(places[last[column], 1])


def decide(answer: SpanAnswer, note: "TaskNote") -> Prediction:
    """The answer as a prediction, empty where there is none; its probabilities are of the answer and of none."""
    missing = not answer.texts or (note.has_null and answer.odds > note.null_threshold)
    shares = _shares(answer.scores)
    none = float(1 / (1 + np.exp(-np.clip(answer.odds, -500, 500)))) if note.has_null else 0.0
    best = shares[0] if shares else 0.0
    text = "" if missing else answer.texts[0]
    return Prediction(key=answer.key, label=text, probabilities=(best * (1 - none), none) if note.has_null else (best,))


def _shares(scores: Sequence[float]) -> list[float]:
    if not scores:
        return []
    away = np.exp(np.asarray(scores) - max(scores))
    return [float(share) for share in away / away.sum()]
