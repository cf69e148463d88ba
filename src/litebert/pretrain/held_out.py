"""How good a network is on held-out text: the first batches, always the same, masked at 15%.

So the figures of two runs compare, and with those that other people report, however a run masks its own text: words are
masked plainly unless the recipe's ``eval_masking`` says otherwise.
"""

from collections.abc import Sequence

from litebert.corpus.batches import Batches
from litebert.pretrain.objective import LOGIT_CHUNK, AtDepths
from litebert.train.objective import SumsOf
from litebert.train.parallel import Ranks

HELD_OUT_RATE = 0.15


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
