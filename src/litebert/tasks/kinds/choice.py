"""One of several options for each question, usually about a passage (RACE)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

import numpy as np

from litebert.data.files import kind_of_value
from litebert.data.separated import Cell
from litebert.errors import InputError
from litebert.tasks.columns import OPTION_LISTS, PASSAGES, QUESTIONS, Columns, TableRow, label_text, number_in
from litebert.tasks.encoding import Inputs
from litebert.tasks.examples import LETTERS, EncodingSettings, Item, ItemPrediction, Prediction, TaskSpec
from litebert.tasks.examples import Choice as ChoiceItem
from litebert.tasks.kinds.base import (
    HeadScores,
    Metrics,
    Row,
    TaskKind,
    most_likely,
    present_chosen,
    row_text,
    softmax,
    text_ids,
)
from litebert.tasks.metrics import accuracy
from litebert.text.tokenizer import Tokenizer


class Choice(TaskKind):
    """An input and one score for each option, softmax over the options of a question."""

    name = "choice"
    described = "multiple choice"
    head = "choice"
    metrics: ClassVar[Metrics] = {"accuracy": accuracy}
    default_metrics = ("accuracy",)
    item_measure = "accuracy"
    needs_rows = True
    chooses = True

    def _lay_out(
        self, first: int, items: Sequence[ChoiceItem], tokenizer: Tokenizer, settings: EncodingSettings
    ) -> Iterator[Row]:
        """The passage, then question and option as one text, for each option (ALBERT appendix A.4)."""
        pairs = [(number, *pair) for number, item in enumerate(items, start=first) for pair in _option_pairs(item)]
        ids = text_ids(tokenizer, [text for _, one, other in pairs for text in (one, other)])
        for number, one, other in pairs:
            yield number, tokenizer.lay_out(ids[one], ids[other], settings.length), None

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
        return present_chosen(item.options, found)

    def item_of(self, row: Any, key: str, spec: TaskSpec) -> Item:
        needed = "a question and a list of options"
        question = row_text(row, QUESTIONS, needed=needed)
        options = next((row[name] for name in OPTION_LISTS if name in row), None)
        if isinstance(options, str) or not isinstance(options, Sequence) or len(options) < 2:
            raise InputError(f"the options are {options!r:.80} but must be a list of two or more texts")
        return ChoiceItem(key=key, passage=row_text(row, PASSAGES), question=question, options=tuple(map(str, options)))

    def item_of_row(self, row: TableRow, columns: Columns, known: Mapping[str, int], *, labelled: bool) -> Item:
        names, texts = columns.options, row.texts(columns)
        cells = row.cells[names[0]] if len(names) == 1 else [row.cells[name] for name in names]
        if not isinstance(cells, list | None):
            raise InputError(f"{row.place}: {names[0]} is not a list of options but {kind_of_value(cells)}")
        options = tuple(str(cell).strip() for cell in cells or () if cell is not None and str(cell).strip())
        if len(options) < 2:
            raise InputError(f"{row.place} has {len(options)} options; a choice needs two or more")
        passage, question = texts if len(texts) > 1 else ("", texts[0])
        item = ChoiceItem(key=row.key(columns), passage=passage, question=question, options=options)
        if not labelled:
            return item
        name = columns.labels[0]
        return replace(item, target=self.read_label(row.cells[name], known, item, f"{row.place}: {name}"))

    def read_label(self, cell: Cell, known: Mapping[str, int], item: Any, what: str) -> int:
        """The option by its number from 0, its letter, or its text."""
        word, number, options = label_text(cell) if cell is not None else "", number_in(cell), item.options
        if number is not None and number.is_integer() and 0 <= number < len(options):
            return int(number)
        if len(word) == 1 and 0 <= LETTERS.find(word.upper()) < len(options):
            return LETTERS.find(word.upper())
        if word in options:
            return cast(int, options.index(word))
        raise InputError(
            f"{what} is '{word}' but must be a number from 0 to {len(options) - 1}, a letter or the text of an option"
        )


def _option_pairs(item: ChoiceItem) -> Iterator[tuple[str, str]]:
    for option in item.options:
        if not item.passage.strip():
            yield item.question, option
        elif "_" in item.question:  # a gap to fill
            yield item.passage, item.question.replace("_", option)
        else:
            yield item.passage, f"{item.question} {option}"
