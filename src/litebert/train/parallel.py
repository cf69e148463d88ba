"""One device, data parallel or fully sharded: everything that knows about ranks, under plain ``torchrun``.

Small facts (counts, the clock, a wish to stop) travel between hosts' CPUs, so that no GPU waits for them. Where
torchrun may restart the processes (``--max-restarts``), a run continues by itself what the same job has begun.
"""

import contextlib
import os
import secrets
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from litebert.errors import InputError
from litebert.nn.network import Network

Value = TypeVar("Value")
NOT_SHARED = "put the run folder on a disk that all nodes share"
MEETING_SECONDS = 1800.0  # for all processes of a run to arrive


@dataclass(frozen=True)
class Ranks:
    """Who we are among the processes of a run."""

    rank: int
    world: int
    device: torch.device
    small: Any  # the group for small facts, None alone
    store: Any = None  # the key-value store of this start of the processes

    @classmethod
    def join(cls, device: str) -> "Ranks":
        """Join the processes that torchrun started, or be alone."""
        if "RANK" not in os.environ:
            return cls.alone(torch.device(device))
        local = int(os.environ.get("LOCAL_RANK", "0"))
        here = torch.device("cuda", local) if device == "cuda" else torch.device(device)
        if here.type == "cuda":
            torch.cuda.set_device(here)
        store = None
        if not dist.is_initialized():
            backend = "cpu:gloo,cuda:nccl" if here.type == "cuda" else "gloo"
            shared, rank, world = next(rendezvous("env://"))
            store = PrefixStore(_name_of_start(shared, rank, world), shared)
            dist.init_process_group(backend, store=store, rank=rank, world_size=world)
        return cls(dist.get_rank(), dist.get_world_size(), here, dist.new_group(backend="gloo"), store)

    @classmethod
    def alone(cls, device: torch.device) -> "Ranks":
        """The only process of a run."""
        return cls(0, 1, device, None)

    @property
    def first(self) -> bool:
        return self.rank == 0

    def total(self, numbers: Sequence[float]) -> list[float]:
        """The sums of small numbers over all ranks."""
        if self.world == 1:
            return list(numbers)
        summed = torch.tensor(list(numbers), dtype=torch.float64)
        dist.all_reduce(summed, group=self.small)
        return cast(list[float], summed.tolist())

    def from_first(self, value: Value) -> Value:
        """What the first rank has, on every rank."""
        if self.world == 1:
            return value
        found = [value]
        dist.broadcast_object_list(found, src=0, group=self.small)
        return found[0]

    def of_all(self, value: Value) -> list[Value]:
        """What each rank has, on every rank."""
        found = [value] * self.world
        if self.world > 1:
            dist.all_gather_object(found, value, group=self.small)
        return found

    @contextlib.contextmanager
    def one_error(self) -> Iterator[None]:
        """One of the ranks reports what went wrong; the others, which may only have lost contact, end in silence."""
        try:
            yield
        except Exception as error:
            if self.world == 1:
                raise
            if self.store is not None and not self._speaks():
                end_rank(2)
            if isinstance(error, dist.DistError) or "gloo/" in str(error):
                raise InputError(_lost(error)) from error
            raise

    def _speaks(self) -> bool:
        """Whether this rank is the one to report an error: the first to ask."""
        try:
            return bool(self.store.compare_set("error", "", str(self.rank)) == str(self.rank).encode())
        except RuntimeError:  # the node with the store is gone
            return True

    def barrier(self) -> None:
        """Wait for everybody."""
        if self.world > 1:
            dist.barrier(group=self.small)

    def leave(self) -> None:
        """The end of the run."""
        if self.world > 1 and dist.is_initialized():
            dist.destroy_process_group()


def end_rank(code: int = 0) -> None:
    """End the process of a rank whose work is done and saved; alone, do nothing.

    Not by Python's own way out: threads of the process group may still be at work then, and the process would abort now
    and then, which ``torchrun`` reports as a failed run.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def restartable_job() -> str:
    """A name for the job, the same after each restart, where torchrun may restart us; otherwise empty.

    It is torchrun's ``--rdzv-id``; without one, which only a job of one node can do, torchrun's own process.
    """
    if int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) < 1:
        return ""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    if name != "none":
        return name
    parent = os.getppid()
    began = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[19]  # numbers of processes come again
    return f"{socket.gethostname()} {parent} {began}"


def _name_of_start(store: Any, rank: int, world: int) -> str:
    """A name for this start of the processes, on which all of them agree: the first rank's.

    The store is torchrun's. It outlives restarts, with the addresses of processes that were killed in it, and each node
    counts restarts for itself. So every rank knocks with a random word, and the first rank answers whoever knocks last
    in its place until that one says that it has heard.
    """
    mine = secrets.token_hex(8)
    if rank:
        store.set(f"litebert/knock/{rank}", mine)
        name = str(store.get(f"litebert/answer/{mine}").decode())
        store.set(f"litebert/heard/{name}/{rank}", "yes")
        return name
    missing, deadline = set(range(1, world)), time.monotonic() + MEETING_SECONDS
    while missing:
        for other in sorted(missing):
            if store.check([f"litebert/heard/{mine}/{other}"]):
                missing.discard(other)
            elif store.check([f"litebert/knock/{other}"]):
                store.set(f"litebert/answer/{store.get(f'litebert/knock/{other}').decode()}", mine)
        if time.monotonic() > deadline:
            raise InputError(
                f"ranks {', '.join(map(str, sorted(missing)))} did not start; look at the logs of their nodes"
            )
        time.sleep(0.02)
    return mine


def _lost(error: Exception) -> str:
    """That a rank is gone, with the first words of what the network says."""
    reason = (str(error).splitlines()[0].rpartition("] ")[2] or str(error)).partition(". ")[0]
    again = "the job restarts from the last saved state" if restartable_job() else "continue with --resume"
    return f"lost contact with another process of the run ({reason[:150]}); see the logs of the other nodes; {again}"


def parallelize(learner: nn.Module, network: Network, ranks: Ranks, sharded: bool) -> nn.Module:
    """The learner as each rank runs it: alone, a copy that averages gradients, or a shard of it."""
    if ranks.world == 1:
        return learner
    if not sharded:
        return DistributedDataParallel(learner, gradient_as_bucket_view=True)
    mesh = dist.device_mesh.init_device_mesh(ranks.device.type, (ranks.world,))
    plan = network.encoder.plan
    # A block that runs at several depths stays with the root: gathered once, not once a depth.
    for blocks, uses in (
        (network.encoder.attention, [attention for attention, _ in plan]),
        (network.encoder.feed_forward, [feed_forward for _, feed_forward in plan]),
    ):
        for number, block in enumerate(blocks):
            if uses.count(number) == 1:
                fully_shard(block, mesh=mesh)
    fully_shard(learner, mesh=mesh)
    return learner


@contextlib.contextmanager
def synchronising(learner: nn.Module, now: bool) -> Any:
    """Whether gradients are exchanged at the end of the next backward pass: only in the last one of a step."""
    if isinstance(learner, DistributedDataParallel) and not now:
        with learner.no_sync():
            yield
        return
    if isinstance(learner, FSDPModule):
        learner.set_requires_gradient_sync(now)
    yield


def full_tensor(tensor: Tensor) -> Tensor:
    """A sharded tensor made whole; any other as it is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def local_tensor(tensor: Tensor) -> Tensor:
    """This rank's part of a sharded tensor, in the same memory; any other as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def with_layout_of(pattern: Tensor, local: Tensor) -> Tensor:
    """This rank's part of a tensor that is sharded as ``pattern`` is, as that tensor."""
    if not isinstance(pattern, DTensor):
        return local
    return DTensor.from_local(
        local, pattern.device_mesh, pattern.placements, run_check=False, shape=pattern.shape, stride=pattern.stride()
    )


def full_state(state: Any) -> Any:
    """A nested state with every tensor whole and on the CPU; all ranks must call this."""
    if isinstance(state, Tensor):
        return full_tensor(state).detach().cpu().clone()
    if isinstance(state, dict):
        return {key: full_state(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [full_state(value) for value in state]
    return state


def full_weights(network: Network) -> dict[str, Tensor]:
    """All weights, unsharded, on the CPU; all ranks must call this."""
    return cast(dict[str, Tensor], full_state(network.state_dict()))


@torch.no_grad()
def load_full_weights(network: Network, tensors: dict[str, Tensor]) -> None:
    """Put whole weights back, sharded or not."""
    for name, parameter in network.state_dict().items():
        parameter.copy_(shard_like(tensors[name], parameter))


def shard_like(tensor: Tensor, pattern: Tensor) -> Tensor:
    """A tensor that every rank has whole, on the device of ``pattern`` and sharded as that is; a counter as it is."""
    if not tensor.ndim:
        return tensor
    tensor = tensor.to(pattern.device)
    if not isinstance(pattern, DTensor) or isinstance(tensor, DTensor):
        return tensor
    return distribute_tensor(tensor, pattern.device_mesh, pattern.placements, src_data_rank=None)


def gradient_norm(parameters: Sequence[Tensor]) -> Tensor:
    """The global norm of all gradients."""
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    return full_tensor(norm)
