"""What every kind of task must know: how its items become inputs and targets, how the scores of its head are decoded,
evaluated and shown, and what chance would reach.

A kind is one object without state. Everything else in ``tasks`` asks it and never branches on its name. ``TextKind``
is what the kinds whose items are one text or a pair have in common. No torch here, so that predictions can be decoded
where torch is not installed; heads and losses are in ``litebert.tasks.objective``.

T tokens, L labels, R inputs.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, Literal, cast

import numpy as np
import numpy.typing as npt

from litebert.data.separated import Cell
from litebert.errors import InputError, nearest
from litebert.tasks.columns import Columns, TableRow, is_missing, joined_cells, label_text
from litebert.tasks.encoding import Inputs, Small, Targets
from litebert.tasks.examples import (
    EncodingSettings,
    Example,
    Item,
    ItemPrediction,
    Kind,
    Prediction,
    TaskSpec,
)
from litebert.tasks.metrics import confusion, set_counts
from litebert.text.tokenizer import Encoded, Tokenizer

CHUNK = 2048  # items whose texts are tokenised at once
SMALLEST = 1e-12  # of a probability, before its logarithm is taken
Floats = npt.NDArray[np.float32]
EMPTY: Floats = np.zeros(0, np.float32)
Confusion = tuple[tuple[int, ...], ...]
Metrics = Mapping[str, Callable[..., float]]  # of targets and predictions, for label sets of the number of labels, too
Row = tuple[int, Encoded, Small | None]  # the number of an item, an input of it, where its tokens are in the passage


@dataclass(frozen=True)
class HeadScores:
    """What a head gave for every input; for spans for every token."""

    scores: Floats  # (R, L), (R, 1) of options, (T) of spans
    ends: Floats = field(default_factory=lambda: EMPTY)  # (T) of spans, else empty
    answerable: Floats = field(default_factory=lambda: EMPTY)  # (R) where the model has a head for it, else empty


@dataclass(frozen=True, kw_only=True)
class LabelScore:
    """How well one label is found."""

    name: str
    precision: float
    recall: float
    f1: float
    count: int


class TaskKind(ABC):
    """One kind of task."""

    name: ClassVar[Kind]
    described: ClassVar[str]  # in messages
    head: ClassVar[Literal["classify", "choice", "span", ""]] = "classify"  # "": the mean of the states
    problem: ClassVar[str] = ""  # ``problem_type`` in transformers' words
    metrics: ClassVar[Metrics] = {}
    default_metrics: ClassVar[tuple[str, ...]]  # of own data, the one to optimise first
    item_measure: ClassVar[str]  # what ``item_score`` is
    in_units: ClassVar[bool] = False  # whether ``item_score`` is an error in units of the target, not a share
    has_classes: ClassVar[bool] = False  # whether labels are a fixed set of names
    single_label: ClassVar[bool] = False  # of which every item has one
    needs_rows: ClassVar[bool] = False  # whether an item is more than one text or two
    per_token: ClassVar[bool] = False  # whether the head scores tokens, and a unit of learning is an input
    chooses: ClassVar[bool] = False  # whether a unit has several inputs: options to choose from, texts to compare
    in_windows: ClassVar[bool] = False  # whether a long text can be read in several inputs
    compares: ClassVar[bool] = False  # whether items are scored against each other, so that all must be there at once

    # From items to inputs and targets

    def encode(
        self,
        items: Sequence[Item],
        tokenizer: Tokenizer,
        settings: EncodingSettings,
        progress: Callable[[int], None] = lambda _: None,
    ) -> Inputs:
        """The inputs of all items, in their order; ``progress`` gets the number of items done."""
        check_tokenizer(tokenizer)
        ids, segments, rows, cut = [], [], list[tuple[int, int, Small | None]](), list[bool]()
        for first in range(0, max(1, len(items)), CHUNK):
            some = items[first : first + CHUNK]
            laid = list(self._lay_out(first, some, tokenizer, settings))
            ids.append(_flat(encoded.ids for _, encoded, _ in laid))
            segments.append(_flat(encoded.segments for _, encoded, _ in laid))
            rows += [(number, len(encoded.ids), places) for number, encoded, places in laid]
            cut += [encoded.cut for _, encoded, _ in laid]
            progress(first + len(some))
        places = [where for _, _, where in rows if where is not None]
        return Inputs(
            np.concatenate(ids),
            np.concatenate(segments),
            np.cumsum([0, *(length for _, length, _ in rows)], dtype=np.int64),
            np.asarray([number for number, _, _ in rows], np.int64),
            np.concatenate(places) if places else np.empty((0, 2), np.int32),
            np.asarray(cut, np.bool_),
        )

    @abstractmethod
    def _lay_out(
        self, first: int, items: Sequence[Any], tokenizer: Tokenizer, settings: EncodingSettings
    ) -> Iterator[Row]:
        """The inputs of some items, of which the first has this number."""

    def targets(self, items: Sequence[Item], inputs: Inputs, num_labels: int) -> Targets:
        """The targets of items that all have one; ``inputs`` are theirs."""
        found = [cast(Any, item).target for item in items]
        missing = next((item.key for item, target in zip(items, found, strict=True) if target is None), None)
        if missing is not None:
            raise InputError(f"item '{missing}' has no label; training needs one for every item")
        return self._targets(found, inputs.of_items(len(items)), num_labels)

    def _targets(self, found: Sequence[Any], bounds: npt.NDArray[np.int64], num_labels: int) -> Targets:
        return Targets(bounds, labels=np.asarray(found, np.int64))

    def head_labels(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """What the columns of the head are called."""
        return labels or ("0", "1")

    def metrics_for(self, columns: Columns) -> tuple[str, ...]:
        """The metrics of own data with these columns."""
        return self.default_metrics

    def described_by(self, spec: TaskSpec, train: Sequence[Any]) -> TaskSpec:
        """The task with what must be remembered of the training items, where the kind has such a thing."""
        return spec

    def model_files(self, width: int, max_length: int) -> dict[str, str]:
        """Files of a model folder that belong to the kind, beside ``task.json``."""
        return {}

    # From scores to predictions

    @abstractmethod
    def decode(self, items: Sequence[Item], inputs: Inputs, scores: HeadScores, spec: TaskSpec) -> list[ItemPrediction]:
        """Predictions in the order of the items."""

    def fitted(self, spec: TaskSpec, items: Sequence[Item], inputs: Inputs, scores: HeadScores) -> TaskSpec:
        """The task with what is best chosen on dev items (a threshold), where the kind has such a thing."""
        return spec

    # Scores

    def evaluate(
        self, metrics: Sequence[str], items: Sequence[Item], found: Sequence[ItemPrediction], num_labels: int
    ) -> dict[str, float]:
        """The metrics of these names, in their order."""
        targets = [cast(Any, item).target for item in items]
        predicted = [one.label for one in found]
        size = () if self.single_label or not self.has_classes else (num_labels,)
        return {name: self.metrics[name](targets, predicted, *size) for name in metrics}

    def item_score(self, item: Any, found: ItemPrediction) -> float:
        """How good one prediction is: 1 or 0, an F1, or (of a number) how far off it is."""
        return float(item.target == found.label)

    def breakdown(
        self, labels: Sequence[str], items: Sequence[Item], found: Sequence[ItemPrediction]
    ) -> tuple[Confusion, tuple[LabelScore, ...]]:
        """The confusion matrix (rows: true label, columns: prediction) and scores per label, where there are such."""
        if not self.has_classes:
            return (), ()
        targets, predicted = [cast(Any, item).target for item in items], [cast(Any, one.label) for one in found]
        table: Confusion = ()
        if self.single_label:
            table = tuple(map(tuple, confusion(targets, predicted, len(labels)).tolist()))
            targets, predicted = [(one,) for one in targets], [(one,) for one in predicted]
        counts = (array.tolist() for array in set_counts(targets, predicted, len(labels)))
        return table, tuple(_label_score(*row) for row in zip(labels, *counts, strict=True))

    def target_probability(self, item: Any, found: ItemPrediction) -> float | None:
        """What the model gave the target, where that is known."""
        target = getattr(item, "target", None)
        if isinstance(target, int) and target < len(found.probabilities):
            return found.probabilities[target]
        return None

    def item_loss(self, item: Any, found: ItemPrediction) -> float:
        """The loss of one prediction where its probabilities tell it, else NaN."""
        probability = self.target_probability(item, found)
        return math.nan if probability is None else -math.log(max(probability, SMALLEST))

    @abstractmethod
    def chance_loss(self, items: Sequence[Any], inputs: Inputs, num_labels: int) -> float:
        """The loss of a model that knows how often each answer is right, and nothing of the input.

        Where a kind ``compares``, ``num_labels`` are the items of a forward pass, from which one must be told.
        """

    def spread(self, scores: HeadScores, inputs: Inputs) -> tuple[float, bool]:
        """How much scores differ between inputs, and whether all inputs get one label."""
        return float(scores.scores.std(0).mean()), False

    # For people, and from files

    @abstractmethod
    def label_text(self, label: Any, item: Any, labels: Sequence[str]) -> str:
        """A label in words."""

    def target_text(self, item: Any, labels: Sequence[str]) -> str:
        """The target of an item in words."""
        return self.label_text(item.target, item, labels)

    def written(self, label: Any, item: Any, labels: Sequence[str]) -> Any:
        """A label as files of predictions have it: a name, names, a number, an option's letter, an answer."""
        return label

    def probability_names(self, spec: TaskSpec) -> tuple[str, ...]:
        """What the probabilities of a prediction are of; empty where they have no names."""
        return spec.labels if self.has_classes else ()

    @abstractmethod
    def present(self, item: Any, found: ItemPrediction, spec: TaskSpec) -> Prediction:
        """A prediction by the names of its labels."""

    @abstractmethod
    def item_of(self, row: Any, key: str, spec: TaskSpec) -> Item:
        """An item to predict from what a user gave: a text, a pair, or a row of named texts."""

    @abstractmethod
    def item_of_row(self, row: TableRow, columns: Columns, known: Mapping[str, int], *, labelled: bool) -> Item:
        """An item from a row of a table; ``known`` are the labels, ``labelled`` says that the row has a target."""

    @abstractmethod
    def read_label(self, cell: Cell, known: Mapping[str, int], item: Any, what: str) -> Any:
        """A label as a file has it; ``what`` says in a message where it is, and whether it is a target."""


class TextKind(TaskKind):
    """A kind whose items are one text or a pair; a long one can be read in windows, whose scores are averaged."""

    in_windows = True

    def _lay_out(
        self, first: int, items: Sequence[Example], tokenizer: Tokenizer, settings: EncodingSettings
    ) -> Iterator[Row]:
        """One text or two; of two the longer is cut first."""
        ids = text_ids(tokenizer, [text for item in items for text in (item.first, item.second) if text is not None])
        for number, item in enumerate(items, start=first):
            texts = ids[item.first], None if item.second is None else ids[item.second]
            if settings.windows:
                yield from ((number, one, None) for one in tokenizer.lay_out_windows(*texts, settings.length))
            else:
                yield number, tokenizer.lay_out(*texts, settings.length), None

    def decode(self, items: Sequence[Item], inputs: Inputs, scores: HeadScores, spec: TaskSpec) -> list[ItemPrediction]:
        rows = mean_scores(scores.scores, inputs.of_items(len(items)))
        return [self._decode_row(item.key, row) for item, row in zip(items, rows, strict=True)]

    @abstractmethod
    def _decode_row(self, key: str, row: Floats) -> ItemPrediction:
        """The prediction of one input."""

    def item_of(self, row: Any, key: str, spec: TaskSpec) -> Item:
        if isinstance(row, Mapping):
            missing = [name for part in spec.text for name in part.split("+") if name not in row]
            if missing:
                raise InputError(
                    f"the row has no column {missing[0]}, which this model was trained on; it has {', '.join(row)}"
                )
            row = tuple(joined_cells(row, part.split("+")) for part in spec.text)
        first, second = (*row, None)[:2] if isinstance(row, tuple) else (row, None)
        if spec.pairs and second is None:
            raise InputError("this model reads pairs of texts; give the second ones as pairs")
        return Example(key=key, first=first, second=second)

    def item_of_row(self, row: TableRow, columns: Columns, known: Mapping[str, int], *, labelled: bool) -> Item:
        first, second = (*row.texts(columns), None)[:2]
        assert first is not None
        target = self._target(row, columns, known) if labelled else None
        return Example(key=row.key(columns), first=first, second=second, target=target)

    def _target(self, row: TableRow, columns: Columns, known: Mapping[str, int]) -> Any:
        name = columns.labels[0]
        if self.single_label and is_missing(row.cells[name]):
            raise InputError(f"{row.place} has no {name}; fill or remove it")
        what = "label" if self.has_classes else "target"
        return self.read_label(row.cells[name], known, None, f"{row.place}: the {what}")


def mean_scores(rows: Floats, bounds: npt.NDArray[np.int64]) -> Floats:
    """The mean over the windows of each text, where any has more than one; ``bounds`` are the first window of each."""
    if len(rows) == len(bounds) - 1:
        return rows
    sums = np.add.reduceat(rows, bounds[:-1], axis=0)
    return (sums / np.diff(bounds)[:, None]).astype(np.float32)


def _flat(rows: Iterable[Sequence[int]]) -> Small:
    return np.fromiter(chain.from_iterable(rows), np.int32)


def check_tokenizer(tokenizer: Tokenizer) -> None:
    """An error where there are no tokens to begin and end an input with."""
    if tokenizer.cls_id is None or tokenizer.sep_id is None:
        raise InputError("this model's tokenizer has no tokens to begin and end an input with; use another model")


def text_ids(tokenizer: Tokenizer, texts: Sequence[str]) -> dict[str, list[int]]:
    """The ids of texts, each tokenised once however often it occurs."""
    unique = list(dict.fromkeys(texts))
    return dict(zip(unique, tokenizer.ids_batch(unique), strict=True)) if unique else {}


def class_index(cell: Cell, known: Mapping[str, int], what: str) -> int:
    """The index of a class, which must be known."""
    word = label_text(cell)
    if word not in known:
        names = [name for name in known if not name.isdecimal()]  # files of predictions may also have indices
        raise InputError(f"{what} '{word}' is not among those the model learns{nearest(word, names or known)}")
    return known[word]


def softmax(row: Floats) -> npt.NDArray[np.float64]:
    """Probabilities from logits, in double precision."""
    away = np.exp(row.astype(np.float64) - float(row.max()))
    shares: npt.NDArray[np.float64] = away / away.sum()
    return shares


def most_likely(key: str, shares: npt.NDArray[Any]) -> ItemPrediction:
    """The prediction of the likeliest of some classes or options."""
    return ItemPrediction(key=key, label=int(shares.argmax()), probabilities=tuple(map(float, shares)))


def present_chosen(names: Sequence[str], found: ItemPrediction) -> Prediction:
    """The prediction of one of some classes or options, by their names."""
    index, shares = cast(int, found.label), found.probabilities
    return Prediction(
        label=names[index], probability=shares[index], probabilities=dict(zip(names, shares, strict=True))
    )


def entropy(shares: Iterable[float]) -> float:
    """In nats."""
    return -sum(share * math.log(share) for share in shares if share > 0)


def _label_score(name: str, right: int, wanted: int, given: int) -> LabelScore:
    """The scores of a label that is predicted rightly, is the target and is predicted this many times."""
    return LabelScore(
        name=name,
        precision=right / given if given else 0.0,
        recall=right / wanted if wanted else 0.0,
        f1=2 * right / (wanted + given) if wanted + given else 0.0,
        count=wanted,
    )


def row_text(row: Any, names: Sequence[str], *, needed: str = "") -> str:
    """The text of the first of some columns that a row has; ``needed`` describes it where one must be there."""
    if not isinstance(row, Mapping):
        raise InputError(f"{row!r:.80} is a {type(row).__name__}; this model needs a dict with {needed or 'its texts'}")
    for name in names:
        if isinstance(row.get(name), str):
            return cast(str, row[name])
    if needed:
        raise InputError(f"the row has {', '.join(map(str, row)) or 'no columns'} but needs {needed}")
    return ""
