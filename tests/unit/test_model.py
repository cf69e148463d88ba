"""The Python API on a small model of our own: states, vectors, gaps, saving, and what is said about bad input."""

import numpy as np
import pytest
import torch

import litebert
from litebert.errors import InputError
from litebert.model import Model
from litebert.nn.families import family_config
from litebert.nn.network import pretraining_network
from litebert.tasks.batches import token_batches
from litebert.text.tokenizers import read_tokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "a", "mat", "and", "dog", "ran"]
WORDS += ["far", "away", ",", ".", "!"]


@pytest.fixture
def tokenizer(tmp_path):
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return read_tokenizer(tmp_path / "words", "bert")


def network(**fields):
    torch.manual_seed(0)
    sizes = {"vocab_size": len(WORDS), "width": 32, "num_layers": 3, "num_heads": 4, "feed_forward_width": 64}
    net = pretraining_network(family_config({"family": "bert", "max_positions": 24, **sizes, **fields})).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(std=0.3)
    return net


@pytest.fixture
def model(tokenizer):
    return Model(network(), tokenizer)


def test_states_are_packed_one_tensor_a_depth(model):
    ids = [[2, 5, 6, 3], [2, 7, 3]]
    states = model.states(ids)
    assert len(states) == 4 and all(x.shape == (7, 32) and not x.requires_grad for x in states)
    alone = model.states([ids[1]])
    for a, b in zip(states, alone, strict=True):
        torch.testing.assert_close(a[4:], b)
    assert len(model.states(ids, depth=2)) == 3
    other = model.states(ids, segments=[[0, 0, 1, 1], [0, 0, 1]])
    assert not torch.allclose(other[-1], states[-1])


def test_encode_keeps_the_order_of_the_texts(model):
    texts = ["the cat sat on a mat .", "dog", "a cat and a dog ran far away !", "the mat"]
    vectors = model.encode(texts, batch_tokens=8)
    assert vectors.shape == (4, 32) and vectors.dtype == np.float32
    for text, vector in zip(texts, vectors, strict=True):
        np.testing.assert_allclose(model.encode([text])[0], vector, atol=1e-5)
    assert not np.allclose(model.encode(["the cat"], ["a dog"]), model.encode(["the cat a dog"]))
    assert not np.allclose(model.encode(texts[:1], depth=1), vectors[:1])
    assert model.encode([]).shape == (0, 32)


def test_fill_gives_the_likeliest_words(model):
    guesses = model.fill("the cat [MASK] on a mat", top=3)
    assert len(guesses) == 3
    assert [g.probability for g in guesses] == sorted((g.probability for g in guesses), reverse=True)
    assert all(g.token == WORDS[g.id] for g in guesses)
    both = model.fill("the [MASK] sat [MASK]", top=2)
    assert len(both) == 2 and len(both[0]) == 2
    everything = model.fill("[MASK]", top=1000)
    assert len(everything) == len(WORDS) and abs(sum(g.probability for g in everything) - 1) < 1e-4


def test_fill_of_a_permutation_model_looks_past_the_gap(tokenizer):
    net = network(family="xlnet", positions="relative", max_positions=0, num_segments=0, embedding_norm=False)
    model = Model(net, tokenizer)
    one, other = (model.fill("the cat [MASK] on", top=3, depth=depth) for depth in (2, 3))
    assert one != other and all(0 < g.probability < 1 for g in one)


def test_saved_and_loaded_is_the_same_model(model, tmp_path):
    texts = ["the cat sat", "a dog ran far away"]
    for _ in range(2):  # a second time into the same folder
        model.save(tmp_path / "saved")
    (tmp_path / "saved" / "notes.txt").write_text("mine")
    model.save(tmp_path / "saved")
    assert (tmp_path / "saved" / "notes.txt").read_text() == "mine"
    again = litebert.load(tmp_path / "saved")
    assert again.config == model.config
    np.testing.assert_array_equal(again.encode(texts), model.encode(texts))
    assert again.fill("a [MASK]") == model.fill("a [MASK]")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_dtype(model, tmp_path):
    model.save(tmp_path / "saved")
    half = litebert.load(tmp_path / "saved", dtype="bfloat16")
    assert half.states([[2, 5, 3]])[-1].dtype == torch.bfloat16
    assert np.abs(half.encode(["the cat"]) - model.encode(["the cat"])).max() < 0.2
    half.save(tmp_path / "half")
    assert litebert.load(tmp_path / "half").encode(["the cat"]).dtype == np.float32


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.states([[2, 99, 3]]), "id 99 is outside the vocabulary of 19"),
        (lambda m: m.states([[2, -1, 3]]), "id -1 is outside"),
        (lambda m: m.states([[2] * 25]), "sequence 0 has 25 tokens but the model has 24 positions"),
        (lambda m: m.states([[2], []]), "sequence 1 is empty"),
        (lambda m: m.states([]), "no sequences"),
        (lambda m: m.states([[2, 3]], segments=[[0]]), "differ in length"),
        (lambda m: m.states([[2, 3]], segments=[[0, 5]]), "segment 5 is outside the model's 2 segments"),
        (lambda m: m.states([[2, 3]], depth=9), "depths 0 to 3"),
        (lambda m: m.encode("the cat"), "list of texts"),
        (lambda m: m.encode(["the"], ["a", "b"]), "1 texts but 2 pairs"),
        (lambda m: m.encode(["the cat " * 20]), "cut it \\(max_length=24\\)"),
        (lambda m: m.fill("the cat"), "no \\[MASK\\] in the text"),
        (lambda m: litebert.load("albert-tiny", dtype="float3"), "did you mean 'float32'"),
        (lambda m: litebert.load("albert-tny"), "did you mean 'albert-tiny'"),
    ],
)
def test_bad_input_gets_a_sentence(call, words, model):
    with pytest.raises(InputError, match=words):
        call(model)


def test_max_length_cuts(model):
    assert model.encode(["the cat " * 20], max_length=24).shape == (1, 32)


def test_a_preset_has_new_weights_and_no_tokenizer():
    with pytest.warns(UserWarning, match="its weights are new"):
        model = litebert.load("albert-tiny")
    assert model.states([[2, 10, 3]])[-1].shape == (3, 128)
    with pytest.raises(InputError, match="no tokenizer"):
        model.encode(["text"])


def test_token_batches_hold_everything_once_within_the_budget():
    lengths = [5, 1, 9, 3, 3, 20, 1]
    batches = token_batches(lengths, 10)
    assert sorted(i for batch in batches for i in batch) == list(range(7))
    assert all(sum(lengths[i] for i in batch) <= 10 or len(batch) == 1 for batch in batches)
    assert token_batches([], 10) == []
