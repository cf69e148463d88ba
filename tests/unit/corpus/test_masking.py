"""Masks: the rate is met, lengths keep their shares, words stay whole, special tokens are left alone."""

import numpy as np
import pytest

from litebert.corpus.batches import Batches, BatchSettings
from litebert.corpus.counter_rng import open_stream
from litebert.corpus.masking import MaskRules, Masks, draw_words, mean_overpay, write_masks

NUM_SPECIAL = 5


def mask(words, *, rate=0.15, longest=3, whole_words=True, seed=0, vocab=2000, unknown=0.0, room=None):
    """Mask segments given by their words' sizes; returns what changed and the draws."""
    random = np.random.default_rng(seed)
    ids, starts, inputs = [], [], []
    for segment in words:
        size = sum(segment)
        ids += [2, *random.integers(NUM_SPECIAL, vocab, size).tolist(), 3]
        starts += [0, *(int(i == 0) for word in segment for i in range(word)), 0]
        inputs.append([0, size, 0, 0, -100, 0, 0])
    original = np.array(ids, np.int32)
    original[(random.random(len(original)) < unknown) & (original > 4)] = 1
    masked = original.copy()
    room = room or len(ids)
    positions, targets = np.zeros(room, np.int32), np.zeros(room, np.int32)
    ngrams = np.zeros(len(ids), np.uint8)
    special = np.arange(vocab) < NUM_SPECIAL
    rules = MaskRules(rate, longest, whole_words, 4, special, np.flatnonzero(~special).astype(np.int32))
    masks = Masks(positions, targets, ngrams)
    starts = np.array(starts, np.uint8)
    count, spans = write_masks(open_stream(seed, 1), np.array(inputs), masked, starts, rules, masks)
    return original, masked, starts, positions[:count], targets[:count], ngrams[:spans]


def random_segments(count, low, high, longest_word=4, seed=0):
    random = np.random.default_rng(seed)
    return [random.integers(1, longest_word + 1, random.integers(low, high)).tolist() for _ in range(count)]


def shares_error(ngrams, expected):
    """The largest difference between shares of lengths and those expected, in standard errors."""
    shares = np.bincount(ngrams, minlength=4)[1:4] / len(ngrams)
    return np.max(np.abs(shares - expected) / np.sqrt(np.array(expected) * (1 - np.array(expected)) / len(ngrams)))


def test_lengths_are_drawn_as_one_over_n():
    stream = open_stream(1, 2)
    draws = np.array([draw_words(stream, 3) for _ in range(60_000)])
    assert shares_error(draws, (6 / 11, 3 / 11, 2 / 11)) < 4
    assert mean_overpay(3) == pytest.approx(1.0)
    assert mean_overpay(1) == pytest.approx(0.5)


@pytest.mark.parametrize("rate", [0.15, 0.4])
@pytest.mark.parametrize(("low", "high"), [(3, 12), (10, 200)])
def test_rate_and_lengths_hold_at_any_segment_size(low, high, rate):
    original, _, _, positions, _, ngrams = mask(random_segments(6000, low, high), rate=rate)
    text = int((original >= NUM_SPECIAL).sum())
    assert abs(len(positions) / text - rate) < 0.002
    assert shares_error(ngrams, (6 / 11, 3 / 11, 2 / 11)) < 4


def test_rate_is_not_biased_in_tiny_batches():
    """The last span of a batch overpays; over many batches of a few segments that would show."""
    counts = [mask(random_segments(2, 20, 40, seed=seed), seed=seed) for seed in range(3000)]
    masked = sum(len(result[3]) for result in counts)
    text = sum(int((result[0] >= NUM_SPECIAL).sum()) for result in counts)
    assert abs(masked / text - 0.15) < 0.003
    assert shares_error(np.concatenate([result[5] for result in counts]), (6 / 11, 3 / 11, 2 / 11)) < 4


@pytest.mark.parametrize(("longest", "whole_words"), [(3, True), (1, True), (1, False)])
def test_words_are_masked_whole_and_special_tokens_never(longest, whole_words):
    original, masked, starts, positions, targets, ngrams = mask(
        random_segments(300, 1, 60), longest=longest, whole_words=whole_words, unknown=0.03
    )
    chosen = np.zeros(len(original), bool)
    chosen[positions] = True
    assert (np.diff(positions) > 0).all()
    assert (targets == original[positions]).all()
    assert (masked[~chosen] == original[~chosen]).all()
    assert (original[positions] >= NUM_SPECIAL).all()
    assert (masked[positions] != 2).all() and (masked[positions] != 3).all() and (masked[positions] != 1).all()
    if whole_words:
        word = np.cumsum(starts | (original == 2) | (original == 3))
        ordinary = original >= NUM_SPECIAL
        for number in np.unique(word[positions]):
            assert chosen[(word == number) & ordinary].all()
    else:
        assert len(ngrams) >= len(positions)
    assert set(np.unique(ngrams)) <= set(range(1, longest + 1))


def test_eighty_ten_ten():
    original, masked, _, positions, _, _ = mask(random_segments(3000, 20, 100), vocab=30_000)
    now, was = masked[positions], original[positions]
    error = 4 * np.sqrt(0.25 / len(now))
    assert abs(np.mean(now == 4) - 0.8) < error
    assert abs(np.mean(now == was) - 0.1) < error
    other = now[(now != 4) & (now != was)]
    assert abs(len(other) / len(now) - 0.1) < error
    assert other.min() >= NUM_SPECIAL
    assert abs(other.mean() - 15_000) < 4 * 30_000 / np.sqrt(12 * len(other)), "random ones are of the whole vocabulary"


def test_every_word_of_a_segment_is_about_as_likely():
    """Spans are placed over all arrangements, so the inside of a segment has no favoured places."""
    count = np.zeros(30)
    for seed in range(4000):
        _, _, _, positions, _, _ = mask([[1] * 30], seed=seed)
        count[positions - 1] += 1
    inside = count[3:-3] / 4000
    assert inside.max() - inside.min() < 0.06
    assert 0.1 < inside.mean() < 0.2


@pytest.mark.parametrize("rate", [0.01, 0.8, 0.95])
def test_any_rate(rate):
    original, _, _, positions, _, _ = mask(random_segments(2000, 20, 100), rate=rate)
    assert abs(len(positions) / (original >= NUM_SPECIAL).sum() - rate) < 0.02


def test_one_word_segments_take_the_spans_they_can_hold():
    original, _, _, positions, _, ngrams = mask([[2]] * 5000)
    assert set(ngrams.tolist()) == {1}
    assert abs(len(positions) / (original >= NUM_SPECIAL).sum() - 0.15) < 0.005


def test_arrays_of_fixed_size_are_not_overrun():
    _, _, _, positions, _, _ = mask(random_segments(50, 20, 100), rate=0.5, room=64)
    assert len(positions) <= 64


def test_masks_change_with_the_epoch_and_not_with_anything_else(make_store):
    store = make_store([[20] * 40] * 10)
    batches = Batches(store, "train", BatchSettings(length=128, budget=1024, order="none"))
    again = Batches(store, "train", BatchSettings(length=128, budget=1024, order="none"))
    masked = [
        {int(target) for batch in source.batches(epoch) for target in batch.mask_targets}
        for source, epoch in ((batches, 0), (again, 0), (batches, 1))
    ]
    assert masked[0] == masked[1]
    assert len(masked[0] & masked[2]) < 0.3 * len(masked[0])
