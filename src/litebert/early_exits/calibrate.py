"""Early exits of a fine-tuned model: heads learnt at every depth, and a rule calibrated to a stated loss in score.

The heads learn on the model's frozen states with one pass over training rows, from the labels and from what the last
depth says itself. The rule is the one that saves most while it loses no more than it may on held-out rows: of every
family of rules the values are tried from the strictest on and the first that loses more ends the search, so that a
lucky value behind it is not chosen. How well that holds on other rows is checked on halves of the held-out ones.

D depths, N inputs, F features, L labels.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from litebert.early_exits.heads import (
    HARD,
    CalibrationRows,
    ExitReport,
    ExitRule,
    Exits,
    Integers,
    Point,
    RuleName,
    check_kind,
    depths_left_at,
    exit_features,
    learn_heads,
    loss_in_points,
    probabilities_of,
)
from litebert.errors import InputError
from litebert.nn.layout import Layout
from litebert.tasks.encoding import Inputs, gather, token_batches
from litebert.tasks.examples import Item, Kind, TaskData, TaskSpec
from litebert.tasks.kinds import KINDS, HeadScores
from litebert.tasks.objective import device_tensors, head_outputs, takes_segments
from litebert.tasks.predicting import Predictor, check_fits
from litebert.tasks.score import compute_metrics
from litebert.terminal import ProgressBar
from litebert.train.precision import cast

SHOWN = (0.6, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999, 0.9999, 0.99999)  # thresholds of the report's table
TRIED = tuple(float(f"{1 - one:.6g}") for one in np.geomspace(1e-5, 0.7, 60))  # thresholds of the search, strict first
TOLERANCES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)  # of the spread of the training numbers: so near, they are one answer
ABOUT = 1.05  # rules within 5% of the fewest layers save about the same
BATCH_TOKENS = {"cpu": 4096, "cuda": 32_768}
MOST = 10_000  # training rows that heads learn from, unless told

log = logging.getLogger(__name__)


@torch.no_grad()
def features_of(predictor: Predictor, inputs: Inputs, report: Callable[[int], None]) -> tuple[Tensor, Tensor]:
    """(D, N, F) what the heads see of every input at every depth, and (N, L) what the model's own head gives."""
    network, device = predictor.network, predictor.device
    features, scores = torch.empty(0), torch.empty(0)
    done = 0
    for rows in token_batches(inputs.lengths, BATCH_TOKENS.get(device.type, BATCH_TOKENS["cpu"])):
        batch = gather(inputs, rows)
        tensors = device_tensors(batch, device)
        layout = Layout(tensors["starts"], tensors["positions"], batch.longest)
        with cast(predictor.precision, device):
            segments = tensors["segments"] if takes_segments(network) else None
            states = network.encoder.states(tensors["ids"], layout, segments)[1:]
            found = torch.stack([exit_features(network, one, layout).float() for one in states]).cpu()
            own = head_outputs(network, predictor.note.kind, states[-1], layout).scores.cpu()
        if not len(features):
            features = found.new_empty(found.shape[0], len(inputs), found.shape[2])
            scores = own.new_empty(len(inputs), own.shape[1])
        places = torch.from_numpy(rows)
        features[:, places], scores[places] = found, own
        done += len(rows)
        report(done)
    return features, scores


def make_exits(predictor: Predictor, data: TaskData, *, name: str, max_loss: float = 0.3, most: int = MOST) -> Exits:
    """Learn the heads on (at most ``most`` of) the training rows and calibrate the rule on dev."""
    check_kind(data.kind, data.name)
    if predictor.depth is not None and predictor.depth < predictor.network.config.encoder.num_layers:
        raise InputError(f"{name} runs {predictor.depth} of its layers; save it, load it again and add exits to that")
    check_fits(predictor.note, data, name)
    if predictor.note.labels != data.labels and set(predictor.note.labels) == set(data.labels):
        raise InputError(f"the labels of {data.name} are in another order than those of {name}")
    train = _evenly([item for item in data.train if item.has_target], most)
    dev = [item for items in data.dev.values() for item in items if item.has_target]
    if not train or not dev:
        raise InputError(f"{data.name} must have training rows to learn the heads with and dev rows to calibrate on")
    kind = KINDS[data.kind]
    encoded = [kind.encode(items, predictor.tokenizer, predictor.note.encoding()) for items in (train, dev)]
    found = []
    for title, inputs in zip(("training", "held-out"), encoded, strict=True):
        with ProgressBar(f"states of {title} rows", len(inputs)) as bar:
            found.append(features_of(predictor, inputs, bar.update))
    (features, own), (dev_features, dev_own) = found
    log.info("learning heads for %d depths", len(features))
    targets = _targets(data, train, encoded[0])
    said = torch.from_numpy(probabilities_of(own.numpy(), data.kind)).float()
    weight, bias = learn_heads(features, HARD * targets + (1 - HARD) * said, data.kind)
    scores = torch.baddbmm(bias[:, None], dev_features, weight)
    scores[-1] = dev_own
    spread = float(targets.std()) if data.kind == "regress" else 0.0
    held_out = HeldOut(data, dev, encoded[1], scores.numpy(), predictor.note)
    report = calibrate(held_out, max_loss=max_loss, spread=spread, name=name, trained_on=len(train))
    rows = CalibrationRows.of(dev, encoded[1], data.kind, len(predictor.network.config.heads.labels))
    return Exits(weight=weight, bias=bias, report=report, rows=rows)


def recalibrated(exits: Exits, scores: npt.NDArray[Any], spec: TaskSpec) -> ExitReport:
    """The rule chosen again with the scores (D, N, L) that other arithmetic gives for the rows it was chosen on."""
    before, rows = exits.report, exits.rows
    assert rows is not None
    items = rows.items(before.kind)
    data = TaskData(
        name=before.task,
        kind=before.kind,
        labels=spec.labels,
        metrics=tuple(before.full.metrics),
        train=(),
        dev={"dev": tuple(items)},
    )
    held_out = HeldOut(data, items, rows.inputs, scores, spec)
    spread = float(rows.targets.std()) if before.kind == "regress" else 0.0
    return calibrate(held_out, max_loss=before.max_loss, spread=spread, name=before.model, trained_on=before.trained_on)


def _evenly(items: Sequence[Item], most: int) -> list[Item]:
    """At most this many items, from the first to the last."""
    return [items[int(place)] for place in np.linspace(0, len(items) - 1, min(most, len(items)))]


def _targets(data: TaskData, items: Sequence[Item], inputs: Inputs) -> Tensor:
    """(N, L) the labels as probabilities of 0 and 1; numbers as they are."""
    found = KINDS[data.kind].targets(items, inputs, len(data.labels))
    if data.kind == "classify":
        return torch.nn.functional.one_hot(torch.from_numpy(found.labels), len(data.labels)).float()
    values = torch.from_numpy(found.values).float()
    return values[:, None] if data.kind == "regress" else values


class HeldOut:
    """Rows to calibrate on, with the scores (D, N, L) of every head for them."""

    def __init__(self, data: TaskData, items: Sequence[Item], inputs: Inputs, scores: Any, spec: TaskSpec) -> None:
        self.data, self.items, self.scores = data, items, scores
        kind = KINDS[data.kind]
        heads = (HeadScores(one.astype(np.float32)) for one in scores)
        self._found = [kind.decode(items, inputs, one, spec) for one in heads]  # of every depth
        self._quick = replace(data, metrics=data.metrics[:1])

    @property
    def depths(self) -> int:
        return len(self.scores)

    def point(self, rule: ExitRule, rows: Integers | None = None, *, quick: bool = False) -> Point:
        """What a rule scores on all rows, or on some of them; ``quick``: by the first metric alone."""
        rows = np.arange(len(self.items)) if rows is None else rows
        depths = depths_left_at(self.scores[:, rows], rule, self.data.kind)
        found = [self._found[depth - 1][row] for depth, row in zip(depths, rows, strict=True)]
        items = [self.items[row] for row in rows]
        metrics = compute_metrics(self._quick if quick else self.data, items, found)
        return Point(
            rule=rule.rule,
            value=rule.value,
            tolerance=rule.tolerance,
            mean_depth=float(depths.mean()),
            metrics={name: float(value) for name, value in metrics.items()},
        )

    def choose(self, max_loss: float, spread: float, rows: Integers | None = None) -> Point:
        """The rule that saves most of those that lose no more than they may; of about equal ones, the best score."""
        metric = self.data.metrics[0]
        full = self.point(full_depth(self.depths), rows, quick=True)

        def loss(point: Point) -> float:
            return loss_in_points(metric, full.metrics[metric], point.metrics[metric])

        fitting = [full]
        for _, rules in groupby(candidates(self.data.kind, self.depths, spread), lambda pair: pair[0]):
            for _, rule in rules:
                found = self.point(rule, rows, quick=True)
                if not loss(found) <= max_loss + 1e-9:
                    break  # or NaN: a correlation of constant answers
                fitting.append(found)
        fewest = min(one.mean_depth for one in fitting)
        near = (one for one in fitting if one.mean_depth <= ABOUT * fewest)
        return min(near, key=lambda one: (loss(one), one.mean_depth))


def full_depth(depths: int) -> ExitRule:
    """A rule by which nothing leaves early."""
    return ExitRule(rule="patience", value=depths)


def candidates(kind: Kind, depths: int, spread: float) -> Iterator[tuple[str, ExitRule]]:
    """The rules to choose from, each family from the strictest on."""
    if kind == "regress":
        for patience in range(2, depths):
            for share in TOLERANCES:
                yield f"patience {patience}", ExitRule(rule="patience", value=patience, tolerance=share * spread)
        return
    for patience in range(depths - 1, 1, -1):
        yield "patience", ExitRule(rule="patience", value=patience)
    for threshold in TRIED:
        yield "confidence", ExitRule(rule="confidence", value=threshold)


def calibrate(held_out: HeldOut, *, max_loss: float, spread: float, name: str, trained_on: int) -> ExitReport:
    """Choose a rule on held-out rows, and report it with what else was tried."""
    data, depths = held_out.data, held_out.depths
    metric = data.metrics[0]
    best = held_out.choose(max_loss, spread)
    full = held_out.point(full_depth(depths))
    return ExitReport(
        model=name,
        task=data.name,
        kind=data.kind,
        metric=metric,
        rule=best.rule,
        value=best.value,
        tolerance=best.tolerance,
        depths=depths,
        max_loss=max_loss,
        full_score=full.metrics[metric],
        score=best.metrics[metric],
        checked_loss=_checked_loss(held_out, max_loss, spread),
        mean_depth=best.mean_depth,
        trained_on=trained_on,
        rows=len(held_out.items),
        points=tuple(held_out.point(rule) for rule in _shown(data.kind, depths, best)),
    )


def _checked_loss(held_out: HeldOut, max_loss: float, spread: float) -> float:
    """The loss on each half of the rows of the rule chosen on the other half, on average; 0 of fewer than 4 rows."""
    rows = np.arange(len(held_out.items))
    halves: list[Integers] = [rows[::2], rows[1::2]]
    if len(halves[1]) < 2:
        return 0.0
    metric = held_out.data.metrics[0]
    losses = []
    for ours, others in (halves, halves[::-1]):
        chosen = held_out.choose(max_loss, spread, ours)
        rule = ExitRule(rule=chosen.rule, value=chosen.value, tolerance=chosen.tolerance)
        full, found = (held_out.point(one, others, quick=True) for one in (full_depth(held_out.depths), rule))
        losses.append(loss_in_points(metric, full.metrics[metric], found.metrics[metric]))
    return float(np.mean(losses))


def _shown(kind: Kind, depths: int, best: Point) -> list[ExitRule]:
    """The rules of the report's tables, the chosen one among them."""

    def rule(name: RuleName, value: float, tolerance: float = 0.0) -> ExitRule:
        return ExitRule(rule=name, value=value, tolerance=tolerance)

    tolerance = best.tolerance
    patient = [rule("patience", value, tolerance) for value in range(2, depths + 1)]
    found = [*(rule("depth", depth) for depth in range(1, depths + 1)), *patient]
    if kind != "regress":
        chosen = [best.value] if best.rule == "confidence" else []
        found += [rule("confidence", value) for value in sorted({*SHOWN, *chosen})]
    return found
