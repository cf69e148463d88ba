"""What a finished row is judged by: sums over batches of held-out text that are the same for every row of a study.

They are kept batch by batch, because how much batches differ is how much a figure can be trusted.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from litebert.checkpoints.folder import load_model
from litebert.corpus.settings import Order
from litebert.corpus.store import Store
from litebert.errors import InputError
from litebert.pretraining.held_out import Table, prefix_of, score_network
from litebert.runs import write_atomically
from litebert.train import precision
from litebert_lab.study.noise import Sums

SCORES = "scores.json"


@dataclass(frozen=True)
class RowScores:
    """A row of one seed, finished."""

    status: str
    table: Table
    facts: Mapping[str, Any]  # steps, tokens, seconds

    def at(self, depth: int | None) -> "RowScores":
        """The scores after so many layers; None: after all."""
        if depth is None:
            return self
        prefix = prefix_of(depth)
        found = {kind.removeprefix(prefix): rows for kind, rows in self.table.items() if kind.startswith(prefix)}
        return replace(self, table=found)

    def sums(self, metric: str) -> Sums | None:
        """What a metric such as ``mlm_loss`` or ``nsp_accuracy`` is the ratio of, by batch; None: not measured."""
        kind, _, what = metric.partition("_")
        rows = [row for row in self.table.get(kind, []) if row[2]]
        if not rows:
            return None
        numbers = np.array(rows, np.float64)
        return numbers[:, [0 if what == "loss" else 1, 2]]


def score_run(
    run: Path,
    store: Store,
    length: int,
    orders: Sequence[Order],
    device: torch.device,
    *,
    depths: Sequence[int] = (),
) -> RowScores:
    """Score the model of a run, at smaller depths, too, where these are given, and leave the sums in its folder."""
    if not store.split("held_out").num_tokens:
        raise InputError(f"{store.folder} has no held-out text to judge by; build it with --held-out 5%")
    note = json.loads((run / "run.json").read_text(encoding="utf-8"))
    facts = {name: note["result"].get(name) for name in ("step", "tokens", "seconds")}
    table: Table = {}
    if note["status"] == "finished":
        network, kind = load_model(run / "model").network, precision.default_precision(device)
        table = score_network(network, store, length, orders, device, kind, depths)
    scores = RowScores(note["status"], table, facts)
    write_atomically(run / SCORES, json.dumps({"status": scores.status, "table": table, "facts": facts}) + "\n")
    return scores


def read_scores(run: Path) -> RowScores | None:
    """The scores of a run that was finished; None: it was not."""
    try:
        note = json.loads((run / SCORES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return RowScores(note["status"], note["table"], note["facts"])
