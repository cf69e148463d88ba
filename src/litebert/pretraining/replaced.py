"""Learning at every token: the first layers fill the masks with guesses of theirs, all layers judge the result.

The network is its own generator (ELECTRA section 2, with all weights shared). After ``generator_depth`` layers it
predicts the masked words, as in masked LM, and one guess is drawn for each; in a text so changed all layers
predict of every token whether it was replaced ("replaced") or which one was there ("all-tokens"). One sequence in
``masked_every`` keeps its masks, and all layers fill them: so the model can still be asked for words at its full depth.
These are sequences of every batch, not batches of their own, so that each batch is the same graph and uses all weights.

What is drawn follows from the seed and the batch's place in the stream, so that a resumed run, or one with more ranks,
draws the same: one number in [0, 1) for each mask, which picks the word at that share of the probabilities' sum. No
gradient passes through it.

T tokens, S sequences, M masked positions, V vocabulary, H width.
"""

from collections.abc import Mapping
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.corpus.batches import Batch, original_ids
from litebert.nn.config import EncoderConfig
from litebert.nn.layout import Layout
from litebert.nn.network import Network
from litebert.pretraining.objective import Pretraining, batch_flops, scale_order_gradient
from litebert.pretraining.vocabulary_loss import IGNORED
from litebert.train.objective import Part, on_device

Question = Literal["replaced", "all-tokens"]
DRAWS = 0x6D61736B  # sets these random numbers apart from others of the same seed
PART: dict[Question, str] = {"replaced": "replaced", "all-tokens": "tokens"}


class Replaced:
    """The generator's loss (``generator``), that of all layers on its guesses, and masked LM on what keeps its masks.

    ``deep`` is masked LM at full depth. With ``fixed_embeddings`` the generator's loss alone moves the embeddings,
    but for their use as the output table.
    """

    def __init__(
        self,
        deep: Pretraining,
        question: Question,
        generator_depth: int,
        seed: int,
        *,
        masked_every: int = 0,
        fixed_embeddings: bool = False,
    ) -> None:
        assert deep.depth is not None and 0 < generator_depth < deep.depth
        self.deep, self.question, self.generator_depth, self.seed = deep, question, generator_depth, seed
        self.masked_every, self.fixed_embeddings = masked_every, fixed_embeddings
        self.depth, self.longest = deep.depth, deep.longest

    def counts(self, batch: Batch) -> dict[str, int]:
        keeps = self._keeps(batch)
        counts = {"generator": batch.num_masked, PART[self.question]: int((~keeps[: batch.num_tokens]).sum())}
        if self.masked_every:
            counts["mlm"] = int((self._kept_targets(batch, keeps) != IGNORED).sum())
        return {**counts, "order": self.deep.counts(batch)["order"]}

    def tensors(self, batch: Batch, device: torch.device) -> dict[str, Tensor]:
        keeps = self._keeps(batch)
        counted = ~keeps
        counted[batch.num_tokens :] = False
        arrays: dict[str, npt.NDArray[np.generic]] = {
            "original": original_ids(batch).astype(np.int64),
            "keeps": keeps,
            "counted": counted,
            "kept_targets": self._kept_targets(batch, keeps).astype(np.int64),
            "draws": uniform_draws(self.seed, batch),
        }
        own = {name: on_device(torch.from_numpy(array), device) for name, array in arrays.items()}
        return {**self.deep.tensors(batch, device), **own}

    def parts(self, network: Network, tensors: Mapping[str, Tensor]) -> dict[str, Part]:
        layout = Layout(tensors["starts"], tensors["positions"], self.longest)
        places, segments = tensors["mask_positions"], tensors["segments"]
        shallow = network.encoder(tensors["ids"], layout, segments, depth=self.generator_depth)
        parts = {"generator": self.deep.masked_lm(network, shallow, places, tensors["mask_targets"])}
        shown = self._shown(network, shallow[places].detach(), tensors)
        states = network.encoder(shown, layout, segments, depth=self.depth, fixed_embeddings=self.fixed_embeddings)
        words, order = scale_order_gradient(states, states, self.deep.order_grad_ratio)
        parts[PART[self.question]] = self._second_loss(network, words, shown, tensors)
        if self.masked_every:
            parts["mlm"] = self.deep.masked_lm(network, words, places, tensors["kept_targets"])
        return {**parts, **self.deep.order(network, order, layout, tensors["order_labels"])}

    def _second_loss(self, network: Network, states: Tensor, shown: Tensor, tensors: Mapping[str, Tensor]) -> Part:
        """The loss of all layers on the changed text."""
        original, counted = tensors["original"], tensors["counted"]
        if self.question == "replaced":
            return replaced_sums(network.heads["replaced"](states).float(), shown != original, counted)
        everywhere = torch.arange(original.shape[0], device=original.device)
        return self.deep.masked_lm(network, states, everywhere, torch.where(counted, original, IGNORED))

    @torch.no_grad()
    def _shown(self, network: Network, states: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """(T) the ids that all layers read, from the generator's states (M, H)."""
        chunk = self.deep.chunk or states.shape[0]
        pieces = zip(states.split(chunk), tensors["draws"].split(chunk), strict=True)
        guesses = torch.cat([sample_tokens(network.masked_lm_at(some).float(), at) for some, at in pieces])
        original, size = tensors["original"], tensors["original"].shape[0]
        real = tensors["mask_targets"] != IGNORED
        places = torch.where(real, tensors["mask_positions"], size)  # those that only pad: past the end
        changed = torch.cat([original, original[:1]]).scatter(0, places, guesses)[:size]
        return torch.where(tensors["keeps"], tensors["ids"], changed)

    def _keeps(self, batch: Batch) -> npt.NDArray[np.bool_]:
        """(T) whether a token is in a sequence that keeps its masks: every N-th, from another one on in each batch."""
        if not self.masked_every:
            return np.zeros(len(batch.ids), dtype=np.bool_)
        sequence = np.searchsorted(batch.starts, np.arange(len(batch.ids)), side="right")
        return (sequence + batch.index) % self.masked_every == 0

    def _kept_targets(self, batch: Batch, keeps: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
        return np.where(keeps[batch.mask_positions], batch.mask_targets, np.int32(IGNORED))


class BeforeReplaced(Pretraining):
    """Masked LM in a network whose head for replaced tokens is not used yet.

    The head takes part with weight 0: ranks wait for gradients of every weight.
    """

    def counts(self, batch: Batch) -> dict[str, int]:
        return {**super().counts(batch), "replaced": 0}

    def heads(self, network: Network, states: Tensor, layout: Layout, tensors: Mapping[str, Tensor]) -> dict[str, Part]:
        nothing = 0.0 * network.heads["replaced"](states[:1]).float().sum()
        return {**super().heads(network, states, layout, tensors), "replaced": Part(nothing, nothing.detach())}


def uniform_draws(seed: int, batch: Batch) -> npt.NDArray[np.float32]:
    """(M) numbers in [0, 1) that belong to a batch."""
    random = np.random.default_rng((DRAWS, seed, batch.epoch, batch.index))
    return random.random(len(batch.mask_positions), dtype=np.float32)


def sample_tokens(logits: Tensor, at: Tensor) -> Tensor:
    """(M) ids drawn from logits (M, V) by numbers (M) in [0, 1)."""
    sums = (logits - logits.amax(-1, keepdim=True)).exp().cumsum(-1)
    return (sums <= at[:, None] * sums[:, -1:]).sum(-1).clamp(max=logits.shape[-1] - 1)


def replaced_sums(logits: Tensor, replaced: Tensor, counted: Tensor) -> Part:
    """Binary cross entropy and hits over the tokens (T) that count."""
    lost = F.binary_cross_entropy_with_logits(logits, replaced.to(logits.dtype), reduction="none")
    return Part((lost * counted).sum(), (((logits.detach() > 0) == replaced) & counted).sum())


def step_flops(config: EncoderConfig, batch: Batch, *, generator_depth: int, question: Question) -> float:
    """Arithmetic of a training step on a batch: that of both depths and of their heads; of detection's own, nothing."""
    both = sum(map(partial(batch_flops, config, batch), (generator_depth, config.num_layers)))
    if question == "replaced":
        return both
    share = batch.num_tokens / max(batch.num_masked, 1)
    return both + batch_flops(config, batch, heads=share) - batch_flops(config, batch, heads=0.0)
