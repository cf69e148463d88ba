"""Durations as people write and read them: ``90s``, ``20m``, ``2h``, ``1h30m``, ``3d`` in; ``1.5 hours`` out."""

import re

from litebert.errors import InputError

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([smhdw])")
_NAMED = (("year", 365.25 * 86400), ("day", 86400.0), ("hour", 3600.0), ("minute", 60.0))


def parse_duration(text: str) -> float:
    """``"20m"`` as 1200.0 seconds; parts add up (``1h30m``)."""
    word = text.strip().lower()
    seconds = sum(float(number) * SECONDS[unit] for number, unit in _PART.findall(word))
    if _PART.sub("", word).strip() or seconds <= 0:
        raise InputError(f"'{text}' is not a duration; write it as 90s, 20m, 2h, 1h30m or 3d")
    return seconds


def format_duration(seconds: float) -> str:
    """A duration to two digits or so in the largest unit that fits: ``45 seconds``, ``5.5 minutes``, ``12 days``."""
    for name, size in _NAMED:
        if seconds >= size:
            number = f"{seconds / size:.2g}" if seconds < 10 * size else f"{seconds / size:,.0f}"
            return f"{number} {name}{'' if number == '1' else 's'}"
    return f"{seconds:.3g} seconds" if seconds < 10 else f"{seconds:.0f} seconds"
