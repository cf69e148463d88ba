"""Positions stretched, networks that read longer texts with the weights of old ones, and what is refused."""

from dataclasses import replace

import pytest
import torch

from litebert.errors import InputError
from litebert.nn.layout import Layout
from litebert.nn.network import HeadsConfig, Network, NetworkConfig, pretraining_network
from litebert.pretraining.initial import stretched, warm_start
from litebert.pretraining.lengthen import lengthen_settings, lengthened, long_config

TABLE = torch.arange(4.0)[:, None].repeat(1, 3)


def test_tiled_positions_repeat():
    assert stretched(TABLE, 10, "tiled")[:, 0].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]


def test_interpolated_positions_keep_both_ends_and_the_order():
    found = stretched(TABLE, 7, "interpolated")
    assert found[:, 1].tolist() == pytest.approx([0, 0.5, 1, 1.5, 2, 2.5, 3])


@pytest.mark.parametrize("how", ["tiled", "interpolated"])
def test_rows_of_no_position_stay(how):
    """RoBERTa's table begins with two rows that no position has."""
    table = torch.cat([torch.full((2, 3), -7.0), TABLE])
    found = stretched(table, 10, how, offset=2)
    assert torch.equal(found[2:], stretched(TABLE, 8, how)) and found[:2].eq(-7).all() and len(found) == 10


@pytest.fixture
def short(tiny_config):
    torch.manual_seed(0)
    return pretraining_network(replace(tiny_config, max_positions=32)).eval()


@pytest.mark.parametrize("family_offset", [0, 2])
def test_a_tiled_network_reads_short_texts_as_before_and_tiles_alike(tiny_config, family_offset):
    torch.manual_seed(0)
    short = pretraining_network(replace(tiny_config, max_positions=32, position_offset=family_offset)).eval()
    longer = lengthened(short, 128, "full", "tiled", "toy")
    ids = torch.randint(60, (32,))
    with torch.no_grad():
        before = short.encoder(ids, Layout.of([32]))
        assert torch.equal(longer.encoder(ids, Layout.of([32])), before)
        # Blocks of one tile see nothing of the others: each is read as a text of its own.
        blocks = lengthened(short, 128, "block(32)", "tiled", "toy")
        alone = replace(blocks.config.encoder, num_layers=1)  # later layers shift their blocks
        first = Network(NetworkConfig(encoder=alone, heads=HeadsConfig()))
        first.load_state_dict(blocks.state_dict(), strict=False)
        states = first.eval().encoder(ids.repeat(4), Layout.of([128]))
        torch.testing.assert_close(states[96:], short.encoder(ids, Layout.of([32]), depth=1), atol=1e-5, rtol=1e-5)


def test_all_weights_but_positions_are_those_of_the_old_network(short):
    longer = lengthened(short, 100, "local(8)+global", "interpolated", "toy")
    old, new = short.state_dict(), longer.state_dict()
    changed = [name for name in old if old[name].shape != new[name].shape]
    assert changed == ["encoder.embeddings.position.weight"] and new[changed[0]].shape[0] == 100
    assert all(torch.equal(old[name], new[name]) for name in old if name not in changed)
    assert longer.config.encoder.attention == "local(8)+global" and longer.config.heads == short.config.heads


def test_a_window_as_long_as_the_text_changes_nothing(short):
    ids, layout = torch.randint(60, (90,)), Layout.of([90])
    with torch.no_grad():
        full, local = (
            lengthened(short, 96, words, "tiled", "toy").encoder(ids, layout) for words in ("full", "local(96)+global")
        )
    torch.testing.assert_close(local, full)


def test_sparse_attention_drops_no_attention_weights(tiny_config):
    dropping = replace(tiny_config, attention_dropout=0.1, dropout=0.1)
    found = long_config(dropping, 1024, "local(64)+global", "toy")
    assert (found.attention_dropout, found.dropout) == (0.0, 0.1)
    assert long_config(dropping, 1024, "full", "toy").attention_dropout == 0.1


def test_a_warm_start_stretches_positions(short):
    torch.manual_seed(1)
    longer = pretraining_network(replace(short.config.encoder, max_positions=80))
    warm_start(longer, short)
    table = longer.encoder.embeddings.position.weight
    assert torch.equal(table, stretched(short.encoder.embeddings.position.weight, 80, "tiled"))
    shorter = pretraining_network(replace(short.config.encoder, max_positions=16))
    with pytest.raises(InputError, match="position"):
        warm_start(shorter, short)


@pytest.mark.parametrize(
    ("changes", "to", "attention", "words"),
    [
        ({}, 32, "full", "to is 32 but must be more than the 32 positions of toy"),
        ({}, 9000, "full", "to is 9000"),
        ({}, 64, "local", "attention is 'local' but must be"),
        ({"positions": "relative", "max_positions": 0}, 64, "full", "toy has relative positions"),
    ],
)
def test_what_is_refused(tiny_config, changes, to, attention, words):
    config = replace(tiny_config, **{"max_positions": 32, **changes})
    with pytest.raises(InputError, match=words):
        long_config(config, to, attention, "toy")


def test_only_a_model_with_a_masked_lm_head_is_trained(short, tmp_path):
    bare = Network(NetworkConfig(encoder=short.config.encoder, heads=HeadsConfig(names=("classify",))))

    def asked(network, words=()):
        return lengthen_settings("toy", network, 64, "full", "tiled", [tmp_path], tmp_path / "out", words=words)

    with pytest.raises(InputError, match="no masked-LM head"):
        asked(bare)
    with pytest.raises(InputError, match="num_layers is a field of the model"):
        asked(short, ["num_layers=2"])
    found = asked(short, ["mask_rate=0.2"])
    assert found.recipe.mask_rate == 0.2 and found.recipe.order == "sop"
    assert found.recipe.batches.lengths == ((0.0, 64),) and found.recipe.batches.min_document == 32
    assert found.recipe.batches.tokens[0][1] % 64 == 0
    masked = Network(NetworkConfig(encoder=short.config.encoder, heads=HeadsConfig(names=("masked_lm",))))
    assert asked(masked).recipe.order == "none"
