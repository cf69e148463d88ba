"""Whether rows that are scored were trained on: a model remembers prints of some of its training rows."""

import hashlib
from collections.abc import Iterable, Sequence

from litebert.tasks.examples import Choice, Example, Item

REMEMBERED = 64  # prints: half of the rows known would show as about 32 of them
PRINT = 8  # hexadecimal digits


def fingerprint(item: Item) -> str:
    """A short print of what is read of an item, its answer left out."""
    if isinstance(item, Example):
        parts: tuple[str, ...] = (item.first, item.second or "")
    elif isinstance(item, Choice):
        parts = (item.passage, item.question, *item.options)
    else:
        parts = (item.passage, item.question)
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:PRINT]


def remember(items: Sequence[Item]) -> tuple[str, ...]:
    """Prints of some items, from the first to the last."""
    step = max(1, len(items) // REMEMBERED)
    return tuple(fingerprint(item) for item in items[::step][:REMEMBERED])


def warning(seen: Sequence[str], scored: Iterable[Item]) -> str | None:
    """A sentence where some of the rows that are scored were trained on."""
    found = set(seen) & {fingerprint(item) for item in scored}
    if not found:
        return None
    share = f"{len(found)} of {len(set(seen))} training rows that the model remembers are"
    return f"{share} among the rows scored here: it has seen such rows with their answers, so the figures flatter it"
