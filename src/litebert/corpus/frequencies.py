"""How frequent each id of a store is, and what a model that knows nothing else would lose."""

import math

import numpy as np
import numpy.typing as npt

from litebert.corpus.store import Split, Store
from litebert.errors import InputError

CHUNK = 1 << 20  # tokens counted at a time


def unigram_entropy(store: Store, *, most: int = 100_000_000) -> float:
    """Nats a token of word frequencies learnt from the training text, on the held-out text (add-one, no specials).

    At most about ``most`` training tokens are counted, spread evenly over the text. Without held-out text the training
    text is its own judge.
    """
    special = sorted(set(store.special_ids.values()))
    trained = _counts(store.split("train"), store.vocab_size, special, most)
    held_out = _counts(store.split("held_out"), store.vocab_size, special, most)
    judge = held_out if held_out.any() else trained
    if not judge.any():
        raise InputError(f"{store.folder} has no text; build the store again from more")
    return -float(judge @ _log_frequencies(trained, len(special))) / int(judge.sum())


def log_frequencies(store: Store, *, most: int = 100_000_000) -> npt.NDArray[np.float64]:
    """The logarithm of each id's share of the training text (add-one; special tokens as if never seen)."""
    special = sorted(set(store.special_ids.values()))
    return _log_frequencies(_counts(store.split("train"), store.vocab_size, special, most), len(special))


def _log_frequencies(counts: npt.NDArray[np.int64], num_special: int) -> npt.NDArray[np.float64]:
    return np.log(counts + 1.0) - math.log(int(counts.sum()) + len(counts) - num_special)


def _counts(split: Split, vocab_size: int, special: list[int], most: int) -> npt.NDArray[np.int64]:
    """How often each id occurs in the chunks of a split that are read."""
    counts = np.zeros(vocab_size, np.int64)
    every = max(1, -(-split.num_tokens // most))
    for shard in split.shards:
        for begin in range(0, shard.num_tokens, CHUNK * every):
            counts += np.bincount(shard.tokens[begin : begin + CHUNK], minlength=vocab_size)
    counts[special] = 0
    return counts
