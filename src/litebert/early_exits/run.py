"""Early exits: a fine-tuned model scored at every depth with small heads of its own, and by rules that leave early.

A head is linear and sees the state of the pooled token beside the mean of all tokens: low down, a text's meaning has
not yet come together in one token. Heads are learnt on the model's frozen states with one pass over training data; the
last depth has the model's own head. A rule leaves by patience (a number of heads in a row agree) or by confidence (a
head is sure enough).

D depths, N inputs, F features, L labels.
"""

import dataclasses
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.errors import InputError
from litebert.model import Model
from litebert.nn.layout import Layout
from litebert.nn.network import Network
from litebert.shrinking.tuning import packed
from litebert.tasks.encoding import Inputs
from litebert.tasks.examples import Example, Item, ItemPrediction, TaskData
from litebert.tasks.kinds import KINDS
from litebert.tasks.metrics import IN_UNITS
from litebert.tasks.objective import takes_segments
from litebert.tasks.predicting import check_fits
from litebert.tasks.score import compute_metrics
from litebert.terminal import ProgressBar

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Rule = Literal["depth", "patience", "confidence"]
THRESHOLDS = (0.6, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999, 0.9999, 0.99999)  # heads are often too sure of themselves
DECAY = 1e-3  # of a head's weights, on features of unit variance
ROUNDS = 100  # of L-BFGS
SMALLEST = 1e-5  # spread of a feature, below which it is taken for constant
NEAR = 0.1  # of the spread of the training numbers: predictions so near to each other are one answer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Head:
    """Scores (N, L) are features (N, F) times ``weight`` (F, L), plus ``bias`` (L)."""

    weight: Tensor
    bias: Tensor

    def __call__(self, features: Tensor) -> Tensor:
        return features @ self.weight + self.bias


@torch.no_grad()
def features_of(network: Network, inputs: Inputs, device: str, report: Callable[[int], None]) -> Tensor:
    """(D, N, F) what the heads see of every input, at every depth above the embeddings."""
    encoder = network.encoder
    found: list[Tensor] = []
    done = 0
    for batch in packed(inputs, device):
        segments = batch.segments if takes_segments(network) else None
        states = encoder.states(batch.ids, batch.layout, segments)[1:]
        found.append(torch.stack([_both(network, one, batch.layout) for one in states]).float().cpu())
        done += batch.texts
        report(done)
    return torch.cat(found, dim=1)


def _both(network: Network, states: Tensor, layout: Layout) -> Tensor:
    """The pooled token's state beside the mean over the tokens of each sequence."""
    token = states[layout.first if network.config.encoder.pooled_token == "first" else layout.last]
    total = torch.zeros_like(token).index_add_(0, layout.sequence_of_token(), states)
    return torch.cat([token, total / layout.lengths[:, None]], dim=1)


def learn_heads(features: Tensor, targets: Sequence[int] | Sequence[float], num_labels: int) -> list[Head]:
    """A head for every depth; ``num_labels`` 0 is for a number to predict."""
    if features.shape[1] < 2:
        raise InputError("there is one training item; heads need two or more")
    if num_labels:
        labels = torch.tensor(targets, dtype=torch.long)
        return [_learn(one, lambda scores: F.cross_entropy(scores, labels), num_labels) for one in features]
    numbers = torch.tensor(targets, dtype=torch.float32)[:, None]
    return [_learn(one, lambda scores: F.mse_loss(scores, numbers), 1, numbers.mean(0)) for one in features]


def _learn(features: Tensor, loss: Callable[[Tensor], Tensor], width: int, bias: Tensor | None = None) -> Head:
    """The head that loses least, with some decay; there is one answer, so nothing is drawn by chance."""
    mean, spread = features.mean(0), features.std(0)
    even = (features - mean) / spread.clamp(min=SMALLEST)
    weight = torch.zeros(features.shape[1], width, requires_grad=True)
    offset = (torch.zeros(width) if bias is None else bias.clone()).requires_grad_(True)
    optimiser = torch.optim.LBFGS([weight, offset], max_iter=ROUNDS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        total = loss(even @ weight + offset) + DECAY * weight.square().sum()
        total.backward()
        return total

    optimiser.step(closure)
    plain = weight.detach() / spread.clamp(min=SMALLEST)[:, None]
    return Head(plain, offset.detach() - mean @ plain)


@dataclass(frozen=True)
class Leaving:
    """The depth (N), counted from 1, at which each input leaves by a rule."""

    rule: Rule
    value: float
    depths: Integers

    @property
    def mean_depth(self) -> float:
        return float(self.depths.mean())


def at_depth(num_depths: int, count: int, depth: int) -> Leaving:
    """All at one depth."""
    assert 1 <= depth <= num_depths
    return Leaving("depth", depth, np.full(count, depth, np.int64))


def by_patience(same: npt.NDArray[np.bool_], patience: int) -> Leaving:
    """Where ``patience`` heads in a row agree; ``same`` (D - 1, N): as the head before it."""
    run = np.ones(same.shape[1], np.int64)
    depths = np.zeros(same.shape[1], np.int64)
    for depth in range(1, len(same) + 2):
        if depth > 1:
            run = np.where(same[depth - 2], run + 1, 1)
        depths = np.where((depths == 0) & (run >= patience), depth, depths)
    return Leaving("patience", patience, np.where(depths == 0, len(same) + 1, depths))


def by_confidence(shares: Floats, threshold: float) -> Leaving:
    """Where a head first gives ``threshold`` or more to its answer; ``shares`` (D, N) is what each gives its own."""
    sure = shares >= threshold
    sure[-1] = True  # there is no head after the last
    return Leaving("confidence", threshold, sure.argmax(0).astype(np.int64) + 1)


def leavings(answers: Floats, shares: Floats | None, apart: float) -> list[Leaving]:
    """Every rule at every setting. Numbers (D, N) within ``apart`` are one answer; they have no ``shares``."""
    num_depths, count = answers.shape
    same = np.abs(np.diff(answers, axis=0)) <= apart
    found = [at_depth(num_depths, count, depth) for depth in range(1, num_depths + 1)]
    found += [by_patience(same, patience) for patience in range(2, num_depths + 1)]
    if shares is not None:
        found += [by_confidence(shares.copy(), threshold) for threshold in THRESHOLDS]
    return found


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


def measure_exits(model: Model, data: TaskData, *, most: int) -> tuple[ExitReport, list[Head]]:
    """Learn the heads on (at most ``most`` of) the training items and score them on dev."""
    kind = KINDS[data.kind]
    if not (kind.single_label or kind.in_units):
        raise InputError(f"{data.name} is a task of kind {data.kind}; exits are for classify and regress")
    predictor = model.predictor()
    check_fits(predictor.note, data, model.name)
    if predictor.note.labels != data.labels and set(predictor.note.labels) == set(data.labels):
        raise InputError(f"the labels of {data.name} are in another order than those of {model.name}")
    train = _spread([item for item in data.train if item.has_target], most)
    dev = [item for items in data.dev.values() for item in items if item.has_target]
    if not train or not dev:
        raise InputError(f"{data.name} must have training items to learn the heads with and dev items to score")
    inputs = [kind.encode(items, predictor.tokenizer, predictor.note.encoding()) for items in (train, dev)]
    features = []
    for name, one in zip(("train", "dev"), inputs, strict=True):
        with ProgressBar(f"states of {name}", len(one)) as bar:
            features.append(features_of(model.network, one, str(model.device), bar.update))
    targets = [cast(Any, cast(Example, item).target) for item in train]
    log.info("learning the heads")
    heads = learn_heads(features[0][:-1], targets, len(data.labels))
    scores = torch.stack([head(one) for head, one in zip(heads, features[1], strict=False)]).numpy()
    last = predictor.scores(inputs[1]).scores
    table = np.concatenate([scores, last[None]]).astype(np.float64)  # (D, N, L)
    points = _points(data, dev, table, float(np.std(targets)))
    report = ExitReport(
        model=model.name,
        task=data.name,
        metric=data.metrics[0],
        depths=len(table),
        trained_on=len(train),
        scored_on=len(dev),
        points=points,
    )
    return report, heads


def _spread(items: Sequence[Item], most: int) -> list[Item]:
    """At most this many items, from the first to the last."""
    return [items[int(place)] for place in np.linspace(0, len(items) - 1, min(most, len(items)))]


def _points(data: TaskData, items: Sequence[Item], table: Floats, spread: float) -> list[Point]:
    """The scores of every rule, from the scores of each head for each item."""
    if KINDS[data.kind].in_units:
        answers, shares, apart = table[:, :, 0], None, NEAR * spread
    else:
        away = np.exp(table - table.max(-1, keepdims=True))
        probabilities = away / away.sum(-1, keepdims=True)
        answers, shares, apart = probabilities.argmax(-1).astype(np.float64), probabilities.max(-1), 0.0
    return [_point(data, items, answers, leaving) for leaving in leavings(answers, shares, apart)]


def _point(data: TaskData, items: Sequence[Item], answers: Floats, leaving: Leaving) -> Point:
    chosen = answers[leaving.depths - 1, np.arange(answers.shape[1])]
    predicted = [
        ItemPrediction(key=item.key, label=float(one) if KINDS[data.kind].in_units else int(one))
        for item, one in zip(items, chosen, strict=True)
    ]
    metrics = compute_metrics(data, items, predicted)
    return Point(rule=leaving.rule, value=leaving.value, mean_depth=leaving.mean_depth, metrics=metrics)
