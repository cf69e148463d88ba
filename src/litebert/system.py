"""What the operating system knows of this process: the memory it took, the cores and the GPU it may use."""

import ctypes
import gc
import os
import sys
from pathlib import Path

from litebert.errors import InputError

_MMAP_THRESHOLD = -3  # the number that glibc's malloc.h gives M_MMAP_THRESHOLD
_LARGE = 1 << 20
_NEW_OBJECTS = 10_000  # that may be made before Python looks for garbage


def peak_resident_bytes() -> int:
    """The most memory this process ever had in use, in bytes.

    On Linux /proc has it for the program itself, while ``getrusage`` includes the parent that started it.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def look_for_garbage_less_often() -> None:
    """Spare the objects of imported libraries Python's search for unused cycles, and search 14 times less often.

    A command spends about a tenth of its start on searches that find nothing.
    """
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)


def return_large_blocks() -> bool:
    """Have the C library give every freed tensor back to the system; False where it cannot (it needs glibc).

    Left alone it keeps freed blocks of up to 32 MB in a heap that a few living ones keep from shrinking, which undoes
    much of what activation checkpointing saves on a CPU: 30% to 80% more is resident than there are tensors. The price
    is about a tenth of the speed.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(_MMAP_THRESHOLD, _LARGE) == 1


def available_cores() -> int:
    """The number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_device(asked: str = "auto") -> str:
    """``cpu`` or ``cuda``; ``auto`` is cuda where there is one. An error where there is no such device here."""
    import torch

    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if asked not in ("cpu", "cuda"):
        raise InputError(f"device is '{asked}' but must be auto, cpu or cuda", parameter="device")
    if asked == "cuda" and not torch.cuda.is_available():
        raise InputError("device is cuda but there is no CUDA device here; use cpu", parameter="device")
    return asked
