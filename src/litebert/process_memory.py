"""The memory of this process as the system sees it: how much it was at most, and keeping it near what is in use."""

import ctypes
import sys
from pathlib import Path

_MMAP_THRESHOLD = -3  # the number that glibc's malloc.h gives M_MMAP_THRESHOLD
_LARGE = 1 << 20


def peak_resident_bytes() -> int:
    """The most memory this process ever had in use, in bytes.

    Linux tells it of the program itself; what ``getrusage`` tells there includes the parent that started it.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def return_large_blocks() -> bool:
    """Have the C library give every freed tensor back to the system; says whether it could (glibc only).

    Left alone it keeps freed blocks of up to 32 MB in a heap that a few living ones keep from shrinking, which undoes
    much of what activation checkpointing saves on a CPU: 30% to 80% more is resident than there are tensors. The price
    is about a tenth of the speed.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(_MMAP_THRESHOLD, _LARGE) == 1
