"""One real pretraining step on made-up tokens: what ``litebert plan --measure`` times and weighs.

It does what pretraining does (packed batch, masked LM at 15% of the positions plus the order loss, autocast, clipping,
optimiser) and nothing else, so that its time and memory are those of training.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from litebert.nn.config import EncoderConfig
from litebert.nn.layout import Layout
from litebert.nn.network import Network, pretraining_network
from litebert.plan.arithmetic import MASKED_SHARE
from litebert.plan.work import Precision

HALF: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}
CLIP_NORM = 1.0


@dataclass(frozen=True)
class Batch:
    """A packed batch with its targets, all on one device."""

    ids: Tensor  # (T) int64
    segments: Tensor | None  # (T) int64, the second half of each sequence being the second segment
    layout: Layout
    positions: Tensor  # (P) the flat places of the masked tokens
    targets: Tensor  # (P) what stood there
    swapped: Tensor  # (S) 0 in order, 1 swapped


def made_up_batch(config: EncoderConfig, lengths: list[int], device: str) -> Batch:
    """Random tokens of these lengths, 15% of them to be predicted."""
    random = torch.Generator().manual_seed(0)
    layout = Layout.of(lengths)
    tokens = layout.num_tokens
    ids = torch.randint(0, config.vocab_size, (tokens,), generator=random)
    half = layout.lengths[layout.sequence_of_token()] // 2
    segments = (layout.positions >= half).long() if config.num_segments > 1 else None
    positions = torch.randperm(tokens, generator=random)[: max(1, round(MASKED_SHARE * tokens))].sort().values
    swapped = torch.randint(0, 2, (len(lengths),), generator=random)
    return Batch(
        ids.to(device),
        None if segments is None else segments.to(device),
        layout.to(device),
        positions.to(device),
        ids[positions].to(device),
        swapped.to(device),
    )


def pretraining_loss(network: Network, batch: Batch) -> Tensor:
    """Masked LM plus order, unweighted (ALBERT section 3.1); the losses themselves in fp32."""
    states = network.encoder(batch.ids, batch.layout, batch.segments)
    order = network.heads["order"](network.pooled(states, batch.layout))
    logits = network.masked_lm(states, batch.positions)
    return F.cross_entropy(logits.float(), batch.targets) + F.cross_entropy(order.float(), batch.swapped)


def training_step(
    config: EncoderConfig,
    batch: Batch,
    *,
    device: str,
    precision: Precision,
    checkpointing: bool,
    compiled: bool,
    narrow: bool,
) -> Callable[[], Tensor]:
    """A function that takes one step of a new network on ``batch`` and gives the loss."""
    network = pretraining_network(config).to(device).train()
    network.encoder.checkpointing = checkpointing
    network.encoder.half_residual(narrow)
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    loss_of = torch.compile(pretraining_loss, dynamic=False) if compiled else pretraining_loss
    scaler = torch.amp.GradScaler(device, enabled=precision == "fp16" and device == "cuda")
    kind = HALF.get(precision, torch.bfloat16)

    def step() -> Tensor:
        with torch.autocast(device, dtype=kind, enabled=precision != "fp32"):
            loss = loss_of(network, batch)
        scaler.scale(loss).backward()
        scaler.unscale_(optimiser)
        nn.utils.clip_grad_norm_(network.parameters(), CLIP_NORM)
        scaler.step(optimiser)
        scaler.update()
        optimiser.zero_grad(set_to_none=True)
        return loss.detach()

    return step
