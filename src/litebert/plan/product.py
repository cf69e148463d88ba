"""How fast the hardware multiplies large matrices, measured: what shares of the peak are shares of."""

import time

import torch

from litebert.plan.work import Precision

KINDS: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
SIZES = {"cuda": 8192, "cpu": 1024}
SECONDS = {"cuda": 0.5, "cpu": 0.2}  # a share of the peak is wanted, not a third digit of it


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
