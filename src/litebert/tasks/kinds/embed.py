"""Vectors whose cosines say how near two texts are, learnt from pairs: of texts that belong together, or with scores.

There is no head: a text's vector is the mean of its states, scaled to length 1. Each text of a pair is an input of its
own. A pair without a score is told from the pairs beside it in the batch; dev measures at which place the second text
comes when the second texts of all dev pairs are sorted by nearness to the first. A pair with a score is a regression
of its cosine.

R inputs, H width, P pairs, C candidates.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from litebert.data.separated import Cell
from litebert.errors import InputError
from litebert.pooling import SentenceSettings
from litebert.tasks.columns import Columns, TableRow
from litebert.tasks.encoding import IGNORED, Inputs, Targets
from litebert.tasks.examples import EncodingSettings, Example, Item, ItemPrediction, Prediction, TaskSpec
from litebert.tasks.kinds.base import Floats, HeadScores, Metrics, TextKind, check_tokenizer
from litebert.tasks.kinds.regress import read_number
from litebert.tasks.metrics import pearson, spearman
from litebert.text.tokenizer import Tokenizer

TOGETHER = 1  # the target of a pair without a score: its texts belong together
TOP = 10
GAP = -1  # where a text stands between the special tokens
CHUNK = 16_384  # items whose texts are tokenised at once
BLOCK = 1024  # first texts that are compared with all candidates at once


class Embed(TextKind):
    """The cosine of two texts' vectors is their similarity."""

    name = "embed"
    described = "pairs of texts for sentence vectors"
    head = ""
    metrics: ClassVar[Metrics] = {"spearman": spearman, "pearson": pearson}
    default_metrics = ("mrr", "recall_at_1", "recall_at_10")
    item_measure = "1 / (1 + error)"  # the texts that are wrongly nearer, or the distance from the score
    in_windows = False
    chooses = True
    compares = True

    def metrics_for(self, columns: Columns) -> tuple[str, ...]:
        return tuple(self.metrics) if columns.labels else self.default_metrics

    # From items to inputs and targets

    def encode(
        self,
        items: Sequence[Item],
        tokenizer: Tokenizer,
        settings: EncodingSettings,
        progress: Callable[[int], None] = lambda _: None,
    ) -> Inputs:
        """Every text of a pair by itself: the first, the second, those that do not belong.

        There may be millions, so no object is made for each.
        """
        check_tokenizer(tokenizer)
        frame = tokenizer.lay_out([GAP])
        place = frame.ids.index(GAP)
        before, after = frame.ids[:place], frame.ids[place + 1 :]
        room = settings.length - len(before) - len(after)
        ids, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        for first in range(0, len(items), CHUNK):
            some = cast(Sequence[Example], items[first : first + CHUNK])
            found = tokenizer.ids_batch([text for item in some for text in _texts(item)])
            rows = [[*before, *row[:room], *after] for row in found]
            ids.append(np.fromiter(chain.from_iterable(rows), np.int32))
            lengths.append(np.fromiter(map(len, rows), np.int64, len(rows)))
            progress(first + len(some))
        starts = np.cumsum(np.concatenate([[0], *lengths]), dtype=np.int64)
        segments = np.full(starts[-1], frame.segments[place], np.int32)
        for number, segment in enumerate(frame.segments[:place]):
            segments[starts[:-1] + number] = segment
        for number, segment in enumerate(frame.segments[:place:-1], start=1):
            segments[starts[1:] - number] = segment
        owners = np.repeat(np.arange(len(items)), [len(_texts(cast(Example, item))) for item in items])
        return Inputs(np.concatenate(ids), segments, starts, owners, np.empty((0, 2), np.int32))

    def targets(self, items: Sequence[Item], inputs: Inputs, num_labels: int) -> Targets:
        """Scores between 0 and 1; or the numbers of the texts, so that a text is never told from itself."""
        examples = cast(Sequence[Example], items)
        bounds = inputs.of_items(len(items))
        if _scored(examples):
            low, high = _score_range(examples)
            scores = [(cast(float, item.target) - low) / (high - low) for item in examples]
            return Targets(bounds, values=np.asarray(scores, np.float32))
        numbers: dict[str, int] = {}
        labels = np.full((len(items), int(np.diff(bounds).max())), IGNORED, np.int64)
        for row, item in enumerate(examples):
            found = [numbers.setdefault(" ".join(text.casefold().split()), len(numbers)) for text in _texts(item)]
            labels[row, : len(found)] = found
        return Targets(bounds, labels=labels)

    def described_by(self, spec: TaskSpec, train: Sequence[Any]) -> TaskSpec:
        return replace(spec, score_range=_score_range(train)) if _scored(train) else spec

    def model_files(self, width: int, max_length: int) -> dict[str, str]:
        """How sentence-transformers, and ``encode``, make vectors with the model."""
        return SentenceSettings(pooling="mean", max_length=max_length, normalize=True).files(width)

    # From vectors to predictions

    def decode(self, items: Sequence[Item], inputs: Inputs, scores: HeadScores, spec: TaskSpec) -> list[ItemPrediction]:
        examples = cast(Sequence[Example], items)
        vectors = scores.scores / np.maximum(np.linalg.norm(scores.scores, axis=1, keepdims=True), 1e-12)
        at = inputs.of_items(len(items))[:-1]
        firsts, seconds = vectors[at], vectors[at + 1]
        low, high = spec.score_range
        shown = low + (high - low) * (firsts * seconds).sum(1, dtype=np.float64)
        ranks: Sequence[int | None] = [None] * len(items)
        if examples and all(isinstance(item.target, int) for item in examples):
            ranks = _ranks(examples, firsts, seconds)
        return [
            ItemPrediction(key=item.key, label=float(label), rank=rank)
            for item, label, rank in zip(items, shown, ranks, strict=True)
        ]

    # Scores

    def evaluate(
        self, metrics: Sequence[str], items: Sequence[Item], found: Sequence[ItemPrediction], num_labels: int
    ) -> dict[str, float]:
        if metrics[0] in self.metrics:
            return super().evaluate(metrics, items, found, num_labels)
        ranks = np.asarray([_rank(one) for one in found], np.float64)
        figures = {
            "mrr": np.mean(1 / ranks),
            "recall_at_1": np.mean(ranks == 1),
            f"recall_at_{TOP}": np.mean(ranks <= TOP),
        }
        return {name: float(figures[name]) for name in metrics}

    def item_score(self, item: Any, found: ItemPrediction) -> float:
        if isinstance(item.target, int):
            return 1 / _rank(found)
        error: float = abs(item.target - cast(float, found.label))
        return 1 / (1 + error)

    def item_loss(self, item: Any, found: ItemPrediction) -> float:
        return math.nan

    def chance_loss(self, items: Sequence[Example], inputs: Inputs, num_labels: int) -> float:
        """Of scores their variance; else each of the pairs of a forward pass is as likely."""
        if not _scored(items):
            return math.log(max(num_labels, 1))
        low, high = _score_range(items)
        return float(np.var([(cast(float, item.target) - low) / (high - low) for item in items]))

    # For people, and from files

    def label_text(self, label: Any, item: Any, labels: Sequence[str]) -> str:
        return "belong together" if isinstance(label, int) else f"{label:.3f}"

    def present(self, item: Any, found: ItemPrediction, spec: TaskSpec) -> Prediction:
        return Prediction(label=cast(float, found.label))

    def item_of(self, row: Any, key: str, spec: TaskSpec) -> Item:
        item = super().item_of(row, key, spec)
        if cast(Example, item).second is None:
            raise InputError("this model compares texts; give the second ones as pairs, or use encode for single texts")
        return item

    def item_of_row(self, row: TableRow, columns: Columns, known: Mapping[str, int], *, labelled: bool) -> Item:
        first, second = row.texts(columns)
        if labelled and not (first and second):
            raise InputError(f"{row.place} lacks one of the two texts; fill or remove it")
        target = self._target(row, columns, known) if labelled and columns.labels else None
        cells = [row.cells.get(name) for name in columns.options]
        given = [one for cell in cells for one in (cell if isinstance(cell, list) else [cell])]
        return Example(
            key=row.key(columns),
            first=first,
            second=second,
            target=TOGETHER if labelled and target is None else target,
            negatives=tuple(text for one in given if one is not None and (text := str(one).strip())),
        )

    def read_label(self, cell: Cell, known: Mapping[str, int], item: Any, what: str) -> float:
        return read_number(cell, what)

    def _decode_row(self, key: str, row: Floats) -> ItemPrediction:
        raise AssertionError("items are decoded together")


def _texts(item: Example) -> tuple[str, ...]:
    """What is read of a pair, each by itself."""
    return (item.first, *(() if item.second is None else (item.second,)), *item.negatives)


def _scored(items: Sequence[Any]) -> bool:
    """Whether pairs have scores; numbers that were read are floats."""
    return bool(items) and isinstance(items[0].target, float)


def _score_range(items: Sequence[Any]) -> tuple[float, float]:
    """The scores that stand for cosines of 0 and 1: the lowest and highest, unless all are cosines already."""
    scores = [item.target for item in items]
    low, high = min(scores), max(scores)
    if low >= -1 and high <= 1:
        return 0.0, 1.0
    if low == high:
        raise InputError(f"every pair has the score {low:g}: there is nothing to learn; check the column of scores")
    return low, high


def _rank(found: ItemPrediction) -> int:
    if found.rank is None:
        raise InputError("these predictions do not say at which place a text came; evaluate the model itself")
    return found.rank


def _ranks(items: Sequence[Example], firsts: Floats, seconds: Floats) -> list[int]:
    """At which place each second text (P, H) comes among the different ones; other right answers do not count."""
    places: dict[str, int] = {}
    own = np.asarray([places.setdefault(cast(str, item.second), len(places)) for item in items])
    shown = np.empty(len(places), np.int64)
    shown[own] = np.arange(len(items))
    candidates = seconds[shown]  # (C, H)
    right: dict[str, list[int]] = {}
    for item, place in zip(items, own, strict=True):
        right.setdefault(item.first, []).append(place)
    ranks: list[int] = []
    for begin in range(0, len(items), BLOCK):
        some = slice(begin, begin + BLOCK)
        near: npt.NDArray[np.float32] = firsts[some] @ candidates.T
        wanted = near[np.arange(len(near)), own[some]].copy()
        for row, item in enumerate(items[some]):
            near[row, right[item.first]] = -np.inf
            if item.first in places:  # the text itself is no candidate
                near[row, places[item.first]] = -np.inf
        ranks += (1 + (near > wanted[:, None]).sum(1)).tolist()
    return ranks
