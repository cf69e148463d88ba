"""Small linear heads at every depth of a fine-tuned model, and the rule by which an input leaves at one of them.

A head sees the state of the pooled token beside the mean of all tokens: low down, a text's meaning has not yet come
together in one token. An input that reaches the last depth is answered by the model's own head. Heads and rule are
two files of the model folder, ``exits.safetensors`` and ``exits.json``. A third, ``exits_rows.safetensors``, has the
held-out rows that the rule was chosen on, so that an export can choose it again in the arithmetic of the exported file.

D depths, N inputs, S sequences, F features, L labels.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.data.files import read_object
from litebert.errors import InputError
from litebert.nn.layout import Layout
from litebert.nn.network import Network
from litebert.tasks.encoding import Inputs
from litebert.tasks.examples import Example, Item, Kind, Target
from litebert.tasks.metrics import IN_UNITS

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
RuleName = Literal["depth", "patience", "confidence"]

EXITS_JSON, EXITS_TENSORS, EXITS_ROWS = "exits.json", "exits.safetensors", "exits_rows.safetensors"
MOST_ROWS = 5000  # held-out rows that are kept with the exits
FEATURES = "token+mean"
KINDS_WITH_EXITS: tuple[Kind, ...] = ("classify", "multilabel", "regress")
WHY_NOT = {
    "choice": "the options of a question would have to leave together",
    "span": "an answer is looked for in every token, and a head at every depth sees one vector",
}
DECAY = 1e-3  # of a head's weights, on features of unit variance
ROUNDS = 100  # of L-BFGS
SMALLEST = 1e-5  # spread of a feature, below which it is taken for constant
HARD = 0.5  # weight of the labels; the last depth's own answers have the rest


def check_kind(kind: Kind, name: str) -> None:
    """Refuse a task whose inputs cannot leave early."""
    if kind not in KINDS_WITH_EXITS:
        allowed = ", ".join(KINDS_WITH_EXITS)
        raise InputError(f"{name} is a task of kind {kind}, where {WHY_NOT[kind]}; exits are for {allowed}")


@dataclass(frozen=True, kw_only=True)
class ExitRule:
    """When an input leaves: ``patience`` (``value`` heads in a row agree) or ``confidence`` (a head is that sure).

    Numbers within ``tolerance`` are one answer. Whatever reaches the last depth leaves there.
    """

    rule: RuleName
    value: float
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        if self.rule == "confidence" and not 0 < self.value <= 1:
            raise InputError(f"the confidence to leave with is {self.value:g} but must be above 0 and at most 1")
        if self.rule == "patience" and (self.value < 1 or self.value != int(self.value)):
            raise InputError(f"the number of heads that must agree is {self.value:g} but must be a whole number")


@dataclass(frozen=True, kw_only=True)
class Point:
    """What a rule scores, and at what depth inputs leave on average."""

    rule: RuleName
    value: float
    mean_depth: float
    metrics: dict[str, float]
    tolerance: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ExitReport:
    """The chosen rule and what it was chosen from; ``points`` of the rule ``depth`` are the heads one by one.

    Scores are those of ``metric`` on the held-out rows that the rule was calibrated on. ``checked_loss`` is what the
    rule loses, in points, on halves of these rows that it was not calibrated on.
    """

    model: str
    task: str
    kind: Kind
    metric: str
    features: str = FEATURES
    rule: RuleName
    value: float
    tolerance: float
    depths: int
    max_loss: float
    full_score: float
    score: float
    checked_loss: float
    mean_depth: float
    trained_on: int
    rows: int
    points: tuple[Point, ...]

    @property
    def full(self) -> Point:
        """All layers, the model's own head."""
        return next(one for one in self.points if one.rule == "depth" and one.value == self.depths)

    @property
    def exit_rule(self) -> ExitRule:
        return ExitRule(rule=self.rule, value=self.value, tolerance=self.tolerance)

    @property
    def loss(self) -> float:
        """What leaving early costs, in points (of an error in units: in percent of it)."""
        return loss_in_points(self.metric, self.full_score, self.score)

    def of(self, rule: RuleName) -> list[Point]:
        return [one for one in self.points if one.rule == rule]

    def as_plain(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def loss_in_points(metric: str, full: float, score: float) -> float:
    """How much worse a score is than that of all layers: in points, or in percent where it is an error in units."""
    return 100 * (score - full) / max(full, 1e-12) if metric in IN_UNITS else 100 * (full - score)


@dataclass(frozen=True, kw_only=True)
class CalibrationRows:
    """Held-out rows to choose a rule on: token ids, and what is right for each."""

    inputs: Inputs
    targets: Floats  # (N, 1) labels or numbers, or (N, L) ones and zeros of several labels

    @classmethod
    def of(cls, items: Sequence[Item], inputs: Inputs, kind: Kind, labels: int) -> "CalibrationRows":
        """At most ``MOST_ROWS`` of some items with a target, from the first to the last."""
        rows = np.linspace(0, len(items) - 1, min(MOST_ROWS, len(items))).astype(np.int64)
        tokens = inputs.tokens_of(rows)
        starts = np.concatenate([[0], np.cumsum(inputs.lengths[rows])])
        some = Inputs(inputs.ids[tokens], inputs.segments[tokens], starts, np.arange(len(rows)), inputs.characters[:0])
        targets = np.zeros((len(rows), labels if kind == "multilabel" else 1))
        for place, row in enumerate(rows):
            target: Any = getattr(items[row], "target", None)
            if kind == "multilabel":
                targets[place, list(target)] = 1
            else:
                targets[place] = target
        return cls(inputs=some, targets=targets)

    def items(self, kind: Kind) -> list[Example]:
        """The rows as items without a text."""
        read: Mapping[str, Callable[[Floats], Target]] = {
            "classify": lambda row: int(row[0]),
            "multilabel": lambda row: tuple(np.flatnonzero(row).tolist()),
            "regress": lambda row: float(row[0]),
        }
        return [Example(key=str(n), first="", target=read[kind](row)) for n, row in enumerate(self.targets)]

    def save(self, path: Path) -> None:
        """Write the file."""
        from safetensors.numpy import save_file

        one = self.inputs
        arrays = {"ids": one.ids, "segments": one.segments, "starts": one.starts, "targets": self.targets}
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)

    @classmethod
    def read(cls, path: Path, network: Network, kind: Kind) -> "CalibrationRows":
        """What ``save`` wrote; a ValueError where it cannot be of this model."""
        from safetensors.numpy import load_file

        arrays = load_file(path)
        ids, segments, starts, targets = (arrays[name] for name in ("ids", "segments", "starts", "targets"))
        found = Inputs(ids, segments, starts, np.arange(len(starts) - 1), np.empty((0, 2), np.int32))
        config, labels = network.config.encoder, len(network.config.heads.labels)
        longest = config.max_positions if config.positions == "absolute" else len(ids)
        fits = [
            all(array.dtype.kind == "i" and array.ndim == 1 for array in (ids, segments, starts)),
            len(segments) == len(ids) and len(starts) > 1 and starts[0] == 0 and starts[-1] == len(ids),
            (found.lengths > 0).all() and found.longest <= longest,
            _within(ids, config.vocab_size) and _within(segments, config.num_segments or 3),  # XLNet has up to 3
            targets.shape == (len(found), labels if kind == "multilabel" else 1) and np.isfinite(targets).all(),
            kind == "regress" or _within(targets, 2 if kind == "multilabel" else labels),
        ]
        if not all(fits):
            raise ValueError("they are of another model")
        return cls(inputs=found, targets=targets)


@dataclass(frozen=True, kw_only=True)
class Exits:
    """Heads for every depth and what is known of them. The last depth's entry is there for a constant shape alone."""

    weight: Tensor  # (D, F, L) float32
    bias: Tensor  # (D, L) float32
    report: ExitReport
    rows: CalibrationRows | None = None  # what the rule was chosen on, where it is known

    def to(self, device: torch.device | str) -> "Exits":
        """The same on a device."""
        return dataclasses.replace(self, weight=self.weight.to(device), bias=self.bias.to(device))

    def scores(self, features: Tensor, depth: int) -> Tensor:
        """(S, L) what the head of a depth, counted from 1, gives for features (S, F), in fp32."""
        with torch.autocast(features.device.type, enabled=False):
            return torch.addmm(self.bias[depth - 1], features.float(), self.weight[depth - 1])

    def rule(self, asked: bool | float) -> ExitRule:
        """The stored rule, or another value: below 1 a confidence, from 2 on a number of heads that agree."""
        if asked is True:
            return self.report.exit_rule
        if 0 < asked < 1:
            if self.report.kind == "regress":
                raise InputError(f"exits is {asked:g}, a confidence, but a number has none; give a number of heads")
            return ExitRule(rule="confidence", value=float(asked))
        if asked >= 2 and asked == int(asked):
            return ExitRule(rule="patience", value=float(asked), tolerance=self.report.tolerance)
        raise InputError(
            f"exits is {asked:g} but must be True (the stored rule), a confidence between 0 and 1, or the number of "
            "heads that must agree, 2 or more"
        )

    def save(self, folder: Path) -> None:
        """Write both files into a model folder."""
        from safetensors.torch import save_file

        from litebert.runs import write_atomically

        tensors = {"weight": self.weight.cpu().contiguous(), "bias": self.bias.cpu().contiguous()}
        save_file(tensors, folder / EXITS_TENSORS)
        write_atomically(folder / EXITS_JSON, json.dumps(self.report.as_plain(), indent=1, ensure_ascii=False) + "\n")
        (folder / EXITS_ROWS).unlink(missing_ok=True)
        if self.rows is not None:
            self.rows.save(folder / EXITS_ROWS)


def read_exits(folder: Path, network: Network) -> tuple[Exits | None, list[str]]:
    """The exits of a model folder, None where it has none; or why those that are there cannot be used."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not ((folder / EXITS_JSON).is_file() and (folder / EXITS_TENSORS).is_file()):
        return None, []
    try:
        plain = read_object(folder / EXITS_JSON, "add the exits again")
        points = tuple(Point(**point) for point in plain.pop("points"))
        report = ExitReport(**plain, points=points)
        tensors = load_file(folder / EXITS_TENSORS)
        weight, bias = tensors["weight"], tensors["bias"]
    except (ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        return None, [f"the exits in {folder} are not used: they cannot be read ({error}); run `litebert exits` again"]
    encoder, labels = network.config.encoder, len(network.config.heads.labels)
    shape = (encoder.num_layers, 2 * encoder.width, labels)
    if report.features != FEATURES or tuple(weight.shape) != shape or tuple(bias.shape) != (shape[0], labels):
        made = f"heads of shape {tuple(weight.shape)} instead of {shape}"
        return None, [f"the exits in {folder} are not used: they are of another model, {made}"]
    rows, notes = None, []
    if (folder / EXITS_ROWS).is_file():
        try:
            rows = CalibrationRows.read(folder / EXITS_ROWS, network, report.kind)
        except (ValueError, KeyError, TypeError, IndexError, SafetensorError) as error:
            notes.append(f"the rows in {folder / EXITS_ROWS} are not used: {error}; run `litebert exits` again")
    return Exits(weight=weight, bias=bias, report=report, rows=rows), notes


def _within(array: npt.NDArray[Any], size: int) -> bool:
    """Whether all are at least 0 and below ``size``."""
    return bool(array.min(initial=0) >= 0 and array.max(initial=0) < size)


def exit_features(network: Network, states: Tensor, layout: Layout) -> Tensor:
    """(S, F) the pooled token's state beside the mean over the tokens of each sequence; each token must be in one."""
    token = states[layout.first if network.config.encoder.pooled_token == "first" else layout.last]
    places = torch.arange(layout.num_tokens, device=states.device)
    mean = F.embedding_bag(places, states, layout.starts.long(), mode="mean", include_last_offset=True)
    return torch.cat([token, mean], dim=1)


def features_for_training(network: Network, states: Tensor, layout: Layout) -> Tensor:
    """The same, with a gradient that is cheap on any device."""
    token = states[layout.first if network.config.encoder.pooled_token == "first" else layout.last]
    total = torch.zeros_like(token).index_add(0, layout.sequence_of_token().clamp(max=len(token) - 1), states)
    return torch.cat([token, total / layout.lengths.clamp(min=1)[:, None]], dim=1)


def learn_heads(features: Tensor, wanted: Tensor, kind: Kind) -> tuple[Tensor, Tensor]:
    """Weights (D, F, L) and biases (D, L) of the heads that fit (N, L) probabilities, or numbers, best."""
    if features.shape[1] < 2:
        raise InputError("there is one training item; heads need two or more")
    losses: Mapping[str, Callable[[Tensor], Tensor]] = {
        "classify": lambda scores: F.cross_entropy(scores, wanted),
        "multilabel": lambda scores: F.binary_cross_entropy_with_logits(scores, wanted),
        "regress": lambda scores: F.mse_loss(scores, wanted),
    }
    start = wanted.mean(0) if kind == "regress" else torch.zeros(wanted.shape[1])
    found = [_learn(one, losses[kind], start) for one in features]
    return torch.stack([weight for weight, _ in found]), torch.stack([bias for _, bias in found])


def _learn(features: Tensor, loss: Callable[[Tensor], Tensor], start: Tensor) -> tuple[Tensor, Tensor]:
    """The head that loses least, with some decay; there is one answer, so nothing is drawn by chance."""
    mean, spread = features.mean(0), features.std(0).clamp(min=SMALLEST)
    even = (features - mean) / spread
    weight = torch.zeros(features.shape[1], len(start), requires_grad=True)
    bias = start.clone().requires_grad_(True)
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=ROUNDS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        total = loss(even @ weight + bias) + DECAY * weight.square().sum()
        total.backward()
        return total

    with torch.enable_grad():
        optimiser.step(closure)
    plain = weight.detach() / spread[:, None]
    return plain, bias.detach() - mean @ plain


def probabilities_of(scores: npt.NDArray[Any], kind: Kind) -> Floats:
    """What scores (..., L) mean: probabilities of the labels; numbers stay as they are."""
    scores = scores.astype(np.float64)
    if kind == "regress":
        return scores
    if kind == "multilabel":
        return 1 / (1 + np.exp(-scores))
    away = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(away / away.sum(-1, keepdims=True), np.float64)


def answers_of(scores: npt.NDArray[Any], kind: Kind) -> tuple[Floats, Floats | None]:
    """The answers (..., K) that heads agree or disagree on, and how sure (...) each is of its own; of numbers None."""
    if kind == "regress":
        return scores.astype(np.float64), None
    shares = probabilities_of(scores, kind)
    if kind == "multilabel":  # as sure as of its least certain label
        return (shares > 0.5).astype(np.float64), np.maximum(shares, 1 - shares).min(-1)
    return shares.argmax(-1)[..., None].astype(np.float64), shares.max(-1)


class Leaver:
    """Decides, depth by depth, which inputs leave; it remembers what the heads before gave for each of ``count``."""

    def __init__(self, rule: ExitRule, kind: Kind, num_depths: int, count: int) -> None:
        self.rule, self.kind, self.num_depths = rule, kind, num_depths
        self._answers: Floats | None = None
        self._agreeing = np.zeros(count, np.int64)

    def leave(self, rows: Integers, scores: npt.NDArray[Any], depths: Integers) -> Flags:
        """Which of these inputs leave with these scores (N, L) of their heads, having run ``depths`` layers each."""
        answers, shares = answers_of(scores, self.kind)
        last = depths >= self.num_depths
        if self.rule.rule == "confidence":
            assert shares is not None
            return np.asarray(last | (shares >= self.rule.value), np.bool_)
        if self.rule.rule == "depth":
            return np.asarray(last | (depths >= self.rule.value), np.bool_)
        if self._answers is None:
            self._answers = np.full((len(self._agreeing), answers.shape[-1]), np.nan)
        same = (np.abs(answers - self._answers[rows]) <= self.rule.tolerance).all(-1)  # never so at the first depth
        self._answers[rows] = answers
        self._agreeing[rows] = np.where(same, self._agreeing[rows] + 1, 1)
        return np.asarray(last | (self._agreeing[rows] >= self.rule.value), np.bool_)


def depths_left_at(scores: npt.NDArray[Any], rule: ExitRule, kind: Kind) -> Integers:
    """(N) the depth, counted from 1, at which each input leaves, from the scores (D, N, L) of all heads."""
    num_depths, count = scores.shape[:2]
    leaver = Leaver(rule, kind, num_depths, count)
    found, rows = np.zeros(count, np.int64), np.arange(count)
    for depth in range(1, num_depths + 1):
        gone = leaver.leave(rows, scores[depth - 1][rows], np.full(len(rows), depth))
        found[rows[gone]] = depth
        rows = rows[~gone]
    return found
