"""Continuous depth batching: early exit for full batches, where one block is shared by all depths.

With one block every row of a batch may be at a depth of its own. A buffer of fixed size holds packed tokens; a step
runs the block on all of it; rows that leave make room, and new rows enter at depth 0. So there is one shape, which on a
GPU is recorded once as a CUDA graph and replayed. The host decides who leaves. Two lanes, each with a buffer, take
turns: while one runs, the host reads what the other gave and lays out its next step, so that the GPU does not wait.

What is free in a buffer is filled with rows that nobody asks about, since kernels want every token to be in one.

C tokens of a buffer, E tokens that may enter in a step, S places for rows, H width, D depths, L labels.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from litebert.early_exits.heads import Exits, Flags, Integers, exit_features
from litebert.nn.attention import HALF, has_flash
from litebert.nn.layout import Layout
from litebert.nn.network import Network
from litebert.tasks.encoding import Inputs
from litebert.tasks.examples import Kind
from litebert.tasks.objective import head_outputs, takes_segments
from litebert.train import precision
from litebert.train.settings import Precision

Small = npt.NDArray[np.int32]
Finished = tuple[Integers, npt.NDArray[np.float32], Integers]  # rows, their scores, the layers they ran
LANES = 2
SMALLEST, LARGEST = 1024, 32_768  # tokens of a buffer
BUFFERS = 16  # a run should fill each lane's buffer at least half as often, or its end, when it runs empty, counts much
TOKENS_A_ROW = 16  # rows of a buffer are its tokens divided by this
LENGTHS = (64, 128, 256, 512)  # bounds on the length of a row, for which attention is recorded
WARM_UP = 3  # steps before one is recorded


@dataclass(frozen=True, kw_only=True)
class BufferSize:
    """The fixed shapes of a lane. A row of more than ``entering`` tokens could never enter."""

    tokens: int
    entering: int
    rows: int
    longest: int

    def __post_init__(self) -> None:
        assert self.longest <= self.entering <= self.tokens and self.rows >= 1, self

    @property
    def places(self) -> int:
        """Places for rows and for what fills up the buffer, even an empty one."""
        return self.rows - (-self.tokens // self.longest)


def fitting_size(inputs: Inputs) -> BufferSize:
    """The shapes for some inputs, out of few: powers of two, so that engines can be used again."""
    longest = next((one for one in LENGTHS if inputs.longest <= one), inputs.longest)
    wanted = max(len(inputs.ids) // BUFFERS, 2 * longest, SMALLEST)
    tokens = min(1 << (wanted - 1).bit_length(), max(LARGEST, 2 * longest))
    return BufferSize(tokens=tokens, entering=tokens // 2, rows=tokens // TOKENS_A_ROW, longest=longest)


def can_run_continuously(network: Network, device: torch.device, numbers: Precision) -> bool:
    """Whether all depths run one block, and the device has attention for rows of any length in a fixed buffer."""
    encoder = network.config.encoder
    half = numbers != "fp32" or next(network.parameters()).dtype in HALF
    return (
        device.type == "cuda"
        and len(set(encoder.plan)) == 1
        and encoder.positions == "absolute"
        and not encoder.is_sparse
        and half
        and has_flash()
    )


class Decides(Protocol):
    """What decides which rows leave; ``Leaver`` does so by a rule."""

    def leave(self, rows: Integers, scores: npt.NDArray[Any], depths: Integers) -> Flags:
        """Which of these rows leave with these scores, having run ``depths`` layers each."""
        ...


class Queue:
    """Inputs laid end to end in their order, and how many of them have entered."""

    def __init__(self, inputs: Inputs, arrived: Callable[[], int] | None = None) -> None:
        self.lengths, self.starts, self.ids, self.segments = inputs.lengths, inputs.starts, inputs.ids, inputs.segments
        self.positions = np.arange(self.starts[-1]) - np.repeat(self.starts[:-1], self.lengths)
        self.head = 0
        self.arrived = arrived or (lambda: len(self.lengths))

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, rows: int, tokens: int) -> slice:
        """The next rows that have arrived and fit."""
        first = self.head
        most = min(first + rows, self.arrived())
        fits = int(np.searchsorted(self.starts, self.starts[first] + tokens, side="right")) - 1
        self.head = max(first, min(most, fits))
        return slice(first, self.head)


class Lane:
    """One buffer: the rows in it, its next step as the host lays it out, and the tensors that the device works on."""

    def __init__(self, size: BufferSize, width: int, labels: int, device: torch.device, dtype: torch.dtype) -> None:
        self.size = size
        self.rows: Integers = np.empty(0, np.int64)  # in the buffer, in the order of their tokens
        self.depths: Integers = np.empty(0, np.int64)  # of each, after the step
        self.lengths: Integers = np.empty(0, np.int64)
        cuda = device.type == "cuda"
        parts = (size.tokens, size.entering, size.entering, size.entering, size.places + 1, size.places)
        self._host = torch.zeros(sum(map(_aligned, parts)), dtype=torch.int32, pin_memory=cuda)
        self._views = [part.numpy() for part in _split(self._host, parts)]
        self.plan = self._host.to(device)
        self.source, self.ids, self.positions, self.segments, self.starts, self.heads = _split(self.plan, parts)
        self.states = torch.zeros(size.tokens + size.entering, width, device=device, dtype=dtype)
        self.scores = torch.zeros(size.places, labels, device=device)
        self._given = torch.zeros(size.places, labels, pin_memory=cuda)
        self._event = torch.cuda.Event() if cuda else None
        self.no_positions = torch.zeros(size.tokens, dtype=torch.int64, device=device)
        self.step: Callable[[], None] | None = None

    def lay_out(self, stays: Flags, queue: Queue) -> bool:
        """Lay out the next step: rows that stay close up, new ones enter behind them; False where there are none."""
        size = self.size
        source, ids, positions, segments, starts, heads = self._views
        begins = np.concatenate([[0], np.cumsum(self.lengths)])[:-1][stays]
        kept = self.lengths[stays]
        used = int(kept.sum())
        entering = queue.take(size.rows - len(kept), min(size.tokens - used, size.entering))
        new = queue.lengths[entering]
        self.rows = np.concatenate([self.rows[stays], np.arange(entering.start, entering.stop)])
        self.depths = np.concatenate([self.depths[stays] + 1, np.ones(len(new), np.int64)])
        self.lengths = np.concatenate([kept, new])
        if not len(self.rows):
            return False
        ends = np.cumsum(self.lengths)
        filling = ends[-1] + size.longest * np.arange(1, size.places - len(ends) + 1)
        starts[0], starts[1 : len(ends) + 1] = 0, ends
        np.minimum(filling, size.tokens, out=starts[len(ends) + 1 :], casting="unsafe")
        heads[: len(ends)], heads[len(ends) :] = self.depths - 1, 0
        source[:used] = np.arange(used) + np.repeat(begins - (np.cumsum(kept) - kept), kept)
        flat = slice(int(queue.starts[entering.start]), int(queue.starts[entering.stop]))
        count = flat.stop - flat.start
        source[used : used + count] = np.arange(size.tokens, size.tokens + count)
        source[used + count :] = 0
        ids[:count], positions[:count], segments[:count] = queue.ids[flat], queue.positions[flat], queue.segments[flat]
        return True

    def launch(self) -> None:
        """Send the layout, run the step, ask for its scores; nothing waits."""
        assert self.step is not None
        self.plan.copy_(self._host, non_blocking=True)
        self.step()
        self._given.copy_(self.scores, non_blocking=True)
        if self._event is not None:
            self._event.record()

    def wait(self) -> npt.NDArray[np.float32]:
        """(rows in the buffer, L) the scores of the step that was launched last."""
        if self._event is not None:
            self._event.synchronize()
        return cast(npt.NDArray[np.float32], self._given[: len(self.rows)].numpy())


def _aligned(count: int) -> int:
    """As many numbers or a few more, so that the next ones begin at 16 bytes, which compiled kernels like."""
    return -(-count // 4) * 4


def _split(whole: Tensor, parts: Sequence[int]) -> list[Tensor]:
    each = whole.split([_aligned(part) for part in parts])
    return [one[:part] for one, part in zip(each, parts, strict=True)]


class ContinuousBatcher:
    """The engine for one model and one size of buffer. On a GPU its step is recorded, and compiled if asked for."""

    def __init__(
        self,
        network: Network,
        exits: Exits,
        kind: Kind,
        size: BufferSize,
        numbers: Precision = "fp32",
        *,
        compiled: bool = False,
    ) -> None:
        encoder = network.config.encoder
        assert len(set(encoder.plan)) == 1 and encoder.positions == "absolute", encoder.plan
        device = network.encoder.embeddings.token.weight.device
        self.network = _ready(network, numbers)
        self.kind, self.size, self.numbers, self.device = kind, size, numbers, device
        self.num_depths = encoder.num_layers
        weight = exits.weight.to(device)  # (D, F, L)
        self.labels = weight.shape[-1]
        self._weight = weight.permute(1, 0, 2).reshape(weight.shape[1], -1).contiguous()  # (F, D * L)
        self._bias = exits.bias.to(device).reshape(-1)
        self._takes_segments = takes_segments(network)
        dtype = self._half or next(network.parameters()).dtype
        self.lanes = [Lane(size, encoder.width, self.labels, device, dtype) for _ in range(LANES)]
        step = self._step
        if compiled:
            assert device.type == "cuda", "compiled only on a GPU"
            step = torch.compile(self._step, dynamic=False, fullgraph=True)
        for lane in self.lanes:
            lane.step = _recorded(step, lane) if device.type == "cuda" else _eager(step, lane)

    @property
    def _half(self) -> torch.dtype | None:
        return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.numbers)

    def _step(
        self,
        states: Tensor,
        out: Tensor,
        source: Tensor,
        ids: Tensor,
        positions: Tensor,
        segments: Tensor,
        starts: Tensor,
        heads: Tensor,
        no_positions: Tensor,
    ) -> None:
        """One layer for the whole buffer: (C + E, H) states are updated, (S, L) scores written to ``out``."""
        network, size = self.network, self.size
        with precision.cast(self.numbers, self.device):
            entering = Layout(starts, positions.long(), size.longest)
            kinds = segments.long() if self._takes_segments else None
            states[size.tokens :].copy_(network.encoder.embeddings(ids.long(), entering, kinds))
            x = states.index_select(0, source)
            layout = Layout(starts, no_positions, size.longest)  # whose positions are never looked at
            x = network.encoder.layer(1, x, layout)
            states[: size.tokens].copy_(x)
            own = head_outputs(network, self.kind, x, layout).scores
            seen = exit_features(network, x, layout).float()
        with torch.autocast(self.device.type, enabled=False):
            every = torch.addmm(self._bias, seen, self._weight).view(size.places, self.num_depths, self.labels)
        each = every.gather(1, heads.long()[:, None, None].expand(-1, 1, self.labels)).squeeze(1)
        out.copy_(torch.where((heads == self.num_depths - 1)[:, None], own, each))

    @torch.inference_mode()
    def run(self, inputs: Inputs, decides: Decides, arrived: Callable[[], int] | None = None) -> Iterator[Finished]:
        """Run inputs in their order and yield rows as they leave, with their scores and the layers they ran.

        ``arrived`` says how many of the inputs are there by now, for a server's load; by default all are.
        """
        assert inputs.longest <= self.size.longest, (inputs.longest, self.size)
        queue = Queue(inputs, arrived)
        running: list[Lane] = []
        for lane in self.lanes:
            lane.rows = lane.depths = lane.lengths = np.empty(0, np.int64)
        done = 0
        while done < len(queue):
            for lane in self.lanes:
                stays = np.ones(0, np.bool_)
                finished = None
                if lane in running:
                    scores = lane.wait()
                    gone = decides.leave(lane.rows, scores, lane.depths)
                    finished = lane.rows[gone], scores[gone], lane.depths[gone]
                    stays = ~gone
                    running.remove(lane)
                if lane.lay_out(stays, queue):
                    lane.launch()
                    running.append(lane)
                if finished is not None and len(finished[0]):
                    done += len(finished[0])
                    yield finished


def _arguments(lane: Lane) -> tuple[Tensor, ...]:
    planned = (lane.source, lane.ids, lane.positions, lane.segments, lane.starts, lane.heads)
    return lane.states, lane.scores, *planned, lane.no_positions


def _eager(step: Callable[..., None], lane: Lane) -> Callable[[], None]:
    return lambda: step(*_arguments(lane))


def _recorded(step: Callable[..., None], lane: Lane) -> Callable[[], None]:
    """The step of a lane as a CUDA graph, to be replayed on whatever its tensors hold then."""
    arguments = _arguments(lane)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.inference_mode(), torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            step(*arguments)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        step(*arguments)
    return graph.replay


def _ready(network: Network, numbers: Precision) -> Network:
    """A copy whose products need no casting, and whose residual stream is as wide as they are."""
    if numbers == "fp32":
        return network
    dtype = torch.bfloat16 if numbers == "bf16" else torch.float16
    ready = copy.deepcopy(network).requires_grad_(False)
    for part in ready.modules():
        if isinstance(part, nn.Linear):
            part.to(dtype)
    ready.encoder.half_residual()
    return ready
