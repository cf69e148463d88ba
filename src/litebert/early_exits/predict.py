"""Predictions that leave early, and save time by it.

On a CPU texts run one at a time, which costs no more than a batch there, so an answer never depends on the texts beside
it: it has the same bits alone. On a GPU a model whose one block is shared by all depths runs with continuous depth
batching (``continuous.py``); of other models batches run packed, and shrink at every depth as inputs leave.

S sequences, T tokens, L labels.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from litebert.early_exits.continuous import ContinuousBatcher, Decides, can_run_continuously, fitting_size
from litebert.early_exits.heads import ExitRule, Exits, Integers, Leaver, exit_features
from litebert.nn.layout import Layout
from litebert.tasks.encoding import Inputs, gather, token_batches
from litebert.tasks.examples import Item, ItemPrediction
from litebert.tasks.kinds import HeadScores
from litebert.tasks.objective import device_tensors, head_outputs, takes_segments
from litebert.tasks.predicting import Predictor
from litebert.train.precision import cast

Scores = npt.NDArray[np.float32]
PORTION = {"cpu": 256, "cuda": 65_536}  # items encoded at once: a full buffer should seldom run empty
BATCH_TOKENS = 65_536  # of a packed batch on a GPU, before inputs leave it


@dataclass(frozen=True)
class EngineCache:
    """The recorded engines of a model by their size, kept between calls; one call at a time may run them."""

    engines: dict[Any, ContinuousBatcher] = field(default_factory=dict)
    lock: Any = field(default_factory=threading.Lock)


@dataclass
class ExitPredictor(Predictor):
    """A predictor whose inputs leave by a rule. ``depths`` are the layers that each input of the last call ran."""

    exits: Exits = field(kw_only=True)
    rule: ExitRule = field(kw_only=True)
    compiled: bool = field(default=False, kw_only=True)  # of the continuous engine on a GPU
    cache: EngineCache = field(default_factory=EngineCache, kw_only=True)
    depths: Integers = field(default_factory=lambda: np.empty(0, np.int64), kw_only=True)

    def predict(self, items: Sequence[Item], progress: Callable[[int], None] = lambda _: None) -> list[ItemPrediction]:
        """Predictions in the order of the items; ``progress`` gets the number of items done."""
        found: list[ItemPrediction] = []
        depths = []
        portion = PORTION.get(self.device.type, PORTION["cpu"])
        for first in range(0, len(items), portion):
            some = items[first : first + portion]
            inputs = self.kind.encode(some, self.tokenizer, self.note.encoding())
            found += self.predict_encoded(some, inputs, _counted(progress, first, len(some)))
            depths.append(self.depths)
        self.depths = np.concatenate(depths) if depths else np.empty(0, np.int64)
        return found

    def scores(self, inputs: Inputs, progress: Callable[[float], None] = lambda _: None) -> HeadScores:
        """What the head at which each input left gives for it; ``progress`` gets the share of them that is done."""
        assert not self.network.training, "exits are for a model that is not in training"
        labels = self.exits.bias.shape[-1]
        found, self.depths = np.zeros((len(inputs), labels), np.float32), np.zeros(len(inputs), np.int64)
        leaver = Leaver(self.rule, self.note.kind, self.exits.report.depths, len(inputs))
        if can_run_continuously(self.network, self.device, self.precision):
            self._scores_continuously(inputs, leaver, found, progress)
        else:
            self._scores_in_batches(inputs, leaver, found, progress)
        return HeadScores(found)

    def _scores_continuously(
        self, inputs: Inputs, leaver: Decides, found: Scores, progress: Callable[[float], None]
    ) -> None:
        size = fitting_size(inputs)
        with self.cache.lock:
            if size not in self.cache.engines:
                self.cache.engines[size] = ContinuousBatcher(
                    self.network, self.exits, self.note.kind, size, self.precision, compiled=self.compiled
                )
            done = 0
            for rows, scores, depths in self.cache.engines[size].run(inputs, leaver):
                found[rows], self.depths[rows] = scores, depths
                done += len(rows)
                progress(done / len(inputs))

    def _scores_in_batches(
        self, inputs: Inputs, leaver: Decides, found: Scores, progress: Callable[[float], None]
    ) -> None:
        done = 0
        with torch.inference_mode(), cast(self.precision, self.device):
            for rows in _batches(inputs, self.device):
                self._run_batch(inputs, rows, leaver, found)
                done += len(rows)
                progress(done / len(inputs))

    def run_one(self, inputs: Inputs, decides: Decides) -> int:
        """Run a single input, with whatever decides when it leaves; the layers that it ran."""
        found, self.depths = np.zeros((1, self.exits.bias.shape[-1]), np.float32), np.zeros(1, np.int64)
        with torch.inference_mode(), cast(self.precision, self.device):
            self._run_batch(inputs, np.zeros(1, np.int64), decides, found)
        return int(self.depths[0])

    def _run_batch(self, inputs: Inputs, rows: Integers, leaver: Decides, found: Scores) -> None:
        """Run one packed batch layer by layer; inputs that leave are cut out of it."""
        network, encoder = self.network, self.network.encoder
        batch = gather(inputs, rows)
        tensors = device_tensors(batch, self.device)
        layout = Layout(tensors["starts"], tensors["positions"], batch.longest)
        segments = tensors["segments"] if takes_segments(network) else None
        x = encoder.embeddings(tensors["ids"], layout, segments)
        relations = encoder.relations(layout, segments, x.dtype)
        last = len(encoder.plan)
        for depth in range(1, last + 1):
            x = encoder.layer(depth, x, layout, relations)
            if depth == last:
                scores = head_outputs(network, self.note.kind, x, layout).scores
            else:
                scores = self.exits.scores(exit_features(network, x, layout), depth)
            given = scores.cpu().numpy()
            gone = leaver.leave(rows, given, np.full(len(rows), depth))
            found[rows[gone]], self.depths[rows[gone]] = given[gone], depth
            if gone.all():
                return
            if gone.any():
                stays = torch.from_numpy(~gone).to(self.device)
                tokens = stays[layout.sequence_of_token()]
                x, rows = x[tokens], rows[~gone]
                segments = None if segments is None else segments[tokens]
                layout = Layout.of(inputs.lengths[rows].tolist(), self.device)
                relations = encoder.relations(layout, segments, x.dtype)


def _batches(inputs: Inputs, device: torch.device) -> list[Integers]:
    """The rows that start together: on a CPU one, on a GPU as many as its memory likes."""
    if device.type == "cpu":
        return [np.array([row]) for row in range(len(inputs))]
    return token_batches(inputs.lengths, BATCH_TOKENS)


def _counted(progress: Callable[[int], None], before: int, items: int) -> Callable[[float], None]:
    """Turns the share of some items that is done into the number done with those before them."""
    return lambda share: progress(before + int(share * items))
