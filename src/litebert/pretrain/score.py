"""How well a trained network fills masks and tells order on the held-out text of a store, at any depth."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from litebert.corpus.batches import Batches
from litebert.corpus.settings import BatchSettings, Order
from litebert.corpus.store import Store
from litebert.errors import InputError
from litebert.nn.network import Network
from litebert.pretrain.held_out import HELD_OUT_RATE
from litebert.pretrain.objective import LOGIT_CHUNK, AtDepths
from litebert.train import precision
from litebert.train.settings import Precision

ORDERS: tuple[Order, ...] = ("sop", "nsp")  # what can be asked of a pair: which is first, do they follow at all
MOST_TOKENS = {"cpu": 1 << 16, "cuda": 1 << 20}  # of held-out text
BATCH_TOKENS = 4096
FEWEST_BATCHES = 16  # where the text is enough: a spread is taken over them

# Sums by kind: "mlm" and, for each order that pairs were made by, "sop" and "nsp"; of each batch (loss, right, items).
# Those of fewer than all layers have names such as "depth_3_mlm".
Table = dict[str, list[list[float]]]
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class DepthScore:
    """Means at a depth: ``mlm_loss``, ``mlm_accuracy`` and, where the network tells order, ``order_...``."""

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
    say: Say,
) -> list[DepthScore]:
    """Scores on about so many tokens of held-out text, after all layers and at these depths, the deepest first.

    ``order`` is what pairs ask.
    """
    if not store.split("held_out").num_tokens:
        raise InputError(f"{store.folder} has no held-out text to score on; build it with --held-out 5%")
    full, kind = network.config.encoder.num_layers, precision.default_precision(device)
    table = score_network(network, store, length, [order], device, kind, depths, tokens, say)
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
    """About how much of the held-out text is scored: so many tokens, at least a batch; 0: what there is time for."""
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
    say: Say = lambda _: None,
) -> Table:
    """Sums of every kind, after all layers and at these depths out of the same pass, on so many tokens (0: enough).

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
            say(f"batch {index + 1} of {count}")
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
