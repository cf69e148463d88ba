"""Pairs: whole sentences of one document, nothing lost, labels as defined; each trap of the published code by name."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from litebert.corpus.batches import Batches, BatchSettings
from litebert.corpus.pairs import DOCUMENT, LABEL, OTHER, SECOND_SIZE, SECOND_START, SIZE, START, UNLABELLED
from litebert.errors import InputError

DOCUMENTS = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=1, max_size=12)
PROPERTY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def cut(store, **fields):
    """The inputs of epoch 0 with their tokens as corpus positions: [(x1, x2, label, documents)]."""
    epoch = fields.pop("epoch", 0)
    batches = Batches(store, "held_out", BatchSettings(**{"length": 32, "budget": 64, **fields}))
    batches._held_out = False  # all draws of the epoch asked for, with no demand on the size of the corpus
    found = []
    for number in range(batches.num_windows(epoch)):
        window = batches.window(epoch, number)
        for row in window.plan.inputs:
            one = window.tokens[row[START] : row[START] + row[SIZE]].astype(int) - 10
            two = window.tokens[row[SECOND_START] : row[SECOND_START] + row[SECOND_SIZE]].astype(int) - 10
            found.append((one, two, int(row[LABEL]), (int(row[DOCUMENT]), int(row[OTHER]))))
    return found


def held(make_store, sizes, **fields):
    return make_store([[1]], held_out=sizes, **fields)


def bounds(sizes):
    """(where sentences start, where documents start), in corpus positions after the one token of the train split."""
    sentences = 1 + np.cumsum([0, *[size for document in sizes for size in document]])
    documents = 1 + np.cumsum([0, *map(sum, sizes)])
    return set(sentences.tolist()), documents


@PROPERTY
@given(sizes=DOCUMENTS, order=st.sampled_from(["sop", "nsp", "none"]), epoch=st.integers(0, 3))
def test_every_token_is_in_one_input_and_none_is_too_long(make_store, sizes, order, epoch):
    inputs = cut(held(make_store, sizes), order=order, edges="pairs", epoch=epoch)
    tokens = np.concatenate([np.concatenate([one, two]) for one, two, _, _ in inputs])
    assert sorted(tokens.tolist()) == list(range(1, 1 + sum(map(sum, sizes))))
    for one, two, label, _ in inputs:
        assert len(one) + len(two) + (3 if len(two) else 2) <= 32
        assert len(one) > 0
        assert (label == UNLABELLED) == (len(two) == 0)
        for segment in (one, two):
            assert (np.diff(segment) == 1).all()


@PROPERTY
@given(sizes=DOCUMENTS, edges=st.sampled_from(["pairs", "masking"]))
def test_sop_pairs_are_consecutive_whole_sentences_of_one_document(make_store, sizes, edges):
    starts, documents = bounds(sizes)
    for one, two, label, where in cut(held(make_store, sizes), order="sop", edges=edges):
        assert where[0] == where[1]
        if label == UNLABELLED:
            continue
        first, second = (one, two) if label == 0 else (two, one)
        assert first[-1] + 1 == second[0]
        assert {int(first[0]), int(second[0]), int(second[-1]) + 1} <= starts
        home = np.searchsorted(documents, [first[0], second[-1]], side="right")
        assert home[0] == home[1]


@PROPERTY
@given(sizes=DOCUMENTS)
def test_nsp_pairs_are_next_or_of_another_document(make_store, sizes):
    _, documents = bounds(sizes)
    for one, two, label, where in cut(held(make_store, sizes), order="nsp"):
        if label == UNLABELLED:
            continue
        home = np.searchsorted(documents, [one[0], two[0]], side="right")
        assert (home[0] == home[1]) == (label == 0) == (where[0] == where[1])
        if label == 0:
            assert one[-1] + 1 == two[0]


def test_one_sentence_documents_are_for_masking_only(make_store):
    """The published code gives them a segment of another document and calls it swapped."""
    inputs = cut(held(make_store, [[9]] * 50), order="sop", edges="pairs")
    assert len(inputs) == 50
    assert all(label == UNLABELLED and len(two) == 0 for _, two, label, _ in inputs)


def test_one_document_cannot_give_random_pairs(make_store):
    inputs = cut(held(make_store, [[5] * 200]), order="nsp")
    assert {label for _, _, label, _ in inputs} == {0, UNLABELLED}
    assert sum(len(one) + len(two) for one, two, _, _ in inputs) == 1000


def test_a_long_sentence_is_cut_before_a_word_and_its_pieces_stand_alone(make_store):
    inputs = cut(held(make_store, [[5, 200, 5, 5]]), order="sop", edges="pairs")
    pieces = [(one, label) for one, two, label, _ in inputs if 6 <= one[0] < 206]
    assert sum(len(one) for one, _ in pieces) == 200
    for one, label in pieces:
        assert label == UNLABELLED
        assert len(one) <= 29
        assert (one[0] - 6) % 2 == 0, "a word starts at every second token of a sentence"


def test_edges_have_no_label_and_the_rest_have(make_store):
    sizes = [[5] * 100] * 20
    documents = bounds(sizes)[1]
    for edges, expected in (("masking", True), ("pairs", False)):
        labels = {"opening": set(), "ending": set()}
        for one, two, label, _ in cut(held(make_store, sizes), order="sop", edges=edges):
            start = min(one[0], two[0]) if len(two) else one[0]
            document = np.searchsorted(documents, start, side="right") - 1
            if start - documents[document] < 29:
                labels["opening"].add(label)
            elif start + len(one) + len(two) == documents[document] + 500:
                labels["ending"].add(label)
            elif label == UNLABELLED:
                assert len(one) == 5, "only a sentence left over is alone"
        assert all((found == {UNLABELLED}) == expected for found in labels.values())


def test_the_end_of_x1_and_the_swap_change_with_the_epoch(make_store):
    store = held(make_store, [[4] * 300] * 4)
    epochs = [{(int(one[0]), len(one), label) for one, _, label, _ in cut(store, epoch=epoch)} for epoch in range(2)]
    assert len(epochs[0] & epochs[1]) < 0.6 * len(epochs[0])


@pytest.mark.parametrize("order", ["sop", "nsp"])
def test_labels_are_balanced_and_lengths_do_not_reveal_them(make_store, order):
    random = np.random.default_rng(0)
    sizes = [random.integers(1, 26, size=60).tolist() for _ in range(300)]
    inputs = [item for item in cut(held(make_store, sizes), order=order) if item[2] != UNLABELLED]
    labels = np.array([label for _, _, label, _ in inputs])
    error = 0.5 / np.sqrt(len(labels))
    assert abs(labels.mean() - 0.5) < 4 * error
    longer = np.array([len(one) > len(two) for one, two, _, _ in inputs])
    assert abs((longer == labels).mean() - 0.5) < 4 * error


def test_a_tenth_of_inputs_is_short(make_store):
    sizes = [[1] * 10_000] * 20
    store = held(make_store, sizes)
    lengths = np.array([len(one) for one, _, _, _ in cut(store, order="none", length=102, budget=1024)])
    short = lengths[lengths < 100]
    assert abs(len(short) / len(lengths) - 0.1) < 4 * np.sqrt(0.09 / len(lengths)) + 0.02  # one end a document
    assert abs(np.mean(short) - 51) < 4 * 28.6 / np.sqrt(len(short)), "uniform from 2 to 100"


def test_empty_documents_and_sentences_are_ignored(make_store):
    store = held(make_store, [[], [3, 0, 4], [], [5, 5], []])
    inputs = cut(store, order="sop", edges="pairs")
    assert sum(len(one) + len(two) for one, two, _, _ in inputs) == 17
    assert {where[0] for _, _, _, where in inputs} == {1, 3}


def test_a_document_longer_than_a_window_is_cut_between_sentences(make_store):
    sizes = [[50] * 12_000]  # 600,000 tokens: over four slices
    starts, _ = bounds(sizes)
    store = held(make_store, sizes)
    batches = Batches(store, "held_out", BatchSettings(length=128, budget=512, window=1000))
    assert batches.num_windows(0) > 1
    tokens = []
    for number in range(batches.num_windows(0)):
        window = batches.window(0, number)
        assert len(window.tokens) < 300_000
        tokens.append(window.tokens)
        begins = window.plan.inputs[:, START]
        assert set((window.tokens[begins].astype(int) - 10).tolist()) <= starts
    assert sorted(np.concatenate(tokens).tolist()) == list(range(11, 600_011))


def test_short_documents_are_left_out_and_change_nothing_else(make_store):
    """Long documents give the inputs that they give among all others."""
    sizes = [[9] * 4, [8] * 20, [5], [7] * 30, [9] * 11]
    whole, some = (cut(held(make_store, sizes), min_document=least) for least in (0, 100))
    kept = [one for one in whole if one[3][0] in (1, 3)]
    assert [one[2:] for one in some] == [one[2:] for one in kept] and len(kept) < len(whole)
    for one, other in zip(some, kept, strict=True):
        assert np.array_equal(one[0], other[0]) and np.array_equal(one[1], other[1])


def test_a_store_without_long_documents_is_too_small(make_store):
    store = make_store([[9] * 40] * 10)
    Batches(store, "train", BatchSettings(length=32, budget=64, min_document=360))
    with pytest.raises(InputError, match="documents of 361 tokens or more are too few for one batch"):
        Batches(store, "train", BatchSettings(length=32, budget=64, min_document=361))
