"""One of several options for each question, usually about a passage (RACE)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np

from litebert.errors import InputError
from litebert.tasks.encoding import Inputs, Pile, TextIds
from litebert.tasks.examples import LETTERS, EncodingSettings, Item, ItemPrediction, Prediction, TaskSpec
from litebert.tasks.examples import Choice as ChoiceItem
from litebert.tasks.kinds.base import HeadScores, Metric, TaskKind, most_likely, row_text, softmax
from litebert.tasks.metrics import accuracy
from litebert.text.tokenizer import Tokenizer

PASSAGES = ("passage", "context", "article", "story", "premise")
QUESTIONS = ("question", "query", "text", "sentence")
OPTIONS = ("options", "choices", "endings")


class Choice(TaskKind):
    """An input and one score for each option, cross-entropy over the options of a question."""

    name = "choice"
    described = "multiple choice"
    head = "choice"
    metrics: ClassVar[Mapping[str, Metric]] = {"accuracy": lambda targets, found, _: accuracy(targets, found)}
    default_metrics = ("accuracy",)
    item_measure = "accuracy"
    needs_rows = True
    chooses = True

    def _lay_out(
        self, pile: Pile, first: int, items: Sequence[ChoiceItem], tokenizer: Tokenizer, settings: EncodingSettings
    ) -> None:
        """The passage, then question and option as one text, for each option (ALBERT appendix A.4)."""
        pairs = [(number, *pair) for number, item in enumerate(items, start=first) for pair in _option_pairs(item)]
        ids = TextIds(tokenizer, [text for _, one, other in pairs for text in (one, other)])
        for number, one, other in pairs:
            pile.add(number, tokenizer.lay_out(ids[one], ids[other], settings.length))

    def decode(self, items: Sequence[Item], inputs: Inputs, scores: HeadScores, spec: TaskSpec) -> list[ItemPrediction]:
        bounds = inputs.of_items(len(items))
        return [
            most_likely(item.key, softmax(scores.scores[begin:end, 0]))
            for item, begin, end in zip(items, bounds[:-1], bounds[1:], strict=True)
        ]

    def chance_loss(self, items: Sequence[ChoiceItem], inputs: Inputs, num_labels: int) -> float:
        return float(np.mean([math.log(len(item.options)) for item in items]))

    def label_text(self, label: Any, item: Any, labels: Sequence[str]) -> str:
        return f"({LETTERS[label]}) {item.options[label]}"

    def written(self, label: Any, item: Any, labels: Sequence[str]) -> Any:
        return LETTERS[label] if label < len(LETTERS) else str(label)

    def present(self, item: Any, found: ItemPrediction, spec: TaskSpec) -> Prediction:
        index = cast(int, found.label)
        shares = dict(zip(item.options, found.probabilities, strict=True))
        return Prediction(label=item.options[index], probability=found.probabilities[index], probabilities=shares)

    def item_of(self, row: Any, key: str, spec: TaskSpec) -> Item:
        needed = "a question and a list of options"
        question = row_text(row, QUESTIONS, needed=needed)
        options = next((row[name] for name in OPTIONS if name in row), None)
        if isinstance(options, str) or not isinstance(options, Sequence) or len(options) < 2:
            raise InputError(f"the options are {options!r:.80} but must be a list of two or more texts")
        return ChoiceItem(key=key, passage=row_text(row, PASSAGES), question=question, options=tuple(map(str, options)))


def _option_pairs(item: ChoiceItem) -> Iterator[tuple[str, str]]:
    for option in item.options:
        if not item.passage.strip():
            yield item.question, option
        elif "_" in item.question:  # a gap to fill
            yield item.passage, item.question.replace("_", option)
        else:
            yield item.passage, f"{item.question} {option}"
