"""The entropy of word frequencies."""

import math

import numpy as np
import pytest
from toy_stores import write_store

from litebert.corpus import store as store_module
from litebert.corpus.store import Store, unigram_entropy
from litebert.errors import InputError


def store_of(folder, vocab_size, **splits) -> Store:
    """A store of one document a shard from lists of ids."""
    documents = {split: [[(ids, [1] * len(ids))] for ids in texts] for split, texts in splits.items()}
    return write_store(folder, documents, vocab_size=vocab_size, shard_documents=1)


def test_unigram_entropy_by_hand(tmp_path):
    # Six words of a vocabulary of 8 + specials less three: counts 5:3, 6:1, 7:0 of 4; the unknown is left out.
    store = store_of(tmp_path, 8, train=[[5, 5, 1], [5, 6]], held_out=[[5, 7, 1, 6]])
    probability = {5: 4 / 7, 6: 2 / 7, 7: 1 / 7}
    expected = -sum(math.log(probability[token]) for token in (5, 7, 6)) / 3
    assert unigram_entropy(store) == pytest.approx(expected, abs=1e-12)


def test_unigram_entropy_in_chunks_and_of_a_sample(tmp_path, monkeypatch):
    draw = np.random.default_rng(0)
    chances = draw.dirichlet(np.full(300, 0.3))
    text = draw.choice(np.arange(5, 305), 60_000, p=chances)
    store = store_of(tmp_path, 305, train=np.split(text[:50_000], [7, 20_000]), held_out=[text[50_000:]])
    whole = unigram_entropy(store)
    true = -(chances[chances > 0] * np.log(chances[chances > 0])).sum()
    assert whole == pytest.approx(true, abs=0.05)
    monkeypatch.setattr(store_module, "CHUNK", 997)
    assert unigram_entropy(store) == whole
    sampled = unigram_entropy(store, most=10_000)
    assert sampled != whole and sampled == pytest.approx(whole, abs=0.05)


def test_unigram_entropy_without_held_out_text(tmp_path):
    store = store_of(tmp_path, 6, train=[[5, 5, 5]])
    assert unigram_entropy(store) == pytest.approx(0.0)


def test_unigram_entropy_of_nothing(tmp_path):
    with pytest.raises(InputError, match="no text"):
        unigram_entropy(store_of(tmp_path, 6))
