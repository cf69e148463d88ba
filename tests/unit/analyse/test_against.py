"""A model beside the one it came from."""

import copy

import pytest
import torch

from litebert.analyse.measure import check_comparable, measure
from litebert.errors import InputError


def test_a_model_is_like_itself(make_network, make_inputs):
    network = make_network()
    found = measure("it", network.encoder, [make_inputs(4, 7)], other=network.encoder, other_name="same").against
    assert found.token_cosine == pytest.approx([1.0] * 5) and found.cls_cosine == pytest.approx([1.0] * 5)
    assert found.weight_change == [0.0] * 4 and found.embedding_change == 0.0


def test_a_change_is_seen_where_it_is_and_above(make_network, make_inputs):
    old = make_network()
    new = copy.deepcopy(old)
    with torch.no_grad():
        for part in (new.encoder.attention[2], new.encoder.feed_forward[2]):
            for parameter in part.parameters():
                parameter.mul_(1.25)
    found = measure("it", new.encoder, [make_inputs(4, 7)], other=old.encoder, other_name="old").against
    assert found.weight_change == pytest.approx([0, 0, 0.25, 0], abs=1e-7)
    assert found.token_cosine[:3] == pytest.approx([1.0] * 3)
    assert all(cosine < 0.9999 for cosine in found.token_cosine[3:])


def test_shared_layers_all_show_the_one_block_s_change(make_network, make_inputs):
    old = make_network(share="all")
    new = copy.deepcopy(old)
    with torch.no_grad():
        new.encoder.feed_forward[0].up.weight.mul_(2)
    found = measure("it", new.encoder, [make_inputs(4, 7)], other=old.encoder, other_name="old").against
    assert len(set(found.weight_change)) == 1 and found.weight_change[0] > 0.1


def test_models_that_do_not_correspond_are_an_error(make_network):
    with pytest.raises(InputError, match="has 6 layers where the model has 4"):
        check_comparable(make_network().encoder, make_network(num_layers=6).encoder, "other")
    with pytest.raises(InputError, match="width"):
        check_comparable(make_network().encoder, make_network(width=32, embedding_width=32).encoder, "other")
