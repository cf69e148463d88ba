"""What batches of real text in four languages must show: rates, shares, labels, fill, whole words, no leak."""

import numpy as np
import pytest

from litebert.corpus.batches import Batches, BatchSettings
from litebert.corpus.pairs import DOCUMENT, LABEL, OTHER, SECOND_SIZE, SECOND_START, SIZE, START
from litebert_lab.leak import check_leak

pytestmark = pytest.mark.shared
LANGUAGES = ("en", "ja", "ko", "zh")
SHARES = np.array([6, 3, 2]) / 11


@pytest.fixture(params=LANGUAGES)
def store(request, language_stores):
    return language_stores(request.param)


def test_masks(store):
    """15% of the text +- 0.3; lengths 6/11, 3/11, 2/11; words whole; 80/10/10."""
    batches = Batches(store, "train", BatchSettings(length=128, budget=8192))
    spans, masked, text, replaced = np.zeros(4, int), 0, 0, np.zeros(3, int)
    for batch in batches.batches(0):
        spans += np.bincount(batch.ngrams, minlength=4)
        chosen = np.zeros(batch.num_tokens, bool)
        chosen[batch.mask_positions] = True
        ids = batch.ids.copy()
        ids[batch.mask_positions] = batch.mask_targets
        text += int((ids > 4).sum())
        masked += batch.num_masked
        now = batch.ids[batch.mask_positions]
        replaced += [(now == 4).sum(), (now == batch.mask_targets).sum(), len(now)]
        word = np.cumsum((batch.word_starts == 1) | (ids == 2) | (ids == 3))
        part = np.bincount(word, weights=chosen & (ids > 4)) / np.maximum(np.bincount(word, weights=ids > 4), 1)
        assert set(np.unique(part)) <= {0.0, 1.0}, "a word is masked whole or not at all"
        assert (ids[batch.mask_positions] > 4).all()
    assert abs(masked / text - 0.15) < 0.003
    shares = spans[1:] / spans.sum()
    assert (np.abs(shares - SHARES) < 4 * np.sqrt(SHARES * (1 - SHARES) / spans.sum())).all()
    assert abs(replaced[0] / replaced[2] - 0.8) < 0.01
    assert abs(replaced[1] / replaced[2] - 0.1) < 0.01


@pytest.mark.parametrize(("masking", "rate"), [("plain", 0.15), ("whole-word", 0.3)])
def test_other_masks(store, masking, rate):
    batches = Batches(store, "train", BatchSettings(length=512, budget=32_768, masking=masking, rate=rate))
    masked, text = 0, 0
    for index in range(min(8, batches.len(0))):
        batch = batches.batch(0, index)
        masked += batch.num_masked
        text += int((batch.ids > 4).sum()) + int((batch.ids[batch.mask_positions] == 4).sum())
    assert abs(masked / text - rate) < 0.003


@pytest.mark.parametrize(("length", "budget"), [(128, 8192), (512, 8192), (512, 65_536)])
def test_fill(store, length, budget):
    batches = Batches(store, "train", BatchSettings(length=length, budget=budget))
    fill = [batch.num_tokens / budget for batch in batches.batches(0)]
    assert np.mean(fill) > 0.99


@pytest.mark.parametrize("length", [128, 512])
@pytest.mark.parametrize("order", ["sop", "nsp"])
def test_labels_are_even_and_pairs_keep_to_documents(store, order, length):
    batches = Batches(store, "train", BatchSettings(length=length, budget=8192, order=order))
    window = batches.window(0, 0)
    inputs = window.plan.inputs
    pairs = inputs[inputs[:, LABEL] >= 0]
    assert abs(pairs[:, LABEL].mean() - 0.5) < 4 * 0.5 / np.sqrt(len(pairs))
    assert (inputs[:, SIZE] + inputs[:, SECOND_SIZE]).sum() == len(window.tokens), "no token is lost"
    if order == "sop":
        assert (inputs[:, DOCUMENT] == inputs[:, OTHER]).all()
        swapped = pairs[:, LABEL] == 1
        first = np.where(swapped, pairs[:, SECOND_START] + pairs[:, SECOND_SIZE], pairs[:, START] + pairs[:, SIZE])
        assert (first == np.where(swapped, pairs[:, START], pairs[:, SECOND_START])).all()
    else:
        assert ((pairs[:, DOCUMENT] != pairs[:, OTHER]) == (pairs[:, LABEL] == 1)).all()


@pytest.mark.parametrize("length", [128, 512])
def test_words_do_not_reveal_the_order_of_sop_pairs(store, length):
    """50 +- 2%, by enough pairs that chance does not decide."""
    leak = check_leak(Batches(store, "train", BatchSettings(length=length, budget=8192)))
    assert leak.num_pairs > 5000 and leak.standard_error < 0.012
    assert abs(leak.accuracy - 0.5) < 0.02


def test_words_reveal_the_order_where_edges_are_paired(language_stores):
    """What edges="masking" is for; and the check can find a leak in real text."""
    settings = BatchSettings(length=512, budget=8192, edges="pairs")
    leak = check_leak(Batches(language_stores("zh"), "train", settings), most=6000)
    assert leak.accuracy > 0.62 and leak.verdict == "leaks"


def test_a_word_planted_in_real_text_is_found(language_stores):
    """A word that stands in the later one of every tenth pair, as "however" might, is worth 5%."""
    batches = Batches(language_stores("ko"), "train", BatchSettings(length=128, budget=8192))
    window = batches.window(0, 0)
    random = np.random.default_rng(0)
    pairs = window.plan.inputs[window.plan.inputs[:, LABEL] >= 0]
    for row in pairs[random.random(len(pairs)) < 0.1]:
        window.tokens[(row[START] if row[LABEL] else row[SECOND_START]) + 1] = 5
        window.word_starts[(row[START] if row[LABEL] else row[SECOND_START]) + np.array([1, 2])] = 1
    leak = check_leak(batches, most=len(pairs))
    assert leak.accuracy > 0.53


def test_words_reveal_random_pairs(language_stores):
    """Why ALBERT gave up nsp: topic is enough."""
    settings = BatchSettings(length=512, budget=8192, order="nsp")
    leak = check_leak(Batches(language_stores("en"), "train", settings), most=4000)
    assert leak.accuracy > 0.7 and leak.leaks
