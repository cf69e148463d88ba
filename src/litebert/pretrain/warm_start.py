"""Weights of a trained model for one of another depth (the paper warm-starts deep models from shallow ones)."""

import torch

from litebert.errors import InputError
from litebert.nn.network import Network


@torch.no_grad()
def warm_start(network: Network, source: Network) -> str:
    """Copy what fits: every shared part as it is, unshared blocks from the same relative depth. Says what was done."""
    theirs = source.state_dict()
    depths, source_depths = network.config.encoder.num_layers, source.config.encoder.num_layers
    copied = left = 0
    for name, tensor in network.state_dict().items():
        parts = name.split(".")
        if parts[:2] in (["encoder", "attention"], ["encoder", "feed_forward"]):
            kind = 0 if parts[1] == "attention" else 1
            depth = next(d for d, blocks in enumerate(network.config.encoder.plan) if blocks[kind] == int(parts[2]))
            parts[2] = str(source.config.encoder.plan[depth * source_depths // depths][kind])
        other = theirs.get(".".join(parts))
        if other is None:
            left += 1
            continue
        if other.shape != tensor.shape:
            raise InputError(
                f"cannot start from that model: its {'.'.join(parts)} has shape {tuple(other.shape)}, here it is "
                f"{tuple(tensor.shape)}; only the depth and the sharing may differ"
            )
        tensor.copy_(other)
        copied += 1
    return f"started from a model of depth {source_depths}: {copied} tensors copied, {left} new"
