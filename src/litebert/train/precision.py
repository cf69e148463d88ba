"""Precision: bf16, fp16 with loss scaling, or fp32. Weights are fp32; only the forward pass is cast."""

import contextlib
from typing import Any

import torch

from litebert.train.settings import Precision

LEAST_WIDTH = 128  # of a model for which bf16 pays on a CPU: 1.2 of the time at 64, 0.7 at 192 and 256
_CAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def default_precision(device: torch.device) -> Precision:
    """bf16 where the hardware has it, fp16 on older GPUs, fp32 on a CPU."""
    if device.type != "cuda":
        return "fp32"
    return "bf16" if has_bf16(device) else "fp16"


def training_precision(device: torch.device, width: int) -> Precision:
    """The default, but bf16 on a CPU that multiplies in it, where products are wide enough to gain by it."""
    wide = device.type == "cpu" and width >= LEAST_WIDTH
    return "bf16" if wide and has_bf16(device) else default_precision(device)


def has_bf16(device: torch.device) -> bool:
    """Whether it multiplies in bf16. Others make do, a CPU at a quarter to a 50th of its speed in fp32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    ask = getattr(torch.cpu, "get_capabilities", dict)  # newer than the oldest torch we run with
    found: dict[str, object] = ask()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16"))


def cast(precision: Precision, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """The context in which a forward pass runs, whatever one it is in."""
    if precision == "fp32":
        return torch.autocast(device.type, enabled=False)
    return torch.autocast(device.type, dtype=_CAST[precision])


def scaler(precision: Precision, device: torch.device) -> torch.amp.GradScaler:
    """Scales the loss in fp16; does nothing in the others."""
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")
