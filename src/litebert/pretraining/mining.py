"""Hard-example mining: of more candidates than a step holds, it trains on those that there is most to learn from.

Candidates are words to mask (``hard-tokens``: more are drawn than the mask rate has, and those not chosen are shown) or
whole inputs (``hard-rows``). Their score is the loss of the network's own first layers at candidates that are all
masked, or how rare a token is; text that its store repeats counts less (``corpus/repeats.py``). The highest scores are
taken, or candidates are drawn by chance in proportion to their scores, with weights that undo this on average: then
the expected gradient is that of plain training.

A micro-batch is chosen from one batch of candidates. The choice depends on that batch, the seed and the weights alone:
a resumed run, or one with more ranks, makes the same one.

T tokens, S sequences, M masked positions, U units (words or inputs).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.corpus.batches import Batch, BatchArrays, mask_room, original_ids, with_all_masked, write_padding
from litebert.corpus.repeats import Repeats
from litebert.corpus.settings import BatchSettings
from litebert.corpus.store import Store, log_frequencies
from litebert.nn.config import EncoderConfig
from litebert.nn.layout import Layout
from litebert.nn.network import Network
from litebert.pretraining.objective import LOGIT_CHUNK, Pretraining, batch_flops
from litebert.pretraining.parts import Part as TextPart
from litebert.pretraining.recipe import Recipe, Selection
from litebert.pretraining.vocabulary_loss import IGNORED, IN_CACHE
from litebert.train.objective import Part, SumsOf
from litebert.train.settings import TrainSettings

DRAWS = 0x6D696E65  # sets these random numbers apart from others of the same seed
EVEN = 0.5  # of the mean score, added to all where candidates are drawn: no weight is above 1 + 1 / EVEN times the mean

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


class TokenLosses:
    """An objective for scoring: the loss (M) at every masked position after ``depth`` layers."""

    def __init__(self, longest: int, depth: int) -> None:
        self.inner, self.depth = Pretraining(longest, LOGIT_CHUNK, depth), depth

    def counts(self, batch: Batch) -> dict[str, int]:
        return {"mlm": batch.num_masked}

    def tensors(self, batch: Batch, device: torch.device) -> dict[str, Tensor]:
        return self.inner.tensors(batch, device)

    def parts(self, network: Network, tensors: Mapping[str, Tensor]) -> dict[str, Part]:
        layout = Layout(tensors["starts"], tensors["positions"], self.inner.longest)
        states = network.encoder(tensors["ids"], layout, tensors["segments"], depth=self.depth)
        chunk = IN_CACHE if states.device.type == "cpu" else self.inner.chunk
        pieces = zip(tensors["mask_positions"].split(chunk), tensors["mask_targets"].split(chunk), strict=True)
        losses, hits = [], []
        for places, targets in pieces:
            logits = network.masked_lm(states, places).float()
            losses.append(F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="none"))
            hits.append(logits.argmax(-1) == targets)
        return {"mlm": Part(torch.cat(losses), torch.cat(hits))}


def batch_settings(recipe: Recipe, train: TrainSettings, length: int) -> BatchSettings:
    """Batches of a length, at the highest of the recipe's mask rates."""
    return BatchSettings(
        length=length,
        budget=train.micro_tokens,
        order=recipe.order,
        edges=recipe.edges,
        min_document=recipe.batches.min_document,
        masking=recipe.masking,
        rate=recipe.highest_mask_rate,
        seed=train.seed,
        fixed=True,
    )


def candidate_settings(recipe: Recipe, train: TrainSettings, length: int) -> BatchSettings:
    """The batches that micro-batches are chosen from; those of training itself where nothing is chosen."""
    settings, share = batch_settings(recipe, train, length), recipe.select.share
    match recipe.select.kind:
        case "hard-tokens":
            return replace(settings, rate=settings.rate / share)
        case "hard-rows":
            return replace(settings, budget=round(settings.budget / share))
    return settings


class Candidates:
    """What the stages of a run choose from. What is counted over a store is counted once."""

    def __init__(self, recipe: Recipe, encoder: EncoderConfig, train: TrainSettings) -> None:
        self.recipe, self.encoder, self.train = recipe, encoder, train
        self._counted: dict[Path, tuple[Floats | None, Repeats | None]] = {}

    def rate(self, rate: float) -> float:
        """The mask rate of candidates where that of training is ``rate``."""
        return rate / self.recipe.select.share if self.recipe.select.kind == "hard-tokens" else rate

    def choice(self, part: TextPart, length: int, depth: int) -> "Mining | None":
        """How micro-batches are chosen at a depth; None: there is nothing to choose."""
        select, store = self.recipe.select, part.store
        if select.kind == "none" or store is None:
            return None
        plain = batch_settings(self.recipe, self.train, length)
        rarity, repeats = self._of_store(store)
        return Mining(
            select=select,
            encoder=self.encoder,
            scoring=TokenLosses(length, min(select.depth, depth)) if select.by == "loss" else None,
            rarity=rarity,
            repeats=repeats,
            whole_words=self.recipe.masking != "plain",
            mask_id=store.special_ids["mask"],
            pad_id=store.special_ids["pad"],
            budget=plain.budget,
            length=length,
            room=mask_room(plain),
            seed=self.train.seed,
        )

    def _of_store(self, store: Store) -> tuple[Floats | None, Repeats | None]:
        """How rare each token is, and what the training text has several times."""
        if store.folder not in self._counted:
            select, ids = self.recipe.select, store.special_ids
            rarity = -log_frequencies(store) if select.by == "frequency" else None
            between = [ids[name] for name in ("cls", "sep", "pad")]
            discounts = select.discount_repeats
            repeats = Repeats.of(store.split("train"), store.vocab_size, between) if discounts else None
            self._counted[store.folder] = rarity, repeats
        return self._counted[store.folder]


@dataclass(frozen=True, kw_only=True)
class Mining:
    """How the micro-batches of a stage are chosen from their candidates."""

    select: Selection
    encoder: EncoderConfig
    scoring: TokenLosses | None  # None: not by loss
    rarity: Floats | None  # (V) minus the logarithm of each token's share of the text; None: not by frequency
    repeats: Repeats | None  # of the store; None: repeated text counts as any other
    whole_words: bool  # words are chosen whole
    mask_id: int
    pad_id: int
    budget: int  # tokens of a micro-batch
    length: int
    room: int  # masked positions of a micro-batch
    seed: int

    def __call__(self, sums: SumsOf, candidates: Batch, device: torch.device) -> tuple[Batch, float]:
        """The micro-batch chosen from a batch of candidates, and the arithmetic of the scoring pass."""
        scores = self._scores(sums, candidates, device)
        if self.select.kind == "hard-rows":
            chosen = self._rows(candidates, scores)
        else:
            chosen = self._tokens(candidates, scores)
        flops = batch_flops(self.encoder, candidates, self.scoring.depth) / 3 if self.scoring else 0.0  # forward only
        return chosen, flops

    def _scores(self, sums: SumsOf, batch: Batch, device: torch.device) -> Floats:
        """(masked tokens) how much there is to learn at each."""
        places, targets = batch.mask_positions[: batch.num_masked], batch.mask_targets[: batch.num_masked]
        scores = np.ones(batch.num_masked)
        if self.rarity is not None:
            scores = self.rarity[targets]
        if self.scoring is not None:
            # What a candidate is replaced by must not decide whether it is chosen.
            hidden = with_all_masked(batch, self.mask_id)
            losses, _ = sums(self.scoring, self.scoring.tensors(hidden, device))["mlm"]
            scores = losses[: batch.num_masked].double().cpu().numpy()
        if self.repeats is None:
            return scores
        novelty = self.repeats.novelty(original_ids(batch), batch.starts[: batch.num_sequences + 1])
        found: Floats = scores * novelty[_sequence_of(batch, places)]
        return found

    def _tokens(self, batch: Batch, scores: Floats) -> Batch:
        """The batch with its best candidates masked and the others shown."""
        number, places = batch.num_masked, batch.mask_positions[: batch.num_masked]
        begins = np.diff(places, prepend=-2) != 1
        begins |= (batch.word_starts[places] > 0) | (not self.whole_words)
        first = np.flatnonzero(begins)
        sizes = np.diff(first, append=number)
        means = np.add.reduceat(scores, first) / sizes if number else scores
        units, weights = self._pick(means, sizes, round(self.select.share * number), self.room, batch)
        kept, weight = np.zeros(number, np.bool_), np.ones(number)
        unit_of = np.cumsum(begins) - 1
        kept[:] = np.isin(unit_of, units)
        if weights is not None:
            by_unit = np.ones(len(sizes))
            by_unit[units] = weights
            weight = by_unit[unit_of]
        return self._masked(batch, np.flatnonzero(kept), weight)

    def _rows(self, batch: Batch, scores: Floats) -> Batch:
        """The best sequences of a batch, as a batch of their own."""
        count, starts = batch.num_sequences, batch.starts.astype(np.int64)
        places = batch.mask_positions[: batch.num_masked]
        row = _sequence_of(batch, places)
        masked = np.bincount(row, minlength=count)
        mean = scores.mean() if len(scores) else 0.0
        means = np.where(masked > 0, np.bincount(row, scores, count) / np.maximum(masked, 1), mean)
        goal = self.budget - (0 if self.select.draw == "hardest" else self.length // 2)
        units, weights = self._pick(means, np.diff(starts[: count + 1]), goal, self.budget, batch)
        units, weights = _in_order(units, weights)
        weight = np.ones(batch.num_masked)
        if weights is not None:
            by_row = np.ones(count)
            by_row[units] = weights
            weight = by_row[row]
        return self._masked(self._only(batch, units), None, weight[np.isin(row, units)])

    def _pick(self, scores: Floats, sizes: Places, total: int, most: int, batch: Batch) -> tuple[Places, Floats | None]:
        """Units of about ``total`` tokens, of ``most`` at the most, and weights where they are drawn by chance."""
        if self.select.draw == "hardest" or not len(scores):
            return hardest(scores, sizes, min(total, most)), None
        random = np.random.default_rng((DRAWS, self.seed, batch.epoch, batch.index))
        return weighted(scores, sizes, total, most, random)

    def _only(self, batch: Batch, rows: Places) -> Batch:
        """The sequences ``rows`` of a batch, with their masks, in arrays of a micro-batch's size."""
        starts = batch.starts.astype(np.int64)
        index = np.concatenate([np.arange(starts[row], starts[row + 1]) for row in rows] or [np.zeros(0, np.int64)])
        used, count = len(index), len(rows)
        arrays = BatchArrays.empty(self.budget, len(batch.order_labels))
        for name in ("ids", "segments", "positions", "word_starts"):
            getattr(arrays, name)[:used] = getattr(batch, name)[index]
        arrays.order_labels[:count] = batch.order_labels[rows]
        arrays.starts[0], arrays.starts[1 : count + 1] = 0, np.cumsum(starts[rows + 1] - starts[rows])
        write_padding(arrays, used, count, self.pad_id, self.length)
        now = np.full(len(batch.ids), -1, np.int64)
        now[index] = np.arange(used)
        moved = now[batch.mask_positions[: batch.num_masked]]
        kept = moved >= 0
        return replace(
            batch,
            **arrays._asdict(),
            mask_positions=moved[kept].astype(np.int32),
            mask_targets=batch.mask_targets[: batch.num_masked][kept],
            num_tokens=used,
            num_sequences=count,
            num_masked=int(kept.sum()),
        )

    def _masked(self, batch: Batch, kept: Places | None, weight: Floats) -> Batch:
        """The batch with these of its masks, as many as there is room for; the others show their tokens."""
        kept = np.arange(batch.num_masked) if kept is None else kept
        kept = kept[: self.room]
        positions, targets = np.zeros(self.room, np.int32), np.full(self.room, IGNORED, np.int32)
        positions[: len(kept)], targets[: len(kept)] = batch.mask_positions[kept], batch.mask_targets[kept]
        ids = original_ids(batch)
        ids[batch.mask_positions[kept]] = batch.ids[batch.mask_positions[kept]]
        weights = None
        if self.select.draw == "weighted":
            weights = np.ones(self.room, np.float32)
            weights[: len(kept)] = weight[kept]
        return replace(
            batch,
            ids=ids,
            mask_positions=positions,
            mask_targets=targets,
            mask_weights=weights,
            num_masked=len(kept),
        )


def hardest(scores: Floats, sizes: Places, total: int) -> Places:
    """The units (ascending) of the highest scores that fit into ``total`` tokens; the next best fill the gap."""
    order = np.argsort(-scores, kind="stable")
    count = int(np.searchsorted(np.cumsum(sizes[order]), total, side="right"))
    taken, gap = list(order[:count]), total - int(sizes[order[:count]].sum())
    smallest = int(sizes.min(initial=total + 1))
    for unit in order[count:]:
        if gap < smallest:
            break
        if sizes[unit] <= gap:
            taken.append(unit)
            gap -= int(sizes[unit])
    return np.sort(np.array(taken, np.int64))


def weighted(
    scores: Floats, sizes: Places, total: int, most: int, random: np.random.Generator
) -> tuple[Places, Floats]:
    """Units drawn in proportion to their scores, of about ``total`` tokens, and weights that undo this on average.

    The weights of the drawn ones are one on average. Units beyond ``most`` tokens are left out.
    """
    order = random.permutation(len(scores))
    likely = inclusion(scores + EVEN * scores.mean() + np.finfo(np.float64).tiny, sizes, total)
    ends = np.cumsum(likely[order]) + random.random()
    units = order[np.floor(ends) > np.floor(ends - likely[order])]
    units = units[np.cumsum(sizes[units]) <= most]
    return units, total / sizes.sum() / likely[units]


def inclusion(scores: Floats, sizes: Places, total: int) -> Floats:
    """The chance of each unit, at most 1, in proportion to scores where it is less, with ``total`` tokens expected."""
    likely = np.zeros(len(scores))
    sure = np.zeros(len(scores), np.bool_)
    while True:
        left = total - sizes[sure].sum()
        rest = float((scores * sizes)[~sure].sum())
        likely = np.where(sure, 1.0, scores * (left / rest) if rest > 0 else 0.0)
        over = (likely > 1) & ~sure
        if not over.any():
            return np.minimum(likely, 1.0)
        sure |= over


def _sequence_of(batch: Batch, places: npt.NDArray[np.int32]) -> Places:
    """The number of the sequence that each place is in."""
    return np.searchsorted(batch.starts[1 : batch.num_sequences + 1], places, side="right").astype(np.int64)


def _in_order(units: Places, weights: Floats | None) -> tuple[Places, Floats | None]:
    """Units ascending, with their weights."""
    order = np.argsort(units)
    return units[order], None if weights is None else weights[order]
