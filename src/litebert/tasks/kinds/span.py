"""A stretch of a passage as the answer to a question, or none (SQuAD).

A long passage is read in windows. A stretch is as good as the sum of the scores of its first and last token, the best
over all windows. Whether there is an answer at all is judged by the score of the token for no answer, and by the head
for that where the model has one (ALBERT appendix A.4). The paper's code asks the head alone; together they were right
earlier in training.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from litebert.data.separated import Cell
from litebert.errors import InputError
from litebert.tasks.columns import PASSAGES, Columns, TableRow, number_in
from litebert.tasks.encoding import NULL, OUTSIDE, Inputs, Small, Targets
from litebert.tasks.examples import (
    Answer,
    EncodingSettings,
    Item,
    ItemPrediction,
    Prediction,
    Question,
    TaskSpec,
)
from litebert.tasks.kinds.base import Floats, HeadScores, Row, TaskKind, row_text, text_ids
from litebert.tasks.metrics import best_threshold, score_answer, score_answers
from litebert.text.tokenizer import Tokenizer

BEST = 20  # stretches that are kept, and tokens that one may begin or end with
MOST_TOKENS = 30  # of an answer


@dataclass(frozen=True)
class SpanAnswer:
    """The best answers to a question, and how likely it is to have none."""

    key: str
    texts: tuple[str, ...]  # the best first
    scores: tuple[float, ...]
    odds: float  # of no answer, as a logit: above 0 it is the likelier
    places: tuple[tuple[int, int], ...] = ()  # of the texts, in characters of the passage


class Span(TaskKind):
    """First and last token, each chosen among the tokens of a window; half of each counts."""

    name = "span"
    described = "answers out of a passage"
    head = "span"
    default_metrics = ("f1", "exact_match")
    item_measure = "F1"
    needs_rows = True
    per_token = True

    def _lay_out(
        self, first: int, items: Sequence[Question], tokenizer: Tokenizer, settings: EncodingSettings
    ) -> Iterator[Row]:
        """The question and a window of the passage, for each window."""
        asked = text_ids(tokenizer, [item.question for item in items])
        passages: dict[str, tuple[list[int], Small]] = {}
        for number, item in enumerate(items, start=first):
            if item.passage not in passages:
                ids, spans = tokenizer.offsets(item.passage)
                passages[item.passage] = ids, np.asarray(spans, np.int32).reshape(-1, 2)
            ids, places = passages[item.passage]
            question = asked[item.question][: settings.question]
            marks = tokenizer.lay_out([-1] * len(question), [-2]).ids
            before = marks.index(-2)
            room = settings.length - len(marks) + 1
            for begin, end in windows(len(ids), room, settings.stride):
                encoded = tokenizer.lay_out(question, ids[begin:end])
                where = np.full((len(encoded.ids), 2), OUTSIDE, np.int32)
                where[before : before + end - begin] = places[begin:end]
                where[0 if marks[0] == tokenizer.cls_id else -1] = NULL
                yield number, encoded, where

    def targets(self, items: Sequence[Item], inputs: Inputs, num_labels: int) -> Targets:
        """Every window is a unit. One without the whole answer is taught to point at no token of the passage."""
        starts, ends = np.zeros(len(inputs), np.int64), np.zeros(len(inputs), np.int64)
        answered = np.zeros(len(inputs), np.float32)
        for row in range(len(inputs)):
            places = inputs.characters[inputs.starts[row] : inputs.starts[row + 1]]
            null = _null_place(places)
            found = _answer_tokens(cast(Question, items[int(inputs.items[row])]), places)
            starts[row], ends[row] = found or (null, null)
            answered[row] = float(found is not None)
        return Targets(np.arange(len(inputs) + 1), labels=starts, ends=ends, answered=answered)

    def decode(self, items: Sequence[Item], inputs: Inputs, scores: HeadScores, spec: TaskSpec) -> list[ItemPrediction]:
        return [decide(answer, spec) for answer in best_answers(cast(Sequence[Question], items), inputs, scores)]

    def fitted(self, spec: TaskSpec, items: Sequence[Item], inputs: Inputs, scores: HeadScores) -> TaskSpec:
        """Where there may be no answer, the threshold that is best for these items."""
        if not spec.has_null:
            return spec
        questions = cast(Sequence[Question], items)
        answers = list(best_answers(questions, inputs, scores))
        found = {answer.key: answer.texts[0] if answer.texts else "" for answer in answers}
        odds = {answer.key: answer.odds for answer in answers}
        return replace(spec, null_threshold=float(best_threshold(questions, found, odds)[0]))

    def evaluate(
        self, metrics: Sequence[str], items: Sequence[Item], found: Sequence[ItemPrediction], num_labels: int
    ) -> dict[str, float]:
        """These metrics first, then the others of SQuAD."""
        texts = {str(index): str(one.label) for index, one in enumerate(found)}
        renamed = [replace(cast(Question, item), key=str(index)) for index, item in enumerate(items)]
        scores = score_answers(renamed, texts)
        return {name: scores[name] for name in (*metrics, *(n for n in scores if n not in metrics))}

    def item_score(self, item: Any, found: ItemPrediction) -> float:
        return score_answer(item, str(found.label)).f1

    def chance_loss(self, items: Sequence[Question], inputs: Inputs, num_labels: int) -> float:
        return float(np.log(inputs.lengths).mean())

    def spread(self, scores: HeadScores, inputs: Inputs) -> tuple[float, bool]:
        rows = np.split(scores.scores, inputs.starts[1:-1])
        return float(np.mean([row.std() for row in rows])), False

    def label_text(self, label: Any, item: Any, labels: Sequence[str]) -> str:
        return str(label) or "no answer"

    def target_text(self, item: Any, labels: Sequence[str]) -> str:
        return " / ".join(dict.fromkeys(answer.text for answer in item.answers)) or "no answer"

    def probability_names(self, spec: TaskSpec) -> tuple[str, ...]:
        return ("probability", "no_answer") if spec.has_null else ("probability",)

    def present(self, item: Any, found: ItemPrediction, spec: TaskSpec) -> Prediction:
        shares = found.probabilities
        return Prediction(
            label=cast(str, found.label),
            probability=shares[-1] if found.start is None and spec.has_null else shares[0],
            start=found.start,
            end=found.end,
        )

    def item_of(self, row: Any, key: str, spec: TaskSpec) -> Item:
        needed = "a question and a context"
        question, passage = (
            row_text(row, names, needed=needed) for names in (("question", "query"), (*PASSAGES, "text"))
        )
        return Question(key=key, title="", passage=passage, question=question)

    def item_of_row(self, row: TableRow, columns: Columns, known: Mapping[str, int], *, labelled: bool) -> Item:
        texts, key, title = row.texts(columns), row.key(columns), str(row.cells.get("title", ""))
        if not columns.labels:
            if len(texts) != 2:
                raise InputError(f"{row.place} needs a passage and a question")
            return Question(key=key, title=title, passage=texts[0], question=texts[1])
        name = columns.labels[0]
        cell = row.cells[name]
        if isinstance(cell, list) and all(isinstance(one, dict) for one in cell):  # as in SQuAD's own files
            cell = {part: [one.get(part) for one in cell] for part in ("text", "answer_start")}
        if not isinstance(cell, dict) or not isinstance(cell.get("text"), list) or len(texts) != 2:
            raise InputError(f'{row.place}: {name} must be {{"text": [...], "answer_start": [...]}}')
        starts = cell.get("answer_start") or [0] * len(cell["text"])
        if not isinstance(starts, list):
            raise InputError(f"{row.place}: the answer_start of {name} is '{starts}', which is not a list")
        for start in starts:
            number = number_in(start)
            if number is None or not number.is_integer():
                raise InputError(f"{row.place}: the answer_start of {name} is '{start}', which is not a whole number")
        pairs = [(str(text), int(float(start))) for text, start in zip(cell["text"], starts, strict=False)]
        answers = tuple(Answer.located(texts[0], *pair) for pair in pairs)
        return Question(
            key=key, title=title, passage=texts[0], question=texts[1], answers=answers, impossible=not answers
        )

    def read_label(self, cell: Cell, known: Mapping[str, int], item: Any, what: str) -> str:
        return "" if cell is None else str(cell)


def windows(tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Begin and end of windows of at most ``room`` tokens, a stride apart, the last one reaching the end."""
    if room < 1:
        raise InputError("the length limit leaves no room for the passage beside the question; raise length")
    step = min(stride, room)
    found = [(0, min(room, tokens))]
    while found[-1][1] < tokens:
        begin = found[-1][0] + step
        found.append((begin, min(begin + room, tokens)))
    return found


def best_answers(questions: Sequence[Question], inputs: Inputs, scores: HeadScores) -> Iterator[SpanAnswer]:
    """The best answers to each question, before it is decided whether there is one."""
    starts, ends = scores.scores, scores.ends
    bounds = inputs.of_items(len(questions))
    for question, first, last in zip(questions, bounds[:-1], bounds[1:], strict=True):
        found: dict[str, tuple[float, int, int]] = {}
        null = float("inf")
        for row in range(first, last):
            at = slice(inputs.starts[row], inputs.starts[row + 1])
            places = inputs.characters[at]
            nowhere = _null_place(places)
            null = min(null, float(starts[at][nowhere] + ends[at][nowhere]))
            for score, begin, end in _stretches(starts[at], ends[at], places):
                text = question.passage[begin:end]
                if text not in found or score > found[text][0]:
                    found[text] = score, begin, end
        best = sorted(found.items(), key=lambda pair: -pair[1][0])[:BEST]
        odds = null - (best[0][1][0] if best else -np.inf)
        if len(scores.answerable):
            odds -= float(scores.answerable[first:last].max(initial=-np.inf))
        yield SpanAnswer(
            question.key,
            tuple(text for text, _ in best),
            tuple(score for _, (score, _, _) in best),
            odds,
            tuple((begin, end) for _, (_, begin, end) in best),
        )


def _stretches(starts: Floats, ends: Floats, places: Small) -> Iterator[tuple[float, int, int]]:
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


def decide(answer: SpanAnswer, spec: TaskSpec) -> ItemPrediction:
    """The answer as a prediction, empty where there is none; its probabilities are of the answer and of none."""
    missing = not answer.texts or (spec.has_null and answer.odds > spec.null_threshold)
    best = _best_share(answer.scores)
    none = float(1 / (1 + np.exp(-np.clip(answer.odds, -500, 500)))) if spec.has_null else 0.0
    start, end = (None, None) if missing else answer.places[0]
    return ItemPrediction(
        key=answer.key,
        label="" if missing else answer.texts[0],
        probabilities=(best * (1 - none), none) if spec.has_null else (best,),
        start=start,
        end=end,
    )


def _best_share(scores: Sequence[float]) -> float:
    """The softmax probability of the first of some scores, 0 where there are none."""
    if not scores:
        return 0.0
    away = np.exp(np.asarray(scores) - max(scores))
    return float((away / away.sum())[0])


def _null_place(places: Small) -> int:
    """The token that stands for no answer."""
    return int(np.flatnonzero(places[:, 0] == NULL)[0])


def _answer_tokens(item: Question, places: npt.NDArray[np.int32]) -> tuple[int, int] | None:
    """First and last token of the answer in a window, or None where it does not hold all of it."""
    if item.impossible or not item.answers or item.answers[0].start < 0:
        return None
    answer = item.answers[0]
    first, last = answer.start, answer.start + len(answer.text)
    inside = np.flatnonzero(places[:, 0] >= 0)
    if not len(inside) or places[inside[0], 0] > first or places[inside[-1], 1] < last:
        return None
    start = inside[np.searchsorted(places[inside, 1], first, side="right")]
    end = inside[np.searchsorted(places[inside, 0], last, side="left") - 1]
    return (int(start), int(end)) if start <= end else None
