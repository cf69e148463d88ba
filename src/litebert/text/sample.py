"""A fair sample of a corpus in bounded memory, and the rule that holds documents out of it."""

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator

# Lines longer than this are cut, at a space where there is one: a paragraph is too coarse a thing to sample.
LONGEST_LINE = 1000


def lines_of(text: str) -> Iterator[str]:
    """The lines of a document with single spaces, none of them long, none empty."""
    for line in text.splitlines():
        line = " ".join(line.split())
        while len(line) > LONGEST_LINE:
            cut = line.rfind(" ", LONGEST_LINE // 2, LONGEST_LINE)
            cut = cut if cut > 0 else LONGEST_LINE
            yield line[:cut]
            line = line[cut:].lstrip()
        if line:
            yield line


def sample_lines(
    texts: Iterable[str], limit: int, seed: int, report: Callable[[str], None] = lambda message: None
) -> list[str]:
    """Lines of the documents ``texts``, all equally likely to be in, at most ``limit`` bytes of UTF-8 together.

    Each line draws a number; those below a bar are kept, and the bar is lowered whenever they grow too many. So the
    sample depends on the seed and the text alone, keeps the order of the text, and holds everything that fits.
    """
    draw = random.Random(seed)
    bar, held, size, documents = 1.0, [], 0, 0
    for documents, text in enumerate(texts, 1):
        for line in lines_of(text):
            height = draw.random()
            if height < bar:
                length = len(line.encode())
                held.append((height, length, line))
                size += length
        while size > limit:
            bar *= 0.8
            held = [item for item in held if item[0] < bar]
            size = sum(length for _, length, _ in held)
        if documents % 200 == 0:
            report(f"reading: {documents:,} documents, {size / 1e6:.1f} MB of text sampled")
    report(f"read {documents:,} documents, {size / 1e6:.1f} MB of text sampled" + (f" ({bar:.0%})" if bar < 1 else ""))
    return [line for _, _, line in held]


def is_held_out(text: str, share: float) -> bool:
    """Whether a document is among the ``share`` kept for measuring; a property of its text, not of its place."""
    if share <= 0:
        return False
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64
