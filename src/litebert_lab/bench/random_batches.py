"""Batches of random text in the shape that training has them, for measuring without a token store."""

from collections.abc import Sequence

import numpy as np

from litebert.corpus.batches import Batch, BatchArrays, write_padding
from litebert.nn.config import EncoderConfig

FIRST_WORD = 5  # below it are special tokens, the last of which is the mask
MASK = 4
RATE = 0.15


def mixed_lengths(count: int, mean: float, longest: int, seed: int = 0) -> list[int]:
    """Log-normal lengths as single sentences have them, from 4 tokens up."""
    drawn = np.random.default_rng(seed).normal(np.log(mean) - 0.18, 0.6, count)
    return [int(n) for n in np.exp(drawn).round().clip(4, longest)]


def random_batch(
    config: EncoderConfig,
    lengths: Sequence[int],
    *,
    tokens: int,
    length: int,
    sequences: int,
    room: int = 0,
    seed: int = 0,
) -> Batch:
    """Random ids in sequences of these lengths, padded to fixed shapes; two segments each, some of them swapped."""
    random = np.random.default_rng(seed)
    sizes = np.array(lengths)
    used, count = int(sizes.sum()), len(sizes)
    room = room or -(-int(RATE * tokens + 64) // 64) * 64
    ids, segments, positions = (np.zeros(tokens, np.int32) for _ in range(3))
    starts, labels = np.zeros(sequences + 1, np.int32), np.zeros(sequences, np.int32)
    starts[1 : count + 1] = sizes.cumsum()
    ids[:used] = random.integers(FIRST_WORD, config.vocab_size, used)
    positions[:used] = np.arange(used) - np.repeat(starts[:count], sizes)
    segments[:used] = positions[:used] >= np.repeat(sizes, sizes) // 2
    labels[:count] = random.integers(0, 2, count)
    masked = min(room, round(RATE * used))
    places = np.sort(random.choice(used, masked, replace=False))
    mask_positions, mask_targets = np.zeros(room, np.int32), np.full(room, -100, np.int32)
    mask_positions[:masked], mask_targets[:masked] = places, ids[places]
    ids[places] = MASK
    words = np.ones(tokens, np.uint8)
    write_padding(BatchArrays(ids, segments, positions, words, starts, labels), used, count, config.pad_id, length)
    return Batch(
        epoch=0,
        index=seed,
        ids=ids,
        segments=segments,
        positions=positions,
        word_starts=words,
        starts=starts,
        order_labels=labels,
        mask_positions=mask_positions,
        mask_targets=mask_targets,
        ngrams=np.ones(masked, np.uint8),
        longest=length,
        num_tokens=used,
        num_sequences=count,
        num_masked=masked,
    )


def full_batches(config: EncoderConfig, tokens: int, length: int, count: int, like: Batch | None = None) -> list[Batch]:
    """Batches whose sequences all have the full length, in tensors of the shapes of ``like``."""
    rows = tokens // length
    sequences, room = (rows, 0) if like is None else (max(rows, len(like.order_labels)), len(like.mask_positions))
    shape = {"tokens": tokens, "length": length, "sequences": sequences, "room": room}
    return [random_batch(config, [length] * rows, **shape, seed=seed) for seed in range(count)]


def mixed_batches(
    config: EncoderConfig, tokens: int, length: int, count: int, like: Batch | None = None
) -> list[Batch]:
    """Batches of sequences of mixed lengths, half the full length in the mean, in tensors of the shapes of ``like``."""
    drawn: list[list[int]] = [[]]
    for size in mixed_lengths(4 * count * tokens // length + 64, length / 2, length):
        if sum(drawn[-1]) + size > tokens:
            drawn.append([])
        drawn[-1].append(size)
    most, room = max(map(len, drawn)) + tokens // length, 0
    if like is not None:
        most, room = len(like.order_labels), len(like.mask_positions)
        drawn = [_covering(sizes, tokens, length, most) for sizes in drawn]
    shape = {"tokens": tokens, "length": length, "sequences": most, "room": room}
    return [random_batch(config, sizes, **shape, seed=seed) for seed, sizes in enumerate(drawn[:count])]


def _covering(sizes: list[int], tokens: int, length: int, most: int) -> list[int]:
    """The first sequences, as many as with padding sequences after them are at most ``most``."""
    while len(sizes) + -(-(tokens - sum(sizes)) // length) > most:
        sizes = sizes[:-1]
    return sizes
