"""Batches: a pure function of (seed, epoch, index), whatever the workers, ranks or the place one starts from."""

import dataclasses
import itertools

import numpy as np
import pytest

from litebert.corpus.batches import Batches, BatchSettings
from litebert.errors import InputError

SETTINGS = BatchSettings(length=64, budget=512, window=20_000)


def random_sizes(documents=60, seed=0):
    random = np.random.default_rng(seed)
    return [random.integers(1, 30, random.integers(1, 80)).tolist() for _ in range(documents)]


@pytest.fixture
def store(make_store):
    return make_store(random_sizes(), held_out=random_sizes(5, seed=1), shard_documents=7)


def same(one, two):
    for field in dataclasses.fields(one):
        left, right = getattr(one, field.name), getattr(two, field.name)
        if not np.array_equal(left, right):
            return False
    return True


def take(stream, count):
    found = list(itertools.islice(stream, count))
    stream.close()
    return found


def originals(batch):
    ids = batch.ids[: batch.num_tokens].copy()
    ids[batch.mask_positions[: batch.num_masked]] = batch.mask_targets[: batch.num_masked]
    return ids


def test_a_lower_mask_rate_changes_nothing_but_masks(store):
    settings = dataclasses.replace(SETTINGS, rate=0.3, fixed=True)
    many = Batches(store, "train", settings)
    few = many.at_rate(0.1)
    alone = Batches(store, "train", dataclasses.replace(settings, rate=0.1))
    for index in range(3):
        one, other = many.batch(0, index), few.batch(0, index)
        assert np.array_equal(originals(one), originals(other)) and np.array_equal(one.starts, other.starts)
        assert one.mask_positions.shape == other.mask_positions.shape
        assert other.num_masked == pytest.approx(one.num_masked / 3, rel=0.1)
        assert np.array_equal(other.ids, alone.batch(0, index).ids)


def test_layout_of_a_batch(store):
    for batch in Batches(store, "train", SETTINGS).batches(0):
        ids = originals(batch)
        assert batch.starts[0] == 0 and batch.starts[-1] == len(ids) == batch.num_tokens <= 512
        assert len(batch.order_labels) == len(batch.starts) - 1 == batch.num_sequences
        assert batch.longest == np.diff(batch.starts).max() <= 64
        for begin, end, label in zip(batch.starts[:-1], batch.starts[1:], batch.order_labels, strict=True):
            row, segments = ids[begin:end], batch.segments[begin:end]
            assert row[0] == 2 and row[-1] == 3
            assert (batch.positions[begin:end] == np.arange(end - begin)).all()
            middle = int((segments == 0).sum())
            assert (segments == np.repeat([0, 1], [middle, len(row) - middle])).all()
            assert row[middle - 1] == 3
            assert ((row == 3).sum(), label in (0, 1)) in ((2, True), (1, False))
            assert (row[(row != 2) & (row != 3)] >= 10).all()
            if label == 1:
                assert row[1] == row[-2] + 1, "swapped: what follows the end of x2 is the start of x1"
            elif label == 0:
                assert row[middle - 2] + 1 == row[middle]


def test_an_epoch_has_all_the_text_and_repeats_little(store):
    for epoch in range(2):
        ids = np.concatenate([originals(batch) for batch in Batches(store, "train", SETTINGS).batches(epoch)])
        text, counts = np.unique(ids[ids >= 10], return_counts=True)
        assert len(text) == store.split("train").num_tokens
        assert (counts > 1).mean() < 0.05


def test_a_batch_does_not_depend_on_what_was_made_before(store):
    batches = Batches(store, "train", SETTINGS)
    forward = list(batches.batches(1))
    assert len(forward) == batches.len(1) > 20
    assert [batch.index for batch in forward] == list(range(len(forward)))
    for index in (len(forward) - 1, 3, len(forward) // 2):
        assert same(Batches(store, "train", SETTINGS).batch(1, index), forward[index])
    with pytest.raises(IndexError):
        batches.batch(1, len(forward))


@pytest.mark.parametrize("order", ["sop", "nsp"])
def test_workers_and_ranks_do_not_change_the_stream(store, order):
    settings = dataclasses.replace(SETTINGS, order=order)
    count = Batches(store, "train", settings).len(0) + 10  # over the end of an epoch
    expected = take(Batches(store, "train", settings).stream(), count)
    assert (expected[-1].epoch, expected[-1].index) == (1, 9)
    for workers in (1, 2, 4):
        found = take(Batches(store, "train", settings).stream(workers=workers), count)
        assert all(map(same, expected, found))
    ranks = [take(Batches(store, "train", settings).stream(rank=r, world=2, workers=2), count // 2) for r in range(2)]
    united = [batch for step in zip(*ranks, strict=True) for batch in step]
    assert all(map(same, expected, united))


def test_resuming_gives_the_same_next_batch(store):
    batches = Batches(store, "train", SETTINGS)
    whole = take(batches.stream(), 40)
    again = Batches(store, "train", SETTINGS)
    assert again.advance((0, 0), 17) == (whole[17].epoch, whole[17].index)
    assert all(map(same, whole[17:], take(again.stream(again.advance((0, 0), 17)), 23)))
    end = batches.len(0)
    assert batches.advance((0, end - 1), 1) == (1, 0)
    ranks = [take(again.stream((0, 10), rank=rank, world=2), 5) for rank in range(2)]
    assert [batch.index for batch in ranks[1]] == [11, 13, 15, 17, 19]
    assert same(ranks[0][2], whole[14])


def test_seeds_and_epochs_differ(store):
    first = Batches(store, "train", SETTINGS).batch(0, 0)
    assert not same(first, dataclasses.replace(Batches(store, "train", SETTINGS).batch(1, 0), epoch=0))
    assert not same(first, Batches(store, "train", dataclasses.replace(SETTINGS, seed=1)).batch(0, 0))


def test_held_out_batches_never_change(store):
    one = list(Batches(store, "held_out", SETTINGS).batches(0))
    two = list(Batches(store, "held_out", dataclasses.replace(SETTINGS, seed=9)).batches(5))
    assert len(one) == len(two)
    assert all(same(dataclasses.replace(left, epoch=5), right) for left, right in zip(one, two, strict=True))
    ids = np.concatenate([originals(batch) for batch in one])
    text, counts = np.unique(ids[ids >= 10], return_counts=True)
    assert len(text) == store.split("held_out").num_tokens
    assert counts.max() == 1, "nothing is counted twice in a held-out loss"


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_fixed_shapes_are_constant_and_hold_the_same_text(store, split):
    loose = Batches(store, split, SETTINGS)
    fixed = Batches(store, split, dataclasses.replace(SETTINGS, fixed=True))
    shapes = set()
    for batch in fixed.batches(0):
        shapes.add(tuple(np.shape(getattr(batch, name)) for name in ("ids", "starts", "order_labels", "mask_targets")))
        assert len(batch.ids) == len(batch.segments) == len(batch.positions) == 512
        assert batch.starts[-1] == 512 and (np.diff(batch.starts) >= 0).all() and np.diff(batch.starts).max() <= 64
        assert batch.longest == 64
        assert (batch.ids[batch.num_tokens :] == 0).all()
        assert (batch.order_labels[batch.num_sequences :] == -100).all()
        assert (batch.mask_targets[batch.num_masked :] == -100).all()
        assert (batch.mask_targets[: batch.num_masked] >= 10).all()
        assert batch.starts[batch.num_sequences] == batch.num_tokens
        restarts = np.flatnonzero(batch.positions == 0)
        assert set(restarts.tolist()) == set(batch.starts[batch.starts < 512].tolist())
    assert len(shapes) == 1
    first = fixed.batch(0, 0)
    assert (originals(first) == originals(loose.batch(0, 0))).all()


def test_many_tiny_inputs_respect_max_sequences(make_store):
    store = make_store([[1]] * 3000)
    batches = Batches(store, "train", BatchSettings(length=64, budget=512, fixed=True, max_sequences=32))
    total = 0
    for batch in batches.batches(0):
        assert len(batch.starts) == 33
        assert (batch.order_labels == -100).all()
        total += batch.num_sequences
    assert total >= 3000


def test_corpus_too_small_for_a_batch(make_store):
    store = make_store([[5, 5]] * 3)
    with pytest.raises(InputError, match=r"too small for one batch: its inputs have 36 tokens .* budget is 512"):
        Batches(store, "train", dataclasses.replace(SETTINGS, order="none"))
    with pytest.raises(InputError, match="no held-out text"):
        Batches(store, "held_out", SETTINGS)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"order": "spo"}, "did you mean 'sop'"),
        ({"masking": "ngrams"}, "did you mean 'ngram'"),
        ({"rate": 15}, "between 0 and 1"),
        ({"length": 3}, "8 tokens or more"),
        ({"length": 128, "budget": 64}, "have 64 tokens but must hold an input of 128"),
        ({"edges": "x"}, "masking or pairs"),
    ],
)
def test_settings_are_checked(fields, sentence):
    with pytest.raises(InputError, match=sentence):
        BatchSettings(**fields)


def test_max_sequences_too_small_is_an_error(store):
    with pytest.raises(InputError, match="max_sequences is 3"):
        Batches(store, "train", dataclasses.replace(SETTINGS, fixed=True, max_sequences=3))


def test_many_shards_need_few_file_handles(make_store):
    psutil = pytest.importorskip("psutil")
    store = make_store([[10] * 20] * 120, shard_documents=1)
    before = psutil.Process().num_fds()
    batches = Batches(store, "train", SETTINGS)
    for index in range(5):
        batches.batch(0, index)
    assert psutil.Process().num_fds() - before < 10
