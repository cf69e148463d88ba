"""A run on many GPUs: each takes its share of a step's tokens, then all add up their gradients.

The exchange is counted as NCCL does it on such machines: the GPUs of a node add up among themselves, then the nodes,
each GPU with its own part. Nothing is taken to overlap with the backward pass. Blocks that layers share have their
gradient only when that pass ends, so ALBERT's exchange cannot begin earlier; BERT's can, so its share is at most this.
Not counted: nodes that wait for the slowest one, batches that are late, saved states.
"""

import math
from dataclasses import dataclass

from litebert.errors import InputError

PAPER_STEPS, PAPER_BATCH = 125_000, 4096 * 512  # the full recipe of the ALBERT paper (section 4.1), in tokens
GRADIENT_BYTES = 4  # weights and their gradients are fp32, also where arithmetic is in half precision
BUCKET_BYTES = 25 * 2**20  # what DistributedDataParallel sends at once
TURN_SECONDS = 20e-6  # of one message in a ring, however short
NODE_LINK, LINK = 450.0, 50.0  # GB/s: NVLink 4 in one direction; a network card of 400 Gbit/s


@dataclass(frozen=True, kw_only=True)
class Links:
    """GPUs, nodes and how fast they are connected."""

    gpus: int
    nodes: int = 1
    node_link: float = NODE_LINK * 1e9  # bytes a second that a GPU sends to others of its node
    link: float = LINK * 1e9  # and a node to other nodes

    def exchange_seconds(self, size: float) -> float:
        """The time in which every GPU has the sum of ``size`` bytes of gradients of all."""
        inside = self.gpus // self.nodes
        sent = 2 * size * ((inside - 1) / inside / self.node_link + (self.nodes - 1) / self.nodes / self.link)
        turns = 2 * (inside - 1 + self.nodes - 1)
        return sent + turns * TURN_SECONDS * math.ceil(size / BUCKET_BYTES)


@dataclass(frozen=True, kw_only=True)
class PaperRun:
    """The ALBERT paper's full run on many GPUs."""

    links: Links
    tokens_per_gpu: float  # of a step
    gradient_bytes: int
    arithmetic_seconds: float  # of a step
    communication_seconds: float
    price: float | None  # of an hour of a GPU

    @property
    def communication_share(self) -> float:
        return self.communication_seconds / (self.arithmetic_seconds + self.communication_seconds)

    @property
    def seconds(self) -> float:
        return PAPER_STEPS * (self.arithmetic_seconds + self.communication_seconds)

    @property
    def gpu_hours(self) -> float:
        return self.links.gpus * self.seconds / 3600

    @property
    def cost(self) -> float | None:
        return None if self.price is None else self.price * self.gpu_hours


def links_between(gpus: int, nodes: int, node_link: float, link: float) -> Links:
    """Links, checked; speeds in GB/s."""
    if gpus % nodes:
        raise InputError(f"gpus is {gpus}, which {nodes} nodes cannot share equally", parameter="gpus")
    if gpus > PAPER_BATCH:
        raise InputError(f"gpus is {gpus}, more than the {PAPER_BATCH:,} tokens of a step", parameter="gpus")
    return Links(gpus=gpus, nodes=nodes, node_link=node_link * 1e9, link=link * 1e9)
