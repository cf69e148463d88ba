"""Which layers each strategy drops: the paper's lists, and what must hold at any depth."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litebert.errors import InputError
from litebert.shrinking.strategies import (
    FIXED,
    drop_fixed,
    drop_greedily,
    drop_similar,
    kept_of,
    parse_kept,
    parse_strategy,
    ranges,
)

PAPER = {
    "top": ([11, 12], [9, 10, 11, 12], [7, 8, 9, 10, 11, 12]),
    "even": ([10, 12], [6, 8, 10, 12], [2, 4, 6, 8, 10, 12]),
    "odd": ([9, 11], [5, 7, 9, 11], [1, 3, 5, 7, 9, 11]),
    "symmetric": ([6, 7], [5, 6, 7, 8], [4, 5, 6, 7, 8, 9]),
    "bottom": ([1, 2], [1, 2, 3, 4], [1, 2, 3, 4, 5, 6]),
}


@pytest.mark.parametrize("strategy", PAPER)
@pytest.mark.parametrize(("place", "count"), [(0, 2), (1, 4), (2, 6)])
def test_the_paper_s_lists(strategy, place, count):
    assert list(drop_fixed(strategy, 12, count)) == PAPER[strategy][place]


@st.composite
def depth_and_count(draw):
    depth = draw(st.integers(2, 60))
    return depth, draw(st.integers(1, depth - 1))


@given(depth_and_count())
def test_every_strategy_drops_the_requested_number_at_any_depth(case):
    depth, count = case
    for strategy in FIXED:
        dropped = drop_fixed(strategy, depth, count)
        kept = kept_of(depth, dropped)
        assert len(dropped) == len(set(dropped)) == count
        assert list(dropped) == sorted(dropped) and list(kept) == sorted(kept)
        assert sorted([*dropped, *kept]) == list(range(1, depth + 1))


@given(depth_and_count())
def test_the_definitions_hold_at_any_depth(case):
    depth, count = case
    assert max(drop_fixed("bottom", depth, count)) == count
    assert min(drop_fixed("top", depth, count)) == depth - count + 1
    middle = drop_fixed("symmetric", depth, count)
    below, above = middle[0] - 1, depth - middle[-1]
    assert middle[-1] - middle[0] == count - 1 and 0 <= below - above <= 1
    for strategy, parity in (("even", 0), ("odd", 1)):
        dropped = set(drop_fixed(strategy, depth, count))
        own = [layer for layer in range(1, depth + 1) if layer % 2 == parity]
        if count <= len(own):
            assert dropped == set(own[-count:])
        else:
            assert dropped > set(own)


@given(depth_and_count())
def test_alternate_layers_leave_small_gaps(case):
    """Past its own parity a strategy continues with every other one of what is left: gaps differ by a factor of two."""
    depth, count = case
    kept = kept_of(depth, drop_fixed("even", depth, count))
    assert kept[0] == 1
    steps = [b - a for a, b in pairwise(kept)]
    if steps:
        assert max(steps) <= 2 * min(steps)


def test_contribution_drops_the_layers_that_change_least_and_of_equals_the_upper():
    assert drop_similar([0.5, 0.99, 0.8, 0.98], 2) == (2, 4)
    assert drop_similar([0.9, 0.9, 0.9], 1) == (3,)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=30), st.data())
def test_what_contribution_keeps_is_never_more_alike_than_what_it_drops(cosines, data):
    count = data.draw(st.integers(1, len(cosines) - 1))
    dropped = drop_similar(cosines, count)
    kept = kept_of(len(cosines), dropped)
    assert min(cosines[layer - 1] for layer in dropped) >= max(cosines[layer - 1] for layer in kept)


@given(st.lists(st.integers(0, 100), min_size=2, max_size=8, unique=True), st.data())
def test_greedy_is_optimal_where_losses_add_up(costs, data):
    count = data.draw(st.integers(1, len(costs) - 1))
    everything = range(1, len(costs) + 1)

    def loss(kept):
        return sum(costs[layer - 1] for layer in everything if layer not in kept)

    dropped, order = drop_greedily(len(costs), count, loss)
    cheapest = sorted(everything, key=lambda layer: costs[layer - 1])[:count]
    assert dropped == tuple(sorted(cheapest))
    assert [layer for layer, _ in order] == cheapest and order[-1][1] == sum(sorted(costs)[:count])


def test_greedy_measures_what_is_left_each_time():
    """2 and 3 do the same thing: either may go, but not both."""

    def loss(kept):
        return (0 if {2, 3} & set(kept) else 10) + (0 if 1 in kept else 3) + (0 if 4 in kept else 2)

    assert drop_greedily(4, 1, loss)[0] == (3,)
    assert drop_greedily(4, 2, loss)[0] == (3, 4)


@pytest.mark.parametrize(
    ("depth", "count", "said"),
    [
        (12, 13, "drop is 13 but the model has only 12 layers"),
        (12, 12, "leaves nothing of 12 layers"),
        (1, 1, "leaves nothing of 1 layer"),
        (12, 0, "must be 1 or more"),
    ],
)
def test_impossible_counts(depth, count, said):
    with pytest.raises(InputError, match=said):
        drop_fixed("top", depth, count)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,13", "layer 13 but the model has layers 1 to 12"),
        ("0", "layer 0 but"),
        ("2,3,2", "layer 2 twice"),
        ("1-3,3", "layer 3 twice"),
        ("", "nothing would be left"),
        ("5-3", "nothing would be left"),
        ("one", "'one', which is not a layer"),
        ("1.5", "'1.5', which is not a layer"),
        ("-2", "'-2', which is not a layer"),
    ],
)
def test_impossible_lists(text, said):
    with pytest.raises(InputError, match=said):
        parse_kept(text, 12)


def test_lists_as_people_write_them():
    assert parse_kept("9, 1,2 5", 12) == (1, 2, 5, 9)
    assert parse_kept("1-3,12", 12) == (1, 2, 3, 12)
    assert ranges((1, 2, 3, 5, 7, 8)) == "1-3, 5, 7-8"


def test_the_error_suggests_a_strategy():
    with pytest.raises(InputError, match="did you mean 'symmetric'"):
        parse_strategy("symetric")
