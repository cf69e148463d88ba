"""Dropping layers edits the plan and throws away blocks that nobody runs any more, whatever is shared."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.nn.config import EncoderConfig
from litebert.nn.layout import Layout
from litebert.nn.network import HeadsConfig, Network, NetworkConfig
from litebert.shrinking.choose import with_plan
from litebert.shrinking.drop import count_parameters, drop_layers, kept_plan, same_model, sharing, shrunk_config

SMALL = {"vocab_size": 20, "width": 8, "embedding_width": 8, "num_heads": 2, "feed_forward_width": 12}
CASES = {
    "unshared": {"share": "none"},
    "all": {"share": "all"},
    "attention": {"share": "attention"},
    "ffn": {"share": "ffn"},
    "two groups": {"share": "all", "num_groups": 2},
    "groups of two": {"share": "all", "num_groups": 2, "layers_per_group": 2},
    "attention in groups": {"share": "attention", "num_groups": 4},
    "custom": {"custom_plan": ((0, 0), (1, 0), (0, 1), (2, 2), (1, 0), (0, 0), (3, 1), (2, 2))},
}


def config(case: str, layers: int = 8) -> EncoderConfig:
    return EncoderConfig(num_layers=layers, **SMALL, **CASES[case])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kept", [(1,), (1, 2, 3, 4), (5, 6, 7, 8), (2, 3, 6), (1, 4, 5, 8), tuple(range(1, 9))])
def test_kept_layers_compute_the_same_bit_for_bit(case, kept):
    torch.manual_seed(0)
    whole = Network(NetworkConfig(encoder=config(case), heads=HeadsConfig(names=("masked_lm", "classify")))).eval()
    with torch.no_grad():
        for parameter in whole.parameters():
            parameter.normal_(std=0.3)
    small = drop_layers(whole, kept)
    ids, layout = torch.randint(0, 20, (9,)), Layout.of([4, 5])
    with torch.no_grad():
        with with_plan(whole.encoder, kept_plan(whole.encoder.plan, kept)):
            expected = whole.encoder(ids, layout)
        assert torch.equal(small.encoder(ids, layout), expected)
        everything = torch.arange(9)
        assert torch.equal(small.masked_lm(expected, everything), whole.masked_lm(expected, everything))
        assert torch.equal(small.pooled(expected, layout), whole.pooled(expected, layout))
    attention = {blocks[0] for blocks in kept_plan(whole.encoder.plan, kept)}
    feed_forward = {blocks[1] for blocks in kept_plan(whole.encoder.plan, kept)}
    assert (len(small.encoder.attention), len(small.encoder.feed_forward)) == (len(attention), len(feed_forward))
    assert count_parameters(small.config) == sum(parameter.numel() for parameter in small.parameters())


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(CASES)), st.sets(st.integers(1, 8), min_size=1))
def test_blocks_stay_in_step_with_the_plan(case, kept):
    """Two kept layers share a block after dropping exactly where they did before."""
    whole = config(case)
    layers = sorted(kept)
    small = shrunk_config(whole, layers)
    assert small.num_layers == len(layers)
    for kind in (0, 1):
        before = [whole.plan[layer - 1][kind] for layer in layers]
        after = [blocks[kind] for blocks in small.plan]
        assert len(set(zip(before, after, strict=True))) == len(set(before)) == len(set(after))
        assert set(after) == set(range(len(set(after))))


def test_custom_plans_are_avoided_where_possible():
    assert shrunk_config(config("unshared"), (1, 5, 8)).custom_plan == ()
    attention = shrunk_config(config("attention"), (3, 5, 8))
    assert (attention.share, attention.custom_plan) == ("attention", ())
    groups = shrunk_config(config("two groups"), (3, 4, 7, 8))
    assert (groups.share, groups.num_groups, groups.custom_plan) == ("all", 2, ())
    assert shrunk_config(config("two groups"), (3, 7, 8)).custom_plan == ((0, 0), (1, 1), (1, 1))


def test_sharing():
    told = {case: sharing(config(case).plan) for case in CASES}
    assert told.pop("unshared") == "none" and told.pop("all") == "all"
    assert set(told.values()) == {"some"}


def test_strategies_that_leave_the_same_model_are_found():
    everything = ["top", "bottom", "even", "odd", "symmetric"]
    assert same_model(config("all").plan, (1, 2, 3, 4, 5)) == everything
    assert same_model(config("unshared").plan, (1, 2, 3, 4)) == ["top"]
    # Two groups of four: dropping the middle four, or every other one, leaves two of each.
    assert same_model(config("two groups").plan, (1, 2, 7, 8)) == ["even", "odd", "symmetric"]
