"""How good a network is on held-out text, in training and later: the first batches, always the same, masked at 15%.

So the figures of two runs compare, and with those that other people report, however a run masks its own text: words are
masked plainly unless the recipe's ``eval_masking`` says otherwise.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from litebert.corpus.batches import Batches
from litebert.corpus.settings import BatchSettings, Order
from litebert.corpus.store import Store
from litebert.errors import InputError
from litebert.nn.network import Network
from litebert.pretraining.objective import LOGIT_CHUNK, AtDepths
from litebert.train import precision
from litebert.train.objective import SumsOf
from litebert.train.parallel import Ranks
from litebert.train.settings import Precision

HELD_OUT_RATE = 0.15
ORDERS: tuple[Order, ...] = ("sop", "nsp")  # what can be asked of a pair: which is first, do they follow at all
MOST_TOKENS = {"cpu": 1 << 16, "cuda": 1 << 20}  # of held-out text
BATCH_TOKENS = 4096
FEWEST_BATCHES = 16  # where the text is enough: a spread is taken over them

# Sums by kind: "mlm" and, for each order that pairs were made by, "sop" and "nsp"; of each batch (loss, right, items).
# Those of fewer than all layers have names such as "depth_3_mlm".
Table = dict[str, list[list[float]]]
Progress = Callable[[str], None]  # shows a few words in place of those before


def scored_depths(in_force: int, full: int, last: bool, others: Sequence[int] = ()) -> tuple[int, ...]:
    """The depths to score, that of the plain figures first: the one in force, in the last stage the full one.

    ``others`` are of interest, too, once they are not deeper than what is trained.
    """
    plain = full if last else in_force
    return (plain, *sorted({depth for depth in (in_force, *others) if depth < plain}))


class HeldOut:
    """The first ``most`` batches of held-out text, dealt out to the ranks."""

    def __init__(self, batches: Batches, most: int, ranks: Ranks) -> None:
        self.batches, self.ranks = batches, ranks
        self.count = min(most, batches.len(0))

    def score(self, sums: SumsOf, depths: Sequence[int]) -> dict[str, float]:
        """Loss and accuracy of each part: plainly named at the first depth, as ``depth_3_mlm_loss`` at others.

        ``depth`` says which the first one is; ``loss`` is the sum of its parts.
        """
        parts = self._parts(sums, depths)
        first = f"depth_{depths[0]}_"
        figures = {"loss": 0.0}
        for name, (loss, accuracy) in parts.items():
            plain = name.removeprefix(first)
            figures |= {f"{plain}_loss": loss, f"{plain}_accuracy": accuracy}
            if name.startswith(first):
                figures["loss"] += loss
        figures["depth"] = depths[0]
        return figures

    def _parts(self, sums: SumsOf, depths: Sequence[int]) -> dict[str, tuple[float, float]]:
        """Mean loss and accuracy of every part that the text has items of."""
        objective = AtDepths(self.batches.settings.length, LOGIT_CHUNK, depths)
        totals = {f"depth_{depth}_{name}": [0.0] * 3 for depth in depths for name in ("mlm", "order")}
        for index in range(self.ranks.rank, self.count, self.ranks.world):
            batch = self.batches.batch(0, index)
            counts = objective.counts(batch)
            for name, (loss, right) in sums(objective, objective.tensors(batch, self.ranks.device)).items():
                found = (float(loss), float(right), float(counts[name]))
                totals[name] = [a + b for a, b in zip(totals[name], found, strict=True)]
        figures = {}
        for name, mine in totals.items():
            lost, hits, items = self.ranks.total(mine)
            if items:
                figures[name] = (lost / items, hits / items)
        return figures


@dataclass(frozen=True, kw_only=True)
class DepthScore:
    """Means at a depth: ``mlm_loss``, ``mlm_accuracy`` and, where the network has an order head, ``order_...``."""

    depth: int
    figures: Mapping[str, float]


def score_depths(
    network: Network,
    store: Store,
    depths: Sequence[int],
    length: int,
    order: Order,
    tokens: int,
    device: torch.device,
    progress: Progress,
) -> list[DepthScore]:
    """Scores on about ``tokens`` of held-out text, after all layers and at these depths, the deepest first.

    ``order`` is what pairs ask.
    """
    if not store.split("held_out").num_tokens:
        raise InputError(f"{store.folder} has no held-out text to score on; build it with --held-out 5%")
    full, kind = network.config.encoder.num_layers, precision.default_precision(device)
    table = score_network(network, store, length, [order], device, kind, depths, tokens, progress)
    found = []
    for depth in sorted({full, *depths}, reverse=True):
        prefix = "" if depth == full else prefix_of(depth)
        means = {part: _means(table.get(prefix + name, [])) for part, name in (("mlm", "mlm"), ("order", order))}
        figures = {f"{part}_{name}": value for part, of in means.items() for name, value in of.items()}
        found.append(DepthScore(depth=depth, figures=figures))
    return found


def prefix_of(depth: int) -> str:
    """What the names of a table begin with at a depth."""
    return f"depth_{depth}_"


def scored_tokens(store: Store, settings: BatchSettings, device: torch.device, asked: int = 0) -> int:
    """About how many tokens of held-out text are scored: those asked for, at least a batch; 0: a default."""
    return min(store.split("held_out").num_tokens, max(settings.budget, asked or MOST_TOKENS[device.type]))


def _means(rows: Sequence[Sequence[float]]) -> dict[str, float]:
    """Loss and accuracy over all batches; nothing where there are no items."""
    items = sum(row[2] for row in rows)
    if not items:
        return {}
    return {"loss": sum(row[0] for row in rows) / items, "accuracy": sum(row[1] for row in rows) / items}


def held_out_settings(store: Store, length: int, order: Order) -> BatchSettings:
    """Batches small enough that there are several, plainly masked."""
    tokens = store.split("held_out").num_tokens
    budget = max(length, min(BATCH_TOKENS, tokens // FEWEST_BATCHES))
    return BatchSettings(length=length, budget=budget, order=order, masking="plain", rate=HELD_OUT_RATE)


@torch.no_grad()
def score_network(
    network: Network,
    store: Store,
    length: int,
    orders: Sequence[Order],
    device: torch.device,
    kind: Precision,
    depths: Sequence[int] = (),
    tokens: int = 0,
    progress: Progress = lambda _: None,
) -> Table:
    """Sums of every kind, after all layers and at these depths from one pass, on about ``tokens`` (0: a default).

    Masked words are counted on inputs of the first order only: that of the training.
    """
    network.to(device).eval()
    full, table = network.config.encoder.num_layers, Table()
    objective = AtDepths(length, LOGIT_CHUNK, tuple(dict.fromkeys((full, *depths))))
    for number, order in enumerate(orders):
        settings = held_out_settings(store, length, order)
        batches = Batches(store, "held_out", settings)
        count = min(batches.len(0), max(1, (tokens or MOST_TOKENS[device.type]) // settings.budget))
        for index in range(count):
            progress(f"batch {index + 1} of {count}")
            batch = batches.batch(0, index)
            counts = objective.counts(batch)
            with precision.cast(kind, device):
                parts = objective.parts(network, objective.tensors(batch, device))
            for part, sums in parts.items():
                if part.endswith("mlm") and number:
                    continue
                name = part.removeprefix(prefix_of(full)).replace("order", order)
                table.setdefault(name, []).append([float(sums.loss), float(sums.right), float(counts[part])])
    return table
