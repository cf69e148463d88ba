"""How good a network is on held-out text, in training and later: the first batches, always the same, masked at 15%.

So the figures of two runs compare, and with those that other people report, however a run masks its own text: words are
masked plainly unless the recipe's ``eval_masking`` says otherwise.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from litebert.corpus.batches import Batches, with_all_masked
from litebert.corpus.settings import BatchSettings, Order
from litebert.corpus.store import Store
from litebert.errors import InputError
from litebert.nn.config import EncoderConfig
from litebert.nn.network import Network
from litebert.pretraining.elastic import Elastic, quarters
from litebert.pretraining.mining import batch_settings
from litebert.pretraining.objective import LOGIT_CHUNK, AtDepths, Pretraining, at_depth
from litebert.pretraining.permutation import PART, PermutationAtDepths
from litebert.pretraining.recipe import Recipe
from litebert.pretraining.replaced import Replaced
from litebert.train import precision
from litebert.train.objective import Learner, Objective, Stage, SumsOf
from litebert.train.parallel import Ranks
from litebert.train.settings import Precision, TrainSettings
from litebert.train.trainer import Evaluate

HELD_OUT_RATE = 0.15
ORDERS: tuple[Order, ...] = ("sop", "nsp")  # what can be asked of a pair: which is first, do they follow at all
MAX_TOKENS = {"cpu": 1 << 16, "cuda": 1 << 20}  # of held-out text
BATCH_TOKENS = 4096
MIN_BATCHES = 16  # where the text is enough: a spread is taken over them

log = logging.getLogger(__name__)

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


def held_out_scores(
    recipe: Recipe, encoder: EncoderConfig, store: Store, train: TrainSettings, ranks: Ranks, *, last: Stage, most: int
) -> Evaluate | None:
    """Scores of a run on held-out text: the same ``most`` batches of a length, dealt out to the ranks.

    They are taken at the length and the depths that go with those in training, in the ``last`` stage also at that of
    all layers. None where there is no held-out text.
    """
    layers = encoder.num_layers
    if not store.split("held_out").num_tokens or not most:
        return None
    sources = {}
    for length in {length for _, length in recipe.batches.lengths}:
        plain = batch_settings(recipe, train, length)
        plain = replace(plain, rate=HELD_OUT_RATE, masking=recipe.eval_masking)
        sources[length] = Batches(store, "held_out", plain)
        if plain.min_document and not sources[length].len(0):
            log.warning("no held-out document has %d tokens; scored on shorter ones, too", plain.min_document)
            sources[length] = Batches(store, "held_out", replace(plain, min_document=0))
    others = quarters(layers) if recipe.elastic else ()

    def evaluate(sums: SumsOf, objective: Objective) -> Mapping[str, float]:
        assert isinstance(objective, Pretraining | Elastic | Replaced) and objective.depth is not None
        generator = (objective.generator_depth,) if isinstance(objective, Replaced) else ()
        depths = scored_depths(objective.depth, layers, objective is last.objective, (*others, *generator))
        batches = sources[objective.longest]
        numbers = range(ranks.rank, min(most, batches.len(0)), ranks.world)
        totals = {f"{prefix_of(depth)}{name}": [0.0] * 3 for depth in depths for name in ("mlm", "order", PART)}
        for row in _batch_sums(batches, numbers, sums, scorer(encoder, objective.longest, depths), ranks.device):
            for name, found in row.items():
                totals[name] = [a + b for a, b in zip(totals[name], found, strict=True)]
        first, figures = prefix_of(depths[0]), {"loss": 0.0}
        for name, mine in totals.items():
            loss, right, items = ranks.total(mine)
            if items:
                plain = name.removeprefix(first)
                figures |= {f"{plain}_loss": loss / items, f"{plain}_accuracy": right / items}
                figures["loss"] += loss / items if plain in ("mlm", "order") else 0.0
        return {**figures, "depth": depths[0]}  # of the figures that are named plainly

    return evaluate


def _batch_sums(
    batches: Batches,
    numbers: Iterable[int],
    sums: SumsOf,
    objective: AtDepths,
    device: torch.device,
    hides: bool = False,
) -> Iterator[dict[str, list[float]]]:
    """For each batch the loss, hits and items of every part at every depth, as ``depth_3_mlm``."""
    for number in numbers:
        batch = batches.batch(0, number)
        batch = with_all_masked(batch, batches.mask_id) if hides else batch
        counts = objective.counts(batch)
        found = sums(objective, objective.tensors(batch, device))
        yield {name: [float(loss), float(right), float(counts[name])] for name, (loss, right) in found.items()}


def scorer(encoder: EncoderConfig, length: int, depths: Sequence[int]) -> AtDepths:
    """What scores a network at these depths: a permutation language model predicts from its query stream."""
    if encoder.positions == "relative":
        return PermutationAtDepths(length, LOGIT_CHUNK, depths, encoder.pooled_token == "last")
    return AtDepths(length, LOGIT_CHUNK, depths)


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
        kinds = {"mlm": "mlm", "order": order, PART: PART}
        means = {part: _means(table.get(prefix + name, [])) for part, name in kinds.items()}
        figures = {f"{part}_{name}": value for part, of in means.items() for name, value in of.items()}
        found.append(DepthScore(depth=depth, figures=figures))
    return found


def prefix_of(depth: int) -> str:
    """What the names of a table begin with at a depth."""
    return at_depth(depth, "")


def scored_tokens(store: Store, settings: BatchSettings, device: torch.device, asked: int = 0) -> int:
    """About how many tokens of held-out text are scored: those asked for, at least a batch; 0: a default."""
    return min(store.split("held_out").num_tokens, max(settings.budget, asked or MAX_TOKENS[device.type]))


def _means(rows: Sequence[Sequence[float]]) -> dict[str, float]:
    """Loss and accuracy over all batches; nothing where there are no items."""
    items = sum(row[2] for row in rows)
    if not items:
        return {}
    return {"loss": sum(row[0] for row in rows) / items, "accuracy": sum(row[1] for row in rows) / items}


def held_out_settings(store: Store, length: int, order: Order) -> BatchSettings:
    """Batches small enough that there are several, plainly masked."""
    tokens = store.split("held_out").num_tokens
    budget = max(length, min(BATCH_TOKENS, tokens // MIN_BATCHES))
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
    hides: bool = False,
) -> Table:
    """Sums of every kind, after all layers and at these depths from one pass, on about ``tokens`` (0: a default).

    Masked words are counted on inputs of the first order only: that of the training. With ``hides`` every one of them
    is shown as [MASK]; else a tenth is another token, and a tenth as it was.
    """
    network.to(device).eval()
    full, table = network.config.encoder.num_layers, Table()
    depths = tuple(dict.fromkeys((full, *depths)))
    for order in orders:
        settings = held_out_settings(store, length, order)
        batches = Batches(store, "held_out", settings)
        count = min(batches.len(0), max(1, (tokens or MAX_TOKENS[device.type]) // settings.budget))
        with precision.cast(kind, device):
            objective = scorer(network.config.encoder, length, depths)
            sums_of: SumsOf = lambda each, x: Learner(network, each)(x)  # noqa: E731
            rows = _batch_sums(batches, range(count), sums_of, objective, device, hides)
            for number, row in enumerate(rows, 1):
                progress(f"batch {number} of {count}")
                for part, sums in row.items():
                    if part.endswith("_order") or order == orders[0]:
                        name = part.removeprefix(prefix_of(full)).replace("order", order)
                        table.setdefault(name, []).append(sums)
    return table
