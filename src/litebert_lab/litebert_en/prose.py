"""What makes a paragraph English prose, and which was there before: rules that all sources share, with reasons.

A text is looked at as Latin-1, a byte a character, because the standard library counts bytes fastest.
"""

import hashlib
import string

LETTERS = string.ascii_letters.encode()
CAPITALS = string.ascii_uppercase.encode()
DIGITS = string.digits.encode()
ASCII = bytes(range(128))
PLAIN = LETTERS + DIGITS + b" "
NOT_LETTERS = bytes(byte for byte in range(256) if byte not in LETTERS)
TYPOGRAPHIC = str.maketrans("“”„‘’‚–—…′″", "\"\"\"'''--.'\"")

# Words that every few sentences of English have and that other languages do not spell like this.
_WORDS = """
the of and to with for by was his that is as it from which are were had he she this be not but have you they at an or
on my your i its their her him been has would could who what there when will all we our me them no one a in
said i'm i'll don't that's you're
"""
FUNCTION_WORDS = frozenset(_WORDS.split())

MOST_DIGITS = 0.15
LEAST_PLAIN = 0.80  # letters, digits and spaces
MOST_CAPITALS = 0.30
MOST_FOREIGN = 0.06
SHORT = 60  # too short to count shares; such paragraphs ("Yes.") repeat in any novel
MOST_SEEN = 0.3  # of a document's letters in longer paragraphs


def fault(text: str) -> str | None:
    """Why a paragraph is no English prose, or None where it is."""
    foreign = 0
    if text.isascii():
        data = text.encode()
    else:
        plain = text.translate(TYPOGRAPHIC)
        data = plain.encode("latin-1", "replace")
        foreign = len(data.translate(None, ASCII)) + data.count(b"?") - plain.count("?")
    size = len(data)
    if foreign > MOST_FOREIGN * size + 2:
        return "not English"
    if share(data, DIGITS) > MOST_DIGITS:
        return "digits"
    if size < SHORT:
        return None
    if share(data, PLAIN) < LEAST_PLAIN:
        return "punctuation"
    if share(data, CAPITALS) > MOST_CAPITALS:
        return "capitals"
    if size >= 150 and len(FUNCTION_WORDS.intersection(text.lower().split())) < (4 if size >= 300 else 2):
        return "no English words (names, another language)"
    return None


def share(data: bytes, signs: bytes) -> float:
    """How much of the data is made of these bytes."""
    return (len(data) - len(data.translate(None, signs))) / max(1, len(data))


def letters_of(text: str) -> bytes:
    """The letters alone, in lower case: the same for two editions that differ in quotes, dashes, spaces and figures."""
    return text.encode().translate(None, NOT_LETTERS).lower()


class Seen:
    """The hashes of all longer paragraphs so far.

    As only letters count, two editions of a book are the same, and so are articles made from one template with other
    figures in it.
    """

    def __init__(self) -> None:
        self._hashes: set[bytes] = set()

    def new(self, paragraphs: list[str]) -> tuple[list[str], list[str]] | None:
        """What is new of a document and what is not; None where so much was seen that it is a copy. All is noted."""
        fresh, repeated = [], []
        long, seen = 0, 0
        for paragraph in paragraphs:
            letters = letters_of(paragraph)
            if len(letters) < SHORT:
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
