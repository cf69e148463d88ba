"""From a request to the layers that are dropped: by number, by rule, or by what the layers do to a text.

Greedy dropping is guided by the loss on masked tokens, or, for models without a masked-LM head, by how far the final
states move. Both are measured on one fixed sample with one fixed set of masks, so that candidates differ in their
layers only.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.analyse.inputs import Inputs, batches, count_texts, first_tokens, text_lines, tokenizer_for
from litebert.analyse.layer_statistics import contribution
from litebert.analyse.measure import with_progress
from litebert.checkpoints.folder import Loaded
from litebert.errors import InputError
from litebert.nn.config import EncoderConfig, Plan
from litebert.nn.encoder import Encoder
from litebert.nn.network import Network
from litebert.shrinking.drop import kept_plan, sharing
from litebert.shrinking.strategies import (
    NEEDS_TEXT,
    Layers,
    Strategy,
    check_count,
    drop_fixed,
    drop_greedily,
    drop_similar,
    kept_of,
    parse_kept,
    parse_strategy,
)
from litebert.terminal import progress
from litebert.text.tokenizer import Tokenizer

GREEDY_TOKENS = 16_384  # every candidate runs all of them
MASKED = 0.15
SEED = 0


@dataclass(frozen=True, kw_only=True)
class DropRequest:
    """What to drop: layers to keep, or a number and a strategy."""

    keep: str | None = None
    drop: int | None = None
    strategy: str | None = None
    text: tuple[str, ...] = ()
    most_texts: int | None = None
    tokenizer: Path | None = None
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The layers dropped and kept; ``scores`` are what decided it, one for each layer or each step."""

    strategy: Strategy | None
    dropped: Layers
    kept: Layers
    measure: str = ""
    scores: list[dict[str, float]] = field(default_factory=list)


def check_request(request: DropRequest) -> Strategy | None:
    """Errors that show before a model is read; returns the strategy, or None for layers named one by one."""
    if (request.keep is None) == (request.drop is None):
        raise InputError("give either drop, the number of layers to drop, or keep, the layers to keep such as 1,2,5,9")
    if request.keep is not None:
        if request.strategy is not None:
            raise InputError("keep names the layers itself; leave out strategy")
        return None
    strategy = parse_strategy(request.strategy or "top")
    if strategy in NEEDS_TEXT and not request.text:
        raise InputError(f"strategy {strategy} measures what the layers do to a text; set text to a file")
    return strategy


def choose(request: DropRequest, config: EncoderConfig, load: Callable[[], Loaded]) -> Choice:
    """The choice for a model of this shape; weights are loaded only where the strategy needs them."""
    strategy = check_request(request)
    depth = config.num_layers
    if strategy is None:
        kept = parse_kept(request.keep or "", depth)
        return Choice(strategy=None, kept=kept, dropped=kept_of(depth, kept))
    count = request.drop or 0
    check_count(depth, count)
    if strategy not in NEEDS_TEXT or sharing(config.plan) == "all":
        rule = strategy if strategy not in NEEDS_TEXT else "top"  # all layers are the same: nothing to measure
        return _choice(strategy, drop_fixed(rule, depth, count), depth)
    loaded = load()
    tokenizer = tokenizer_for("the model", loaded.tokenizer, request.tokenizer, config.family)
    lines = text_lines(request.text, request.most_texts)
    if strategy == "contribution":
        inputs = batches(lines, tokenizer, config, device=request.device)
        total = count_texts(request.text, request.most_texts)
        cosines = contribution(loaded.network.encoder, with_progress(inputs, "contribution", total))
        scores = [{"layer": layer, "cls_cosine": cosine} for layer, cosine in enumerate(cosines, start=1)]
        return _choice(strategy, drop_similar(cosines, count), depth, "mean [CLS] cosine, input to output", scores)
    sample = first_tokens(lines, tokenizer, GREEDY_TOKENS)
    criterion = Criterion(loaded.network, tokenizer, list(batches(sample, tokenizer, config, device=request.device)))
    before = criterion(range(1, depth + 1))
    total = sum(range(depth - count + 1, depth + 1))
    with progress() as show:
        candidates = itertools.count(1)

        def loss(kept: Layers) -> float:
            show(f"candidate {next(candidates)} of {total}")
            return criterion(kept)

        dropped, order = drop_greedily(depth, count, loss)
    scores = [{"layer": 0, "score": before}, *({"layer": layer, "score": value} for layer, value in order)]
    return _choice(strategy, dropped, depth, criterion.name, scores)


def _choice(
    strategy: Strategy, dropped: Layers, depth: int, measure: str = "", scores: Sequence[dict[str, float]] = ()
) -> Choice:
    kept = kept_of(depth, dropped)
    return Choice(strategy=strategy, dropped=dropped, kept=kept, measure=measure, scores=list(scores))


@contextmanager
def with_plan(encoder: Encoder, plan: Plan) -> Iterator[None]:
    """Run the encoder with another plan inside this block."""
    own, encoder.plan = encoder.plan, plan
    try:
        yield
    finally:
        encoder.plan = own


class Criterion:
    """Call it with the layers kept: lower is better. Where shared blocks make candidates equal, one run serves all."""

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
            with with_plan(self._network.encoder, plan):
                self._known[plan] = self._loss() if self.predicts else self._distance()
        return self._known[plan]

    def _loss(self) -> float:
        total = count = 0.0
        for inputs, places, targets in self._masked:
            logits = self._network.masked_lm(self._predicting(inputs, places), places).float()
            total += float(F.cross_entropy(logits, targets, reduction="sum").double())
            count += len(targets)
        if not count:
            raise InputError("the text has no token that can be masked; give a text with words in it")
        return total / count

    def _predicting(self, inputs: Inputs, places: Tensor) -> Tensor:
        """The states that predict: in a permutation language model those of the query stream."""
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
    """(masked inputs, positions, original ids); special tokens stay, and at least one position is masked."""
    special = torch.tensor([id for id in (tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id) if id is not None])
    draws = torch.rand(inputs.ids.shape, generator=generator).to(inputs.ids.device)
    draws = draws.masked_fill(torch.isin(inputs.ids, special.to(inputs.ids.device)), 1.0)
    chosen = (draws < MASKED) | ((draws == draws.min()) & (draws < 1.0))
    places = chosen.nonzero()[:, 0]
    assert tokenizer.mask_id is not None
    return replace(inputs, ids=inputs.ids.masked_fill(chosen, tokenizer.mask_id)), places, inputs.ids[places]
