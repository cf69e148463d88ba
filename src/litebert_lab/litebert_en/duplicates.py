"""Text that was there before: paragraphs by a hash of their letters, and documents that are mostly made of such.

Short paragraphs ("Yes.") repeat in any novel and are let through. As only letters count, two editions of a book are the
same, and so are articles made from one template with other figures in it.
"""

import hashlib

from litebert_lab.litebert_en.prose import letters_of

SHORTEST = 60  # letters
MOST_SEEN = 0.3  # of a document's letters in longer paragraphs


class Seen:
    """The hashes of all longer paragraphs so far."""

    def __init__(self) -> None:
        self._hashes: set[bytes] = set()

    def new(self, paragraphs: list[str]) -> tuple[list[str], list[str]] | None:
        """What is new of a document and what is not; None where so much was seen that it is a copy. All is noted."""
        fresh, repeated = [], []
        long, seen = 0, 0
        for paragraph in paragraphs:
            letters = letters_of(paragraph)
            if len(letters) < SHORTEST:
                fresh.append(paragraph)
                continue
            digest = hashlib.blake2b(letters, digest_size=8).digest()
            long += len(letters)
            if digest in self._hashes:
                seen += len(letters)
                repeated.append(paragraph)
            else:
                self._hashes.add(digest)
                fresh.append(paragraph)
        return None if seen > MOST_SEEN * long else (fresh, repeated)
