"""Which device a verb runs on: what the person asked for, or a GPU where there is one."""

import torch

from litebert.errors import InputError


def usable_device(asked: str = "") -> str:
    """``cpu`` or ``cuda`` as asked; unasked, cuda where there is one. An error where there is no such device here."""
    if not asked:
        return "cuda" if torch.cuda.is_available() else "cpu"
    if asked not in ("cpu", "cuda"):
        raise InputError(f"--device is '{asked}' but must be cpu or cuda")
    if asked == "cuda" and not torch.cuda.is_available():
        raise InputError("there is no CUDA device here; use --device cpu")
    return asked
