"""Packing: every input once, no batch over its budget or its number of sequences, little left empty."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.corpus.counter_rng import open_stream
from litebert.corpus.packing import pack


def packed(sizes, budget, longest, most=1 << 30, top_up=False, seed=0):
    order, bounds = pack(np.array(sizes, np.int64), open_stream(seed, 0), budget, longest, most, top_up)
    return [order[begin:end] for begin, end in itertools.pairwise(bounds)]


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.integers(3, 32), min_size=1, max_size=200),
    spare=st.integers(0, 200),
    most=st.integers(9, 40),
    top_up=st.booleans(),
)
def test_every_input_is_packed_within_the_limits(sizes, spare, most, top_up):
    budget = 32 + spare
    batches = packed(sizes, budget, 32, most, top_up)
    sizes = np.array(sizes)
    for batch in batches:
        total = sizes[batch].sum()
        assert 0 < total <= budget
        assert len(batch) + -(-(budget - total) // 32) <= most, "with dummy sequences over what is left"
    seen = np.concatenate(batches)
    assert set(seen.tolist()) == set(range(len(sizes)))
    if not top_up:
        assert len(seen) == len(sizes)
    else:
        assert len(np.concatenate([*batches[:-1], [-1]])) == len(set(np.concatenate([*batches[:-1], [-1]]).tolist()))


@pytest.mark.parametrize("budget", [8192, 65_536])
def test_fill_is_nearly_complete(budget):
    random = np.random.default_rng(0)
    # As real text gives: most inputs end a sentence before the limit, a tenth have any length.
    full = 512 - random.geometric(1 / 20, 20_000).clip(max=400)
    sizes = np.where(random.random(20_000) < 0.1, random.integers(8, 512, 20_000), full)
    batches = packed(sizes, budget, 512, top_up=True)
    fill = [sizes[batch].sum() / budget for batch in batches]
    assert np.mean(fill) > 0.995


def test_inputs_of_one_size_leave_a_gap():
    batches = packed([100] * 50, 256, 128)
    assert [len(batch) for batch in batches] == [2] * 25


def test_the_order_is_random_and_seeded():
    sizes = list(range(3, 103)) * 3
    one, same, other = (np.concatenate(packed(sizes, 512, 128, seed=seed)) for seed in (1, 1, 2))
    assert (one == same).all()
    assert (one != other).any()
    assert np.abs(np.corrcoef(one, np.arange(len(one)))[0, 1]) < 0.3
