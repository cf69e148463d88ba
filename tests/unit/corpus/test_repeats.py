"""Repeated text: exact counts of n-grams, what sequences count for, and a sketch that is the same for part of them."""

import numpy as np
import pytest
from toy_stores import SPECIAL, write_store

from litebert.corpus.repeats import NGRAM, Repeats

BREAKS = [SPECIAL["cls"], SPECIAL["sep"]]


def repeats_of(tmp_path, documents, *, vocab=5000, **changes) -> Repeats:
    text = [[(document, [1] * len(document))] for document in documents]
    store = write_store(tmp_path / "store", {"train": text}, vocab_size=vocab, shard_documents=2)
    return Repeats.of(store.split("train"), vocab, BREAKS, **changes)


def novelty(repeats, *texts):
    rows = [[2, *text, 3] for text in texts]
    starts = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    return repeats.novelty(np.array([id for row in rows for id in row], np.int32), starts)


def test_copies_count_as_one_together(tmp_path):
    """One text is there once, one three times, one of two halves in another, one nowhere."""
    once, thrice, half = list(range(10, 40)), list(range(100, 130)), list(range(200, 230))
    repeats = repeats_of(tmp_path, [once, thrice, [*range(60, 70), *thrice], thrice, [*half, *once[:15]], half])
    found = novelty(repeats, once, thrice, half, list(range(300, 330)), [7, 8])
    shared = 15 - NGRAM + 1  # n-grams of the first that are in another text, too
    whole = 30 - NGRAM + 1
    assert found == pytest.approx([(whole - shared / 2) / whole, 1 / 3, 1 / 2, 1, 1])


def test_an_ngram_does_not_reach_over_a_separator(tmp_path):
    text = list(range(10, 30))
    repeats = repeats_of(tmp_path, [text, text, [*range(40, 60)]])
    halves = [*text[: NGRAM - 1], 3, *text[NGRAM - 1 : 2 * NGRAM - 2]]
    assert novelty(repeats, text, halves) == pytest.approx([0.5, 1.0])


def test_a_sample_of_the_ngrams_gives_nearly_the_same(tmp_path):
    random = np.random.default_rng(0)
    documents = [random.integers(5, 5000, 400).tolist() for _ in range(20)]
    documents += [[*documents[number], *documents[number + 1][:200]] for number in range(10)]
    whole = repeats_of(tmp_path, documents)
    part = repeats_of(tmp_path, documents, most=2000)
    assert len(part.hashes) < len(whole.hashes) / 3 and set(part.hashes) < set(whole.hashes)
    assert np.abs(novelty(whole, *documents) - novelty(part, *documents)).mean() < 0.05
