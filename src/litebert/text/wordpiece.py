"""Training a wordpiece vocabulary with the ``tokenizers`` library, made to give the same one every time.

Left to itself the library numbers continuations (``##a``) in the order of a hash table that changes from run to run,
and ties between pairs are settled by those numbers. So every character and continuation gets its number beforehand.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import models, trainers

from litebert.errors import InputError


def train_wordpiece(
    lines: Iterable[str],
    pre_tokenizer: Any,
    *,
    vocab_size: int,
    special: tuple[str, ...],
    coverage: float,
    report: Callable[[str], None],
) -> dict[str, int]:
    """A vocabulary of ``vocab_size`` pieces from normalised lines, ``special`` first."""
    report("training: counting words")
    words: Counter[str] = Counter()
    for line in lines:
        words.update(line.split())
    words = _without_rare_characters(words, coverage)
    parts = {part for word in words for part, _ in pre_tokenizer.pre_tokenize_str(word)}
    alphabet = sorted({character for part in parts for character in part})
    continuations = sorted({f"##{character}" for part in parts for character in part[1:]})
    taken = len(special) + len(alphabet) + len(continuations)
    if taken > vocab_size:
        raise InputError(
            f"a vocabulary of {vocab_size:,} pieces is too small: single characters and special tokens alone "
            f"take {taken:,}; give a larger --vocab-size"
        )
    report("training: joining pieces")
    backend = Backend(models.WordPiece(unk_token=special[1]))
    backend.pre_tokenizer = pre_tokenizer
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=[*special, *alphabet, *continuations],
        min_frequency=2,
        show_progress=False,
    )
    backend.train_from_iterator(words.elements(), trainer)
    vocabulary: dict[str, int] = backend.get_vocab()
    if len(vocabulary) < vocab_size:
        raise InputError(
            f"the corpus is too small for a vocabulary of {vocab_size:,} pieces; "
            f"give more text or --vocab-size {len(vocabulary)} or less"
        )
    return vocabulary


def _without_rare_characters(words: Counter[str], coverage: float) -> Counter[str]:
    """The words cut apart at characters beyond the most frequent ones that make up ``coverage`` of the text."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    wanted, reached = coverage * counts.total(), 0
    rare = {}
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if reached >= wanted:
            rare[ord(character)] = " "
        reached += count
    if not rare:
        return words
    kept: Counter[str] = Counter()
    for word, count in words.items():
        for part in word.translate(rare).split():
            kept[part] += count
    return kept
