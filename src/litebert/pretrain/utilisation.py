"""How much of the hardware a run makes use of: the arithmetic of real tokens against a matrix product measured here."""

import dataclasses
import time

import numpy as np
import torch

from litebert.corpus.rows import Batch
from litebert.nn.config import EncoderConfig
from litebert.plan.arithmetic import flops_per_token, head_flops
from litebert.train.settings import Precision

KINDS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
SIZES = {"cuda": 8192, "cpu": 1024}
SECONDS = {"cuda": 0.5, "cpu": 0.2}  # a share of the peak is wanted, not a third digit of it


def batch_flops(config: EncoderConfig, batch: Batch, depth: int | None = None, heads: float = 1.0) -> float:
    """Arithmetic of one training step on a batch as plan counts it, at the real lengths; padding counts nothing.

    ``heads`` is how often the masked-LM head runs at each masked position.
    """
    if depth is not None and depth != config.num_layers:
        config = dataclasses.replace(config, num_layers=depth, num_groups=1, layers_per_group=1, custom_plan=())
    lengths = np.diff(batch.starts[: batch.num_sequences + 1]).astype(np.float64)
    # Scores grow with the length of the sequence a token is in, so the mean over tokens is what counts.
    length = round(float((lengths**2).sum() / max(batch.num_tokens, 1)))
    return batch.num_tokens * flops_per_token(config, length, "finetune") + 3 * heads * batch.num_masked * head_flops(
        config
    )


def product_rate(device: torch.device, precision: Precision) -> float:
    """Operations a second of a large matrix product in this precision."""
    size = SIZES[device.type]
    draw = torch.Generator(device).manual_seed(0)  # a run's own random numbers stay as they are
    left, right = (torch.randn(size, size, device=device, generator=draw).to(KINDS[precision]) for _ in range(2))
    out = torch.empty_like(left)
    best, spent = float("inf"), 0.0
    torch.mm(left, right, out=out)
    while spent < SECONDS[device.type]:
        _wait(device)
        begun = time.perf_counter()
        for _ in range(4):  # one after the other, as a step's are
            torch.mm(left, right, out=out)
        _wait(device)
        seconds = time.perf_counter() - begun
        best, spent = min(best, seconds / 4), spent + seconds
    del left, right, out
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    return 2.0 * size**3 / best


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
