"""A fine-tuned model scored at every depth with heads of its own, and by rules that leave early."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from litebert.errors import InputError
from litebert.exits.heads import Head, features_of, learn_heads
from litebert.exits.rules import Floats, Leaving, Rule, leavings
from litebert.tasks.encoding import Inputs
from litebert.tasks.examples import Example, Item, ItemPrediction, TaskData
from litebert.tasks.kinds import KINDS
from litebert.tasks.metrics import IN_UNITS
from litebert.tasks.predicting import Predictor, check_fits
from litebert.tasks.score import compute_metrics

NEAR = 0.1  # of the spread of the training numbers: predictions so near to each other are one answer
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Point:
    """What a rule scores, and at what depth inputs leave on average."""

    rule: Rule
    value: float
    mean_depth: float
    metrics: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class ExitReport:
    """The trade-off of a model for a task; ``points`` of the rule ``depth`` are its heads one by one."""

    model: str
    task: str
    metric: str
    depths: int
    trained_on: int
    scored_on: int
    points: list[Point]

    @property
    def full(self) -> Point:
        """All layers, the model's own head."""
        return next(one for one in self.points if one.rule == "depth" and one.value == self.depths)

    def of(self, rule: Rule) -> list[Point]:
        return [one for one in self.points if one.rule == rule]

    def within(self, rule: Rule, tolerance: float) -> Point:
        """The point of a rule with the lowest mean depth that loses no more than a tolerance."""
        sign = -1 if self.metric in IN_UNITS else 1
        enough = sign * self.full.metrics[self.metric] - tolerance
        fitting = [one for one in self.of(rule) if sign * one.metrics[self.metric] >= enough]
        return min([*fitting, self.full], key=lambda one: one.mean_depth)

    def as_plain(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def measure_exits(
    model: str, predictor: Predictor, data: TaskData, *, most: int, say: Say = lambda _: None
) -> tuple[ExitReport, list[Head]]:
    """Learn the heads on (at most ``most`` of) the training items and score them on dev."""
    if data.kind not in ("classify", "regress"):
        raise InputError(f"{data.name} is a task of kind {data.kind}; exits are for classify and regress")
    check_fits(predictor.note, data, model)
    if predictor.note.labels != data.labels and set(predictor.note.labels) == set(data.labels):
        raise InputError(f"the labels of {data.name} are in another order than those of {model}")
    train = _spread([item for item in data.train if item.has_target], most)
    dev = [item for items in data.dev.values() for item in items if item.has_target]
    if not train or not dev:
        raise InputError(f"{data.name} must have training items to learn the heads with and dev items to score")
    inputs = [KINDS[data.kind].encode(items, predictor.tokenizer, predictor.note.encoding()) for items in (train, dev)]
    features = [_features(predictor, one, name, say) for one, name in zip(inputs, ("train", "dev"), strict=True)]
    targets = [cast(Any, cast(Example, item).target) for item in train]
    say("learning the heads")
    heads = learn_heads(features[0][:-1], targets, len(data.labels))
    scores = torch.stack([head(one) for head, one in zip(heads, features[1], strict=False)]).numpy()
    last = predictor.scores(inputs[1]).scores
    table = np.concatenate([scores, last[None]]).astype(np.float64)  # (D, N, L)
    points = _points(data, dev, table, float(np.std(targets)))
    report = ExitReport(
        model=model,
        task=data.name,
        metric=data.metrics[0],
        depths=len(table),
        trained_on=len(train),
        scored_on=len(dev),
        points=points,
    )
    return report, heads


def _features(predictor: Predictor, inputs: Inputs, name: str, say: Say) -> torch.Tensor:
    return features_of(
        predictor.network,
        inputs,
        str(predictor.device),
        lambda done: say(f"{name}: {done:,} of {len(inputs):,} inputs"),
    )


def _spread(items: Sequence[Item], most: int) -> list[Item]:
    """So many items at the most, from all over."""
    return [items[int(place)] for place in np.linspace(0, len(items) - 1, min(most, len(items)))]


def _points(data: TaskData, items: Sequence[Item], table: Floats, spread: float) -> list[Point]:
    """The scores of every rule, from what each head says of each item."""
    if KINDS[data.kind].in_units:
        answers, shares, apart = table[:, :, 0], None, NEAR * spread
    else:
        away = np.exp(table - table.max(-1, keepdims=True))
        probabilities = away / away.sum(-1, keepdims=True)
        answers, shares, apart = probabilities.argmax(-1).astype(np.float64), probabilities.max(-1), 0.0
    return [_point(data, items, answers, leaving) for leaving in leavings(answers, shares, apart)]


def _point(data: TaskData, items: Sequence[Item], answers: Floats, leaving: Leaving) -> Point:
    chosen = answers[leaving.depths - 1, np.arange(answers.shape[1])]
    said = [
        ItemPrediction(key=item.key, label=float(one) if KINDS[data.kind].in_units else int(one))
        for item, one in zip(items, chosen, strict=True)
    ]
    metrics = compute_metrics(data, items, said)
    return Point(rule=leaving.rule, value=leaving.value, mean_depth=leaving.mean_depth, metrics=metrics)
