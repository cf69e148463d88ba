"""What every kind of task must know: how its items become inputs and targets, how the scores of its head are decoded,
evaluated and shown, and what chance would reach.

A kind is one object without state. Everything else in ``tasks`` asks it and never branches on its name. ``TextKind``
is what the kinds whose items are one text or a pair have in common. No torch here, so that predictions can be decoded
where torch is not installed; heads and losses are in ``litebert.tasks.objective``.

T tokens, L labels, R inputs.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import numpy as np
import numpy.typing as npt

from litebert.errors import InputError
from litebert.tasks.encoding import Inputs, Pile, Targets, TextIds, joined
from litebert.tasks.examples import (
    Choice,
    EncodingSettings,
    Example,
    Item,
    ItemPrediction,
    Kind,
    Prediction,
    TaskSpec,
)
from litebert.text.tokenizer import Tokenizer

CHUNK = 2048  # items whose texts are tokenised at once
SMALLEST = 1e-12  # of a probability, before its logarithm is taken
Floats = npt.NDArray[np.float32]
Metric = Callable[[Sequence[Any], Sequence[Any], int], float]  # targets, predictions, number of labels
Confusion = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class HeadScores:
    """What a head gave for every input; for spans for every token."""

    scores: Floats  # (R, L), (R, 1) of options, (T) of spans
    ends: Floats  # (T) of spans, else empty
    answerable: Floats  # (R) where the model has a head for it, else empty


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
    head: ClassVar[Literal["classify", "choice", "span"]] = "classify"
    problem: ClassVar[str] = ""  # ``problem_type`` in transformers' words
    metrics: ClassVar[Mapping[str, Metric]] = {}
    default_metrics: ClassVar[tuple[str, ...]]  # of a person's own data, the one to optimise first
    item_measure: ClassVar[str]  # what ``item_score`` is
    in_units: ClassVar[bool] = False  # whether ``item_score`` is an error in units of the target, not a share
    has_classes: ClassVar[bool] = False  # whether labels are a fixed set of names
    single_label: ClassVar[bool] = False  # of which every item has one
    needs_rows: ClassVar[bool] = False  # whether an item is more than one text or two
    per_token: ClassVar[bool] = False  # whether the head scores tokens, and a unit of learning is an input
    chooses: ClassVar[bool] = False  # whether the inputs of a unit are options to choose from

    # From items to inputs and targets

    def encode(
        self,
        items: Sequence[Item],
        tokenizer: Tokenizer,
        settings: EncodingSettings,
        progress: Callable[[int], None] = lambda _: None,
    ) -> Inputs:
        """The inputs of all items, in their order; ``progress`` gets the number of items done."""
        if tokenizer.cls_id is None or tokenizer.sep_id is None:
            raise InputError("this model's tokenizer has no tokens to begin and end an input with; use another model")
        parts = []
        for first in range(0, len(items), CHUNK):
            pile = Pile()
            some = items[first : first + CHUNK]
            self._lay_out(pile, first, some, tokenizer, settings)
            parts.append(pile.inputs())
            progress(first + len(some))
        return joined(parts)

    @abstractmethod
    def _lay_out(
        self, pile: Pile, first: int, items: Sequence[Any], tokenizer: Tokenizer, settings: EncodingSettings
    ) -> None:
        """Add the inputs of some items, of which the first has this number."""

    def targets(self, items: Sequence[Item], inputs: Inputs, num_labels: int) -> Targets:
        """The targets of items that all have one; ``inputs`` are theirs."""
        found = [cast(Example | Choice, item).target for item in items]
        missing = next((item.key for item, target in zip(items, found, strict=True) if target is None), None)
        if missing is not None:
            raise InputError(f"item '{missing}' has no label; training needs one for every item")
        return self._targets(cast(list[Any], found), inputs.of_items(len(items)), num_labels)

    def _targets(self, found: Sequence[Any], bounds: npt.NDArray[np.int64], num_labels: int) -> Targets:
        return Targets(bounds, labels=np.asarray(found, np.int64))

    def head_labels(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """What the columns of the head are called."""
        return labels or ("0", "1")

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
        targets = [cast(Example | Choice, item).target for item in items]
        predicted = [one.label for one in found]
        return {name: self.metrics[name](targets, predicted, num_labels) for name in metrics}

    def item_score(self, item: Any, found: ItemPrediction) -> float:
        """How good one prediction is: 1 or 0, an F1, or (of a number) how far off it is."""
        return float(item.target == found.label)

    def breakdown(
        self, labels: Sequence[str], items: Sequence[Item], found: Sequence[ItemPrediction]
    ) -> tuple[Confusion, tuple[LabelScore, ...]]:
        """The confusion matrix (rows: true label, columns: prediction) and scores per label, where there are such."""
        return (), ()

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
        """The loss of a model that knows how often each answer is right, and nothing of the input."""

    def spread(self, scores: HeadScores, inputs: Inputs) -> tuple[float, bool]:
        """How much scores differ between inputs, and whether all inputs get one label."""
        return float(scores.scores.std(0).mean()), False

    # For people

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
        return ()

    @abstractmethod
    def present(self, item: Any, found: ItemPrediction, spec: TaskSpec) -> Prediction:
        """A prediction by the names of its labels."""

    @abstractmethod
    def item_of(self, row: Any, key: str, spec: TaskSpec) -> Item:
        """An item to predict from what a person gave: a text, a pair, or a row of named texts."""


class TextKind(TaskKind):
    """A kind whose items are one text or a pair."""

    def _lay_out(
        self, pile: Pile, first: int, items: Sequence[Example], tokenizer: Tokenizer, settings: EncodingSettings
    ) -> None:
        """One text or two; of two the longer is cut first."""
        ids = TextIds(tokenizer, [text for item in items for text in (item.first, item.second) if text is not None])
        for number, item in enumerate(items, start=first):
            second = None if item.second is None else ids[item.second]
            pile.add(number, tokenizer.lay_out(ids[item.first], second, settings.length))

    def decode(self, items: Sequence[Item], inputs: Inputs, scores: HeadScores, spec: TaskSpec) -> list[ItemPrediction]:
        return [self._decode_row(item.key, row) for item, row in zip(items, scores.scores, strict=True)]

    @abstractmethod
    def _decode_row(self, key: str, row: Floats) -> ItemPrediction:
        """The prediction of one input."""

    def item_of(self, row: Any, key: str, spec: TaskSpec) -> Item:
        if isinstance(row, Mapping):
            row = tuple(_joined_cells(row, part.split("+")) for part in spec.text)
        first, second = (*row, None)[:2] if isinstance(row, tuple) else (row, None)
        if spec.pairs and second is None:
            raise InputError("this model reads pairs of texts; give the second ones as pairs")
        return Example(key=key, first=first, second=second)


def softmax(row: Floats) -> npt.NDArray[np.float64]:
    """Probabilities from logits, in double precision."""
    away = np.exp(row.astype(np.float64) - float(row.max()))
    shares: npt.NDArray[np.float64] = away / away.sum()
    return shares


def most_likely(key: str, shares: npt.NDArray[Any]) -> ItemPrediction:
    """The prediction of the likeliest of some classes or options."""
    return ItemPrediction(key=key, label=int(shares.argmax()), probabilities=tuple(map(float, shares)))


def entropy(shares: Iterable[float]) -> float:
    """In nats."""
    return -sum(share * math.log(share) for share in shares if share > 0)


def label_score(name: str, right: int, wanted: int, given: int) -> LabelScore:
    """The scores of a label that is right so often, is the target so often and was predicted so often."""
    return LabelScore(
        name=name,
        precision=right / given if given else 0.0,
        recall=right / wanted if wanted else 0.0,
        f1=2 * right / (wanted + given) if wanted + given else 0.0,
        count=wanted,
    )


def _joined_cells(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """The texts of some columns of a row, joined as those of training files are."""
    missing = [name for name in names if name not in row]
    if missing:
        raise InputError(
            f"the row has no column {missing[0]}, which this model was trained on; it has {', '.join(row)}"
        )
    cells = [str(row[name]).strip() for name in names if row[name] is not None and row[name] == row[name]]
    return "\n".join(cell for cell in cells if cell)


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
