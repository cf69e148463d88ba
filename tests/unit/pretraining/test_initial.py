"""Initial values change what they name, as said, and nothing else."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from litebert.corpus.build import BuildSettings, build_store
from litebert.corpus.store import Store
from litebert.errors import InputError
from litebert.nn.config import preset_config
from litebert.nn.network import pretraining_network
from litebert.pretraining.initial import set_initial_values, waves
from litebert.pretraining.recipe import read_recipe

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "another", "dog", "."]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    folder: Path = tmp_path_factory.mktemp("corpus")
    (folder / "words").mkdir()
    (folder / "words" / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS, "never"]) + "\n")
    (folder / "text.txt").write_text("\n\n".join(["the cat sat on the mat . " * 3, "the dog saw a cat ."] * 4))
    how = BuildSettings(held_out=0.0, deduplicate=False)
    build_store([str(folder / "text.txt")], folder / "words", folder / "store", how, workers=1)
    return Store.open(folder / "store")


def weights(store: Store, *words: str, model: tuple[str, ...] = ()) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    network = pretraining_network(preset_config("albert-tiny", (f"vocab_size={store.vocab_size}", *model)))
    set_initial_values(network, read_recipe("paper", words), store)
    return network.state_dict()


def changed(store: Store, *words: str) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    before, after = weights(store), weights(store, *words)
    return {name: (before[name], after[name]) for name in before if not torch.equal(before[name], after[name])}


def test_nothing_is_asked_for_nothing_changes(store):
    assert not changed(store)


@pytest.mark.parametrize(("word", "scale"), [("0.25", 0.25), ("depth", 1 / math.sqrt(8))])
def test_outputs_are_scaled(store, word, scale):
    found = changed(store, f"initial.output_scale={word}")
    assert set(found) == {"encoder.attention.0.out.weight", "encoder.feed_forward.0.down.weight"}
    for before, after in found.values():
        torch.testing.assert_close(after, scale * before)


def test_the_bias_is_the_frequency_of_words(store):
    found = changed(store, "initial.unigram_bias=true")
    assert set(found) == {"heads.masked_lm.bias"}
    shares = found["heads.masked_lm.bias"][1].exp()
    ids = {word: number for number, word in enumerate([*SPECIAL, *WORDS, "never"])}
    total = store.split("train").num_tokens
    assert shares[len(SPECIAL) :].sum() == pytest.approx(1.0, abs=1e-5)
    assert shares[ids["the"]] / shares[ids["mat"]] == pytest.approx((7 * 4 + 1) / (3 * 4 + 1), rel=1e-5)
    assert shares[ids["never"]] == pytest.approx(1 / (total + store.vocab_size - len(SPECIAL)), rel=0.2)
    assert shares[ids["[MASK]"]] == shares[ids["never"]]


def test_positions_begin_as_waves(store):
    found = changed(store, "initial.positions=sinusoid", "initial.position_std=0.1")
    assert set(found) == {"encoder.embeddings.position.weight"}
    table = found["encoder.embeddings.position.weight"][1]
    assert table.square().mean().sqrt() == pytest.approx(0.1, rel=1e-5)
    near, far = (torch.cosine_similarity(table[10], table[other], dim=0) for other in (11, 40))
    assert near > 0.9 > far
    # Two positions three apart are as alike anywhere.
    assert torch.allclose(table[5] @ table[8], table[100] @ table[103], rtol=1e-4)
    default = changed(store, "initial.positions=sinusoid")["encoder.embeddings.position.weight"][1]
    assert default.square().mean().sqrt() == pytest.approx(0.02, rel=1e-5)


def test_waves_of_an_odd_width():
    assert waves(7, 5).shape == (7, 5)
    np.testing.assert_allclose(waves(3, 4)[:, 0], np.sin([0, 1, 2]), atol=1e-6)


@pytest.mark.parametrize(
    ("field", "part"),
    [("embedding", "token"), ("projection", "projection"), ("position", "position")],
)
def test_sizes_of_the_embeddings(store, field, part):
    found = changed(store, f"initial_{field}_std=0.3")
    assert set(found) == {f"encoder.embeddings.{part}.weight"}
    before, after = found[f"encoder.embeddings.{part}.weight"]
    assert after.std() == pytest.approx(0.3, rel=1e-4)
    torch.testing.assert_close(after / after.std(), before / before.std())


def test_a_model_without_a_projection_has_none_to_change(store):
    same = ("embedding_width=128",)
    plain, asked = weights(store, model=same), weights(store, "initial.projection_std=0.3", model=same)
    assert all(torch.equal(plain[name], asked[name]) for name in plain)


def test_what_is_refused():
    with pytest.raises(InputError, match=r"initial\.output_scale is 'deep' but must be one of depth"):
        read_recipe("paper", ("initial.output_scale=deep",))
    with pytest.raises(InputError, match=r"initial\.embedding_std is 0\.0 but must be above 0"):
        read_recipe("paper", ("initial.embedding_std=0",))
    with pytest.raises(InputError, match=r"order_from is 1\.0"):
        read_recipe("paper", ("growth.order_from=1",))
    with pytest.raises(InputError, match=r"order_grad_ratio is -1\.0"):
        read_recipe("paper", ("order_grad_ratio=-1",))


def test_keys_begin_as_the_queries(store):
    found = changed(store, "initial.keys=1.5")
    assert set(found) == {"encoder.attention.0.qkv.weight"}
    before, after = found["encoder.attention.0.qkv.weight"]
    width = before.shape[1]
    torch.testing.assert_close(after[:width], 1.5 * before[:width])
    assert torch.equal(after[:width], after[width : 2 * width])
    assert torch.equal(after[2 * width :], before[2 * width :])
