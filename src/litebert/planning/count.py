"""What a step costs, counted on the step itself: the real network, objective and optimiser on tensors without data.

One step of training (or one pass of inference) runs under torch's ``FakeTensorMode``, which works out shapes and types
but neither computes nor takes memory. On the way every block of memory is recorded: when it comes and goes and what it
is for (autograd's hooks show what is kept for the backward pass). So is the arithmetic of every matrix product, by the
formulas of torch's ``FlopCounterMode``.

One record holds for batches of any size. It is made with a prime number of sequences (or cycles of mixed lengths) and
twice a prime number of masked positions, and neither prime divides a size of the model. So a block whose number of
elements the first divides grows with the tokens, one that the second divides grows with the masked positions, and all
others stay as they are.
"""

import bisect
import functools
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import _engine_run_backward
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from litebert.corpus.batches import Batch
from litebert.nn.attention import HALF, _attend_padded, _attend_runs, attend
from litebert.nn.attention_pattern import Pattern
from litebert.nn.config import EncoderConfig
from litebert.nn.layout import Layout
from litebert.nn.network import HeadsConfig, Network, NetworkConfig, pretraining_network
from litebert.planning.devices import DTYPES, Kind
from litebert.planning.step import StepSettings, build_network, build_stepper, cycle_of_lengths, random_batch
from litebert.pretraining.objective import Pretraining
from litebert.pretraining.vocabulary_loss import IN_CACHE
from litebert.train.parallel import Ranks

Part = Literal["weights", "gradients", "optimiser", "half_weights", "activations", "scores", "temporary"]
Growth = Literal["fixed", "tokens", "positions", "scores"]
PARTS: tuple[Part, ...] = get_args(Part)
SEQUENCE_PRIMES = (101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 251, 257, 263, 269, 271)
POSITION_PRIMES = (61, 59, 53, 47, 43, 41, 37)  # doubled at most IN_CACHE, so that the logits are made in one piece

# Compiled code cannot be traced without compiling it, which takes minutes. Of what eager code keeps for the backward
# pass and of the vocabulary's scores it has these shares, fitted to an H200's figures (test_memory_recorded.py).
COMPILED_SHARE: dict[Part, float] = {"activations": 0.97, "scores": 0.5}
# On a CPU the C library's heap has gaps: a share of what is kept in blocks small enough for that heap, with fused
# attention and without. Measured at 1,024 and 2,048 tokens on base and large shapes (docs/plan.md). With checkpointing
# freed blocks are returned to the system instead (``process_memory.py``).
GAPS_SHARE = {"fused": 0.19, "padded": 0.4}
SHORT = 512  # tokens of an input for which there is always memory
HEAP_BLOCK_BYTES = 32 * 2**20  # glibc never puts larger ones into its heap
# Measured with `litebert plan albert-tiny --measure --device cpu --tokens 512` (Linux; torch 2.13, and 2.11 built for
# CUDA, whose libraries are loaded on a CPU, too): what Python and torch take before there is a model. On CUDA the
# allocator does not count it.
RUNTIME_BYTES: dict[Kind, float] = {"cpu": 665e6 if torch.backends.cuda.is_built() else 340e6, "cuda": 0.0}
COMPILER_BYTES: dict[Kind, float] = {"cpu": 120e6, "cuda": 0.0}


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Counts by part; a block that several depths share counts once."""

    embeddings: int
    attention: int
    feed_forward: int
    pooler: int
    heads: int  # masked LM and order, with the pooler that the order head brings where the bare encoder has none

    @property
    def bare(self) -> int:
        """Encoder and pooler."""
        return self.embeddings + self.attention + self.feed_forward + self.pooler

    @property
    def with_heads(self) -> int:
        """Encoder, pooler, masked-LM and order heads."""
        return self.bare + self.heads


def count_parameters(config: EncoderConfig) -> Parameters:
    """The counts for an encoder, with the heads of pretraining apart."""
    with torch.device("meta"):
        bare = Network(NetworkConfig(encoder=config, heads=HeadsConfig()))
        full = pretraining_network(config)
    return Parameters(
        embeddings=_elements(full.encoder.embeddings),
        attention=_elements(full.encoder.attention),
        feed_forward=_elements(full.encoder.feed_forward),
        pooler=0 if bare.pooler is None else _elements(bare.pooler),
        heads=_elements(full) - _elements(bare),
    )


def _elements(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes by part at the worst moment of a step."""

    at: str  # forward, backward or optimiser step
    weights: float
    gradients: float
    optimiser: float
    half_weights: float  # the copies that autocast makes
    activations: float  # kept for the backward pass
    scores: float  # of the vocabulary, at the masked positions
    temporary: float  # gradients of activations and other things gone a moment later
    gaps: float  # freed, but not returned to the system
    runtime: float  # Python and torch

    @property
    def total(self) -> float:
        return float(sum(getattr(self, part.name) for part in fields(self) if part.name != "at"))


@dataclass(frozen=True, kw_only=True)
class Record:
    """What one step did, with what is needed to scale it to a batch of another size."""

    settings: StepSettings
    padded: bool  # whether attention pads
    cycle_tokens: int  # of the lengths that the batch repeats
    cycles: int
    positions: int  # masked
    born: npt.NDArray[np.int64]  # by block: the first moment at which it is there
    gone: npt.NDArray[np.int64]  # and the first at which it is not
    part: npt.NDArray[np.int64]
    growth: npt.NDArray[np.str_]
    sizes: npt.NDArray[np.float64]  # bytes
    phases: Sequence[str]  # by moment
    flops_per_token: float  # of the matrix products
    repeated_flops_per_token: float  # what checkpointing computes again, which is not the model's

    def memory(self, tokens: int) -> Memory:
        """The worst moment of the step on a batch of this many tokens."""
        settings, sizes = self.settings, self._sizes(tokens)
        shares = np.array([self._compiled_share(name) if settings.compiled else 1.0 for name in PARTS])
        changes = np.zeros((len(PARTS), len(self.phases) + 1))
        np.add.at(changes, (self.part, self.born), sizes)
        np.subtract.at(changes, (self.part, self.gone), sizes)
        held = shares[:, None] * changes.cumsum(1)
        worst = int(held.sum(0)[:-1].argmax())
        runtime = RUNTIME_BYTES[settings.kind] + (COMPILER_BYTES[settings.kind] if settings.compiled else 0.0)
        parts = {name: max(float(size), 0.0) for name, size in zip(PARTS, held[:, worst], strict=True)}
        return Memory(at=self.phases[worst], **parts, gaps=self._gaps(sizes), runtime=runtime)

    def largest_tokens(self, usable_bytes: float) -> int:
        """The most tokens that fit, in whole sequences; 0 where not even one does."""
        length, most = self.settings.length, 1

        def needed(sequences: int) -> float:
            return self.memory(sequences * length).total

        while needed(most) <= usable_bytes:
            most *= 2
        return length * bisect.bisect_right(range(1, most), usable_bytes, key=needed)

    def kept_bytes(self, tokens: int) -> float:
        """What is kept for the backward pass."""
        return float(self._sizes(tokens)[self.part == PARTS.index("activations")].sum())

    def _sizes(self, tokens: int) -> npt.NDArray[np.float64]:
        """The bytes of every block for a batch of this many tokens."""
        settings = self.settings
        masked = max(1.0, settings.mask_rate * tokens)
        # The plain loss goes through the masked positions by the cacheful on a CPU (vocabulary_loss.py).
        small = settings.chunk and settings.kind == "cpu" and not settings.elastic
        at_once = min(masked, settings.chunk or masked, IN_CACHE if small else masked)
        factors: dict[Growth, float] = {
            "fixed": 1.0,
            "tokens": tokens / (self.cycles * self.cycle_tokens),
            "positions": masked / self.positions,
            "scores": at_once / self.positions,
        }
        sizes = self.sizes.copy()
        for growth, factor in factors.items():
            sizes[self.growth == growth] *= factor
        return sizes

    def _compiled_share(self, part: Part) -> float:
        if part == "activations" and self.settings.checkpointing:  # inputs of layers, which no compiler can leave out
            return 1.0
        return COMPILED_SHARE.get(part, 1.0)

    def _gaps(self, sizes: npt.NDArray[np.float64]) -> float:
        if self.settings.kind == "cuda" or self.settings.checkpointing or not self.settings.trains:
            return 0.0
        small = sizes[(self.part == PARTS.index("activations")) & (sizes < HEAP_BLOCK_BYTES)]
        return GAPS_SHARE["padded" if self.padded else "fused"] * float(small.sum())


@functools.lru_cache(maxsize=128)
def record_step(config: EncoderConfig, settings: StepSettings) -> Record:
    """Run one step without data and record what it does."""
    cycle = cycle_of_lengths(settings.length, settings.mixed)
    with torch.device("meta"):
        network = build_network(config, settings)
    if not settings.trains:  # with weights in the precision asked for
        network.to(DTYPES[settings.precision]).eval()
    with FakeTensorMode(allow_non_fake_inputs=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")  # by torch's own optimisers
        network.to_empty(device="cpu")
        sizes = {parameter.numel() for parameter in network.parameters()} | {settings.length}
        position_prime = _coprime(POSITION_PRIMES, sizes)
        cycles = _coprime([p for p in SEQUENCE_PRIMES if p * sum(cycle) > 4 * position_prime], sizes)
        batch = random_batch(config, cycle * cycles, 2 * position_prime)
        recorder = _Recorder(config.vocab_size, cycles, position_prime)
        # queries with keys, and weights with values, a multiplication and an addition each
        each = functools.partial(_attention_flops, 4.0 * config.width * cycles, cycle)
        device = _AsOnDevice(settings, recorder, each)
        run = _train if settings.trains else _infer
        state = run(network, settings, batch, recorder, device)
        return recorder.record(settings, state, device.padded, sum(cycle), cycles, 2 * position_prime)


def longest_in(config: EncoderConfig, step: StepSettings, usable: float, pass_tokens: int = 0) -> int:
    """Tokens of the longest input: all that have a position, or half as often as it takes to fit into ``usable`` bytes.

    Fine-tuning and encoding take this limit where none is given. A forward pass holds ``pass_tokens`` or, where that is
    more, one input.
    """
    limit = config.input_limit()
    while limit > SHORT:
        record = record_step(config, replace(step, length=limit))
        if record.memory(max(limit, pass_tokens)).total <= usable:
            break
        limit = max(SHORT, limit // 2)
    return limit


def _attention_flops(of_pair: float, lengths: Sequence[int], pattern: Pattern) -> float:
    """Arithmetic of the attention of one layer."""
    return of_pair * sum(length * pattern.mean_seen(length) for length in lengths)


def _coprime(primes: Sequence[int], sizes: set[int]) -> int:
    """The first of the primes that divides none of the sizes."""
    return next(prime for prime in primes if all(size % prime for size in sizes))


def _train(
    network: Network, settings: StepSettings, batch: Batch, recorder: "_Recorder", device: "_AsOnDevice"
) -> list[Tensor]:
    """Take a step; gives the optimiser's state."""
    eager = replace(settings, compiled=False, checkpointing=False, logit_chunk=settings.chunk)
    stepper, stage = build_stepper(network, eager, Ranks.alone(torch.device("cpu")))
    # Set here because a stepper with checkpointing on a CPU changes how this process frees memory.
    network.encoder.checkpointing = settings.checkpointing
    stepper.scaler = torch.amp.GradScaler("cpu", enabled=False)  # it looks at the gradients, which have no values
    for parameter in network.parameters():
        recorder.add(parameter, "weights")
        parameter.register_post_accumulate_grad_hook(recorder.is_gradient)
    with device, recorder, torch.autograd.graph.saved_tensors_hooks(recorder.is_kept, lambda tensor: tensor):
        stepper.step(0, stage, [batch], 1.0)
    if settings.optimiser == "sgd":
        return []
    states = [slots for member in stepper.optimiser.members for slots in member.state.values()]
    return [tensor for slots in states for tensor in slots.values() if tensor.dim()]  # without counters of steps


def _infer(
    network: Network, settings: StepSettings, batch: Batch, recorder: "_Recorder", device: "_AsOnDevice"
) -> list[Tensor]:
    """Encode a batch."""
    for parameter in network.parameters():
        recorder.add(parameter, "weights")
    with device, recorder, torch.no_grad():
        tensors = Pretraining(settings.length).tensors(batch, torch.device("cpu"))
        layout = Layout(tensors["starts"], tensors["positions"], settings.length)
        network.pooled(network.encoder(tensors["ids"], layout, tensors["segments"]), layout)
    return []


class _Recorder(TorchDispatchMode):
    """Sees every operation, and the blocks of memory that come of it. A moment is the time of one operation."""

    def __init__(self, vocab_size: int, sequence_prime: int, position_prime: int) -> None:
        super().__init__()
        self.vocab_size, self.sequence_prime, self.position_prime = vocab_size, sequence_prime, position_prime
        self.phases: list[str] = []
        self.born: list[int] = []
        self.gone: dict[int, int] = {}
        self.parts: list[Part] = []
        self.growth: list[Growth] = []
        self.sizes: list[float] = []
        self.flops: dict[Growth, float] = dict.fromkeys(("fixed", "tokens", "positions", "scores"), 0.0)
        self.repeated_flops = 0.0
        self._blocks: dict[int, int] = {}  # numbers of those that are there, by address
        self._references: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if func is torch.ops.prim.device.default:  # how autograd asks where a fake tensor is; no operation
            return out
        self.phases.append(self._phase())
        copies_weight = func is torch.ops.aten._to_copy.default and self._part(args[0]) == "weights"
        for tensor in (out,) if isinstance(out, Tensor) else tree_leaves(out):
            if isinstance(tensor, Tensor):
                self.add(tensor, "half_weights" if copies_weight else "temporary")
        formula = FORMULAS.get(func._overloadpacket)
        # A batched product over sequences is attention's, which is counted by formula (``_AsOnDevice``).
        if formula is not None and not (args[0].dim() == 3 and args[0].shape[0] % self.sequence_prime == 0):
            growths = {self._growth(tensor.numel()) for tensor in tree_leaves(args) if isinstance(tensor, Tensor)}
            growth = next(name for name in ("positions", "scores", "tokens", "fixed") if name in growths)
            self.count_flops(growth, formula(*args, **kwargs, out_val=out))
        return out

    def count_flops(self, growth: Growth, flops: float) -> None:
        """Arithmetic of an operation on tensors that grow this way."""
        if self._phase() == "backward" and torch.is_grad_enabled():  # only so when checkpointing runs a layer again
            self.repeated_flops += flops
        else:
            self.flops[growth] += flops

    def add(self, tensor: Tensor, part: Part) -> None:
        """A tensor was seen; its block may be new."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address in self._blocks:
            return
        number = self._blocks[address] = len(self.born)
        self._references[number] = weakref.ref(storage, functools.partial(self._is_gone, number, address))
        growth = self._growth(storage.nbytes() // tensor.element_size())
        self.born.append(max(len(self.phases) - 1, 0))
        self.parts.append("scores" if growth == "scores" else part)
        self.growth.append(growth)
        self.sizes.append(float(storage.nbytes()))

    def is_kept(self, tensor: Tensor) -> Tensor:
        """Autograd keeps a tensor for the backward pass."""
        if self._part(tensor) == "temporary":
            self.parts[self._blocks[tensor.untyped_storage()._cdata]] = "activations"
        return tensor

    def is_gradient(self, parameter: Tensor) -> None:
        """A parameter has its gradient."""
        assert parameter.grad is not None
        self.parts[self._blocks[parameter.grad.untyped_storage()._cdata]] = "gradients"

    def record(
        self, settings: StepSettings, state: Sequence[Tensor], padded: bool, cycle_tokens: int, cycles: int, masked: int
    ) -> Record:
        """All that was seen. The optimiser's ``state`` outlives a step, so it counts from the first moment."""
        moments, tokens = len(self.phases), cycles * cycle_tokens
        masked_flops = self.flops["positions"] + self.flops["scores"]
        born = np.array(self.born)
        for tensor in state:
            number = self._blocks.get(tensor.untyped_storage()._cdata)
            if number is not None:
                self.parts[number] = "optimiser"
                born[number] = 0
        return Record(
            settings=settings,
            padded=padded,
            cycle_tokens=cycle_tokens,
            cycles=cycles,
            positions=masked,
            born=born,
            gone=np.array([self.gone.get(number, moments) for number in range(len(born))]),
            part=np.array([PARTS.index(part) for part in self.parts]),
            growth=np.array(self.growth),
            sizes=np.array(self.sizes),
            phases=self.phases,
            flops_per_token=self.flops["tokens"] / tokens + settings.mask_rate * masked_flops / masked,
            repeated_flops_per_token=self.repeated_flops / tokens,
        )

    def _is_gone(self, number: int, address: int, _: Any) -> None:
        self.gone[number] = len(self.phases)
        if self._blocks.get(address) == number:
            del self._blocks[address]

    def _part(self, tensor: Tensor) -> Part | None:
        number = self._blocks.get(tensor.untyped_storage()._cdata)
        return None if number is None else self.parts[number]

    def _growth(self, elements: int) -> Growth:
        if elements and elements % self.sequence_prime == 0:
            return "tokens"
        if elements and elements % self.position_prime == 0:
            rows, rest = divmod(elements, self.vocab_size)
            return "scores" if rest == 0 and rows else "positions"
        return "fixed"

    def _phase(self) -> str:
        if torch._C._current_graph_task_id() != -1:
            return "backward"
        return "optimiser step" if self.phases and self.phases[-1] != "forward" else "forward"


class _AsOnDevice(TorchFunctionMode):
    """Has fake CPU tensors treated as they would be on the device of the plan, and counts attention.

    Torch cannot trace CUDA tensors on a machine without CUDA, and a plan is wanted there most. Three things that decide
    about memory are done otherwise on CUDA, and are put in place here: dropout keeps a mask of one byte, autocast norms
    work in fp32, and attention has other kernels, of which ours and torch's keep the same as the CPU's fused one.

    The arithmetic of attention is counted here by formula: the counter knows neither our kernels nor the lengths inside
    a packed row, and for torch's own it adds what their backward pass computes again, which is not the model's.
    """

    def __init__(
        self, settings: StepSettings, recorder: _Recorder, attention_flops: Callable[[Pattern], float]
    ) -> None:
        super().__init__()
        self.settings, self.recorder, self.attention_flops = settings, recorder, attention_flops
        self.padded = False
        self.substitutes: dict[Any, Callable[..., Any]] = {attend: self._attend, Tensor.backward: self._backward}
        if settings.kind == "cuda":
            self.substitutes[F.dropout] = _dropout_on_gpu
            self.substitutes[F.scaled_dot_product_attention] = _padded_attention_on_gpu
            if settings.is_half and settings.trains:
                self.substitutes[F.layer_norm] = self._layer_norm

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.substitutes.get(func, func)(*args, **(kwargs or {}))

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, layout: Layout, *, bias: Tensor | None = None, dropout: float = 0.0
    ) -> Tensor:
        # Backward takes two products for each one of forward; a layer that is run again has its backward counted.
        again = torch._C._current_graph_task_id() != -1
        passes = 3 if torch.is_grad_enabled() and not again else 1
        self.recorder.count_flops("tokens", passes * self.attention_flops(layout.pattern))
        settings = self.settings
        if settings.kind == "cuda":
            fused = bias is None and q.dtype in HALF and settings.flash
        else:
            fused = bias is None and dropout == 0.0
        if fused:
            return _attend_runs(q, k, v, layout.starts)[0]
        self.padded = True
        with self:  # for the kernel inside; sequences that a CPU pads in groups of about one length are padded together
            return _attend_padded(q, k, v, layout, bias, dropout)

    def _backward(self, loss: Tensor, **_: Any) -> None:
        ones, nothing = torch.ones_like(loss), ()
        with self:  # for what checkpointing computes again; ``torch.autograd.backward`` would leave this mode once more
            _engine_run_backward((loss,), (ones,), False, False, nothing, allow_unreachable=True, accumulate_grad=True)

    def _layer_norm(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self.settings.compiled and x.dtype in HALF:  # a fused kernel reads what there is and needs no copy in fp32
            return F.layer_norm(x, *args, **kwargs).float()
        return F.layer_norm(x.float(), *args, **kwargs)


def _dropout_on_gpu(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    return torch.native_dropout(x, p, True)[0] if training and p else x


def _padded_attention_on_gpu(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor, dropout_p: float = 0.0) -> Tensor:
    """As torch's memory-efficient kernel, the only fused one that takes a mask."""
    if torch.is_autocast_enabled("cpu"):
        q, k, v = (x.to(torch.get_autocast_dtype("cpu")) for x in (q, k, v))
    if attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=q.dtype).masked_fill(~attn_mask, float("-inf"))
    out: Tensor = torch.ops.aten._scaled_dot_product_efficient_attention(
        q, k, v, attn_mask.to(q.dtype), True, dropout_p
    )[0]
    return out


# What FlopCounterMode counts with, less attention
FORMULAS: dict[Any, Callable[..., int]] = {
    operation: formula for operation, formula in flop_registry.items() if "attention" not in str(operation)
}
