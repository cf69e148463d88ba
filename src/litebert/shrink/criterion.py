"""What greedy dropping goes by without a task: the loss on masked tokens, or else how far the final states move.

The second is for models without a masked-LM head. Both are measured on one fixed sample with one fixed set of masks, so
that candidates differ in their layers only.

T tokens, P masked positions.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.analyse.inputs import Inputs
from litebert.errors import InputError
from litebert.nn.config import Plan
from litebert.nn.encoder import Encoder
from litebert.nn.network import Network
from litebert.shrink.drop import kept_plan
from litebert.text.tokenizer import Tokenizer

MASKED = 0.15
SEED = 0


@contextmanager
def running(encoder: Encoder, plan: Plan) -> Iterator[None]:
    """The encoder with another plan for a while."""
    own, encoder.plan = encoder.plan, plan
    try:
        yield
    finally:
        encoder.plan = own


class Criterion:
    """Call it with the layers kept: lower is better. Layers that share blocks can leave one model; it is run once."""

    def __init__(self, network: Network, tokenizer: Tokenizer, sample: Sequence[Inputs]) -> None:
        self._network = network
        self._plan = network.encoder.plan
        self._known: dict[Plan, float] = {}
        self.predicts = "masked_lm" in network.heads and tokenizer.mask_id is not None
        if self.predicts:
            generator = torch.Generator().manual_seed(SEED)
            self._masked = [_mask(one, tokenizer, generator) for one in sample]
        else:
            self._sample = list(sample)
            self._wanted = [self._states(one) for one in sample]

    @property
    def name(self) -> str:
        return "loss on masked tokens" if self.predicts else "relative change of the final states"

    @torch.no_grad()
    def __call__(self, kept: Sequence[int]) -> float:
        plan = kept_plan(self._plan, kept)
        if plan not in self._known:
            with running(self._network.encoder, plan):
                self._known[plan] = self._loss() if self.predicts else self._distance()
        return self._known[plan]

    def _loss(self) -> float:
        total = count = 0.0
        for inputs, places, targets in self._masked:
            logits = self._network.masked_lm(self._predicting(inputs, places), places).float()
            total += float(F.cross_entropy(logits, targets, reduction="sum").double())
            count += len(targets)
        if not count:
            raise InputError("the text has no token that could be masked; give --text a file with words in it")
        return total / count

    def _predicting(self, inputs: Inputs, places: Tensor) -> Tensor:
        """The states that predict: a permutation language model's are those of its query stream."""
        if self._network.encoder.embeddings.mask is None:
            return self._states(inputs)
        ranks = torch.full_like(inputs.ids, -1).index_fill(0, places, 0)
        return self._network.encoder.two_streams(inputs.ids, inputs.layout, ranks, inputs.segments)[1]

    def _distance(self) -> float:
        moved = size = 0.0
        for inputs, wanted in zip(self._sample, self._wanted, strict=True):
            moved += float((self._states(inputs) - wanted).double().square().sum())
            size += float(wanted.double().square().sum())
        return (moved / size) ** 0.5

    @torch.no_grad()
    def _states(self, inputs: Inputs) -> Tensor:
        states: Tensor = self._network.encoder(inputs.ids, inputs.layout, inputs.segments)
        return states


def _mask(inputs: Inputs, tokenizer: Tokenizer, generator: torch.Generator) -> tuple[Inputs, Tensor, Tensor]:
    """Inputs with some tokens masked, where, and what was there; special tokens stay, one place at least is chosen."""
    special = torch.tensor([id for id in (tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id) if id is not None])
    draws = torch.rand(inputs.ids.shape, generator=generator).to(inputs.ids.device)
    draws = draws.masked_fill(torch.isin(inputs.ids, special.to(inputs.ids.device)), 1.0)
    chosen = (draws < MASKED) | ((draws == draws.min()) & (draws < 1.0))
    places = chosen.nonzero()[:, 0]
    assert tokenizer.mask_id is not None
    return replace(inputs, ids=inputs.ids.masked_fill(chosen, tokenizer.mask_id)), places, inputs.ids[places]
