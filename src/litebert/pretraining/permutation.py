"""Permutation language modelling (XLNet): each predicted token from the context and those before it in a random order.

The tokens that a batch would mask are the last of a factorisation order, the others are context that all of them see:
the mask rate is 1 / K of XLNet section 2.3 ("partial prediction"). As in its released code, context sees all of itself.
Nothing is replaced. The content stream reads the text, in the order; the query stream, which knows a place but not the
token there, predicts, and runs at the predicted tokens alone. There is no memory of segments before: inputs are
not parts of longer texts here.

The order follows from the seed and the batch's place in the stream: a resumed run, or one with more ranks, draws the
same.

T tokens, S sequences, Q predicted tokens of a sequence at the most, M masked positions, H width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from litebert.corpus.batches import Batch, original_ids
from litebert.nn.config import EncoderConfig
from litebert.nn.layout import Layout
from litebert.nn.network import Network
from litebert.planning.arithmetic import query_flops
from litebert.pretraining.objective import AtDepths, Pretraining, at_depth, batch_flops, scale_order_gradient
from litebert.train.objective import Part, on_device

DRAWS = 0x7065726D  # sets these random numbers apart from others of the same seed
STEP_OF_ROOM = 8  # predicted tokens of a sequence are padded to multiples of this, so that few shapes occur
LAST_SEGMENT = 2  # of a [CLS] at the end, as its family's tokenizer has it
PART = "permutation"


class Permutation(Pretraining):
    """The loss of the query stream (``permutation``), and order from the content stream, which sees no prediction.

    With ``all_at_once`` the predicted tokens do not see each other: each is predicted from the context alone, which is
    what masked LM does. Then the part is named ``mlm``, as its figures compare.
    """

    def __init__(
        self,
        longest: int,
        chunk: int = 0,
        depth: int | None = None,
        order_grad_ratio: float = 0.0,
        *,
        seed: int = 0,
        cls_last: bool = False,
        all_at_once: bool = False,
    ) -> None:
        super().__init__(longest, chunk, depth, order_grad_ratio)
        self.seed, self.cls_last, self.all_at_once = seed, cls_last, all_at_once
        self.part = "mlm" if all_at_once else PART

    def counts(self, batch: Batch) -> dict[str, int]:
        counts = super().counts(batch)
        return {self.part: counts["mlm"], "order": counts["order"]}

    def tensors(self, batch: Batch, device: torch.device) -> dict[str, Tensor]:
        batch = with_cls_last(batch) if self.cls_last else batch
        ranks = np.full(len(batch.ids), -1, np.int64)
        ranks[batch.mask_positions[: batch.num_masked]] = 0 if self.all_at_once else drawn_order(self.seed, batch)
        places, slots = query_places(batch, self.longest)
        own = {"ids": original_ids(batch).astype(np.int64), "ranks": ranks, "places": places, "slots": slots}
        on = {name: on_device(torch.from_numpy(array), device) for name, array in own.items()}
        return {**super().tensors(batch, device), **on}

    def parts(self, network: Network, tensors: Mapping[str, Tensor]) -> dict[str, Part]:
        layout = Layout(tensors["starts"], tensors["positions"], self.longest)
        streams = network.encoder.two_streams(
            *(tensors["ids"], layout, tensors["ranks"], tensors["segments"]),
            places=tensors["places"],
            depth=self.depth,
        )
        return self.of_streams(network, *streams, layout, tensors)

    def of_streams(
        self, network: Network, content: Tensor, query: Tensor, layout: Layout, tensors: Mapping[str, Tensor]
    ) -> dict[str, Part]:
        """The losses on both streams (T, H) and (S, Q, H) of some depth."""
        words, order = scale_order_gradient(query.flatten(0, 1), content, self.order_grad_ratio)
        part = self.masked_lm(network, words, tensors["slots"], tensors["mask_targets"])
        return {self.part: part, **self.order(network, order, layout, tensors["order_labels"])}


class PermutationAtDepths(AtDepths):
    """For scoring: the words that are masked for other models, each from the context alone; and at full depth, in an
    order, what training loses."""

    inner: Permutation

    def __init__(self, longest: int, chunk: int, depths: Sequence[int], cls_last: bool) -> None:
        super().__init__(longest, chunk, depths)
        self.inner = Permutation(longest, chunk, cls_last=cls_last, all_at_once=True)
        self.in_order = Permutation(longest, chunk, max(depths), cls_last=cls_last)

    def counts(self, batch: Batch) -> dict[str, int]:
        return {**super().counts(batch), at_depth(max(self.depths), PART): batch.num_masked}

    def tensors(self, batch: Batch, device: torch.device) -> dict[str, Tensor]:
        return {**self.inner.tensors(batch, device), "order": self.in_order.tensors(batch, device)["ranks"]}

    def parts(self, network: Network, tensors: Mapping[str, Tensor]) -> dict[str, Part]:
        layout = Layout(tensors["starts"], tensors["positions"], self.inner.longest)
        states = network.encoder.two_stream_states(
            *(tensors["ids"], layout, tensors["ranks"], tensors["places"], tensors["segments"]), depth=max(self.depths)
        )
        parts = {
            at_depth(depth, name): part
            for depth in self.depths
            for name, part in self.inner.of_streams(network, *states[depth], layout, tensors).items()
        }
        in_order = self.in_order.parts(network, {**tensors, "ranks": tensors["order"]})[PART]
        return {**parts, at_depth(max(self.depths), PART): in_order}


def drawn_order(seed: int, batch: Batch) -> npt.NDArray[np.int64]:
    """(masked tokens) the place of each in the factorisation order; those of one sequence are in a random order."""
    return np.random.default_rng((DRAWS, seed, batch.epoch, batch.index)).permutation(batch.num_masked)


def query_places(batch: Batch, longest: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where in its sequence each predicted token is (S, Q), padded with zeros, and where the M masked positions are
    in that table laid flat."""
    positions = batch.mask_positions[: batch.num_masked]
    sequence = np.searchsorted(batch.starts, positions, side="right") - 1
    first = np.searchsorted(sequence, sequence)  # they ascend
    column = np.arange(batch.num_masked) - first
    width = int(column.max(initial=0)) + 1
    width = min(longest, -(-width // STEP_OF_ROOM) * STEP_OF_ROOM)
    places = np.zeros((len(batch.starts) - 1, width), np.int64)
    places[sequence, column] = batch.positions[positions]
    slots = np.zeros(len(batch.mask_positions), np.int64)
    slots[: batch.num_masked] = sequence * width + column
    return places, slots


def with_cls_last(batch: Batch) -> Batch:
    """The batch with each sequence's [CLS] at its end, in a segment of its own."""
    starts = np.unique(batch.starts)
    first, last = starts[:-1], starts[1:] - 1
    index = np.arange(1, len(batch.ids) + 1)
    index[last] = first
    segments = batch.segments[index]
    segments[last] = LAST_SEGMENT
    real = np.arange(len(batch.mask_positions)) < batch.num_masked
    return replace(
        batch,
        ids=batch.ids[index],
        word_starts=batch.word_starts[index],
        segments=segments,
        mask_positions=np.where(real, batch.mask_positions - 1, 0).astype(np.int32),
    )


def step_flops(config: EncoderConfig, batch: Batch, depth: int | None = None) -> float:
    """Arithmetic of a training step on a batch: that of the content stream and the head, and of the query stream."""
    share = 1.0 if depth is None else depth / config.num_layers
    lengths = np.diff(batch.starts[: batch.num_sequences + 1])
    sequence = np.searchsorted(batch.starts, batch.mask_positions[: batch.num_masked], side="right") - 1
    length = float(lengths[sequence].mean()) if batch.num_masked else 0.0
    return batch_flops(config, batch, depth) + 3 * share * batch.num_masked * query_flops(config, length)
