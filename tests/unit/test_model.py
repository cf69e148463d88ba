"""The Python API on small models of our own: vectors, predictions, scores, gaps, saving, and what bad input gets."""

import json
import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch

import litebert
from litebert.errors import InputError
from litebert.model import Model
from litebert.nn.config import family_config
from litebert.nn.network import HeadsConfig, Network, NetworkConfig, pretraining_network
from litebert.tasks.encoding import token_batches
from litebert.tasks.examples import TaskSpec
from litebert.tasks.predicting import load_predictor
from litebert.text.tokenizer_files import read_tokenizer
from litebert.text_model import items_of

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "a", "mat", "and", "dog", "ran"]
WORDS += ["far", "away", ",", ".", "!"]
SIZES = {"vocab_size": len(WORDS), "width": 32, "num_layers": 3, "num_heads": 4, "feed_forward_width": 64}
TEXTS = ["the cat sat on a mat .", "dog", "a cat and a dog ran far away !", "the mat"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return read_tokenizer(folder, "bert")


def scrambled(net: Network) -> Network:
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.normal_(std=0.3)
    return net.eval()


def network(**fields) -> Network:
    torch.manual_seed(0)
    return scrambled(pretraining_network(family_config({"family": "bert", "max_positions": 24, **SIZES, **fields})))


@pytest.fixture
def model(tokenizer):
    return Model(network(), tokenizer)


LABELS = {"classify": ("no", "yes", "maybe"), "multilabel": ("animal", "place", "motion"), "regress": ("score",)}
HEADS = {"choice": "choice", "span": "span"}


def tuned(kind: str, tokenizer, *, answerable: bool = False, **spec) -> Model:
    """A model with random weights for a kind of task."""
    torch.manual_seed(1)
    heads = HeadsConfig(
        names=(HEADS.get(kind, "classify"),), labels=LABELS.get(kind, ("0", "1")), answerable=answerable
    )
    encoder = family_config({"family": "bert", "max_positions": 24, **SIZES})
    net = scrambled(Network(NetworkConfig(encoder=encoder, heads=heads)))
    labels = LABELS[kind] if kind in ("classify", "multilabel") else ()
    return Model(net, tokenizer, task=TaskSpec(task="toy", kind=kind, labels=labels, length=24, stride=8, **spec))


# States, vectors


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
    vectors = model.encode(TEXTS, batch_tokens=8)
    assert vectors.shape == (4, 32) and vectors.dtype == np.float32
    for text, vector in zip(TEXTS, vectors, strict=True):
        np.testing.assert_allclose(model.encode([text])[0], vector, atol=1e-5)
    assert not np.allclose(model.encode(["the cat"], ["a dog"]), model.encode(["the cat a dog"]))
    assert not np.allclose(model.encode(TEXTS[:1], depth=1), vectors[:1])
    assert model.encode([]).shape == (0, 32)


def test_encode_takes_a_string_and_any_iterable_of_strings(model):
    wanted = model.encode(TEXTS)
    for given in (
        tuple(TEXTS),
        (text for text in TEXTS),
        np.array(TEXTS),
        np.array(TEXTS, dtype=object),
        pandas.Series(TEXTS, index=[7, 3, 5, 1]),
    ):
        np.testing.assert_array_equal(model.encode(given), wanted)
    one = model.encode(TEXTS[0])
    assert one.shape == (32,)
    np.testing.assert_array_equal(one, model.encode(TEXTS[:1])[0])
    np.testing.assert_array_equal(model.encode(np.array(TEXTS)[0]), one)
    np.testing.assert_array_equal(model.encode("the cat", "a dog"), model.encode(["the cat"], ["a dog"])[0])


def test_more_texts_than_are_encoded_at_once(model, monkeypatch):
    wanted = model.encode(TEXTS * 3)
    monkeypatch.setattr("litebert.text_model.CHUNK", 5)
    np.testing.assert_allclose(model.encode(iter(TEXTS * 3)), wanted, atol=1e-5)


def test_pooling(model):
    ids = model.tokenizer.encode(TEXTS[0]).ids
    states = model.states([ids])[-1]
    np.testing.assert_allclose(model.encode(TEXTS[0], pooling="mean"), states.mean(0), atol=1e-5)
    np.testing.assert_allclose(model.encode(TEXTS[0], pooling="first"), states[0], atol=1e-5)
    pooled = model.network.pooled(states, model._pack([ids], None)[1]).detach()[0]
    np.testing.assert_allclose(model.encode(TEXTS[0], pooling="pooler"), pooled, atol=1e-5)
    np.testing.assert_array_equal(model.encode(TEXTS[0]), model.encode(TEXTS[0], pooling="mean"))
    mixed = model.encode(TEXTS, pooling="mean")
    for text, vector in zip(TEXTS, mixed, strict=True):
        np.testing.assert_allclose(model.encode(text, pooling="mean"), vector, atol=1e-5)
    with pytest.raises(InputError, match="no pooling 'max'"):
        model.encode(TEXTS, pooling="max")


def test_pooling_without_a_pooler(tokenizer):
    encoder = family_config({"family": "distilbert", "max_positions": 24, **SIZES})
    bare = Model(scrambled(Network(NetworkConfig(encoder=encoder, heads=HeadsConfig()))), tokenizer)
    assert np.isfinite(bare.encode(TEXTS)).all() and np.isfinite(bare.encode(TEXTS, pooling="first")).all()
    with pytest.raises(InputError, match="no pooler"):
        bare.encode(TEXTS, pooling="pooler")


def test_normalize_and_tensors(model):
    vectors = model.encode(TEXTS, normalize=True, as_tensor=True)
    assert isinstance(vectors, torch.Tensor) and not vectors.requires_grad
    torch.testing.assert_close(vectors.norm(dim=-1), torch.ones(4))
    np.testing.assert_allclose(vectors[1], model.encode(TEXTS[1], normalize=True), atol=1e-6)


def test_long_texts_are_cut_with_one_message(model, caplog):
    long = "the cat " * 50_000
    with caplog.at_level(logging.WARNING, "litebert"):
        vectors = model.encode([long, "dog", long])
    assert [record.message for record in caplog.records] == [
        "2 of 3 texts are longer than 24 tokens and were cut (max_length)"
    ]
    np.testing.assert_allclose(vectors[0], model.encode("the cat " * 11), atol=1e-5)
    caplog.clear()
    assert model.encode(["the cat " * 11]).shape == (1, 32) and not caplog.records
    short = model.encode(long, max_length=5)
    np.testing.assert_allclose(short, model.encode("the cat the"), atol=1e-5)
    for length, words in ((25, "max_length is 25 but the model has 24 positions"), (2, "max_length is 2")):
        with pytest.raises(InputError, match=words):
            model.encode(["the"], max_length=length)


def test_a_model_without_a_maximum_is_cut_too(tokenizer):
    fields = {"family": "xlnet", "positions": "relative", "max_positions": 0, "num_segments": 0}
    free = Model(network(**fields, embedding_norm=False, num_layers=1), tokenizer)
    long = "cat " * 1000
    np.testing.assert_allclose(free.encode(long), free.encode(long, max_length=512), atol=1e-5)
    assert not np.allclose(free.encode(long), free.encode(long, max_length=600), atol=1e-6)


@pytest.mark.parametrize("text", ["", " ", "🙂 👩‍👩‍👧", "\ud83d", "\x00"])
def test_odd_texts_have_vectors(text, model):
    assert np.isfinite(model.encode(text)).all() and np.isfinite(model.encode([text, "cat"])).all()


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["a", None], r"texts\[1\] is None"),
        (["a", "b", float("nan")], r"texts\[2\] is nan"),
        ([3], r"texts\[0\] is 3"),
        (["a", b"cat"], r"texts\[1\] is b'cat'"),
        (pandas.Series(["a", None]), r"texts\[1\] is (None|nan)"),
        (np.array([1.5, 2.0]), r"texts\[0\] is .*1.5"),
        ([["a", "b"]], r"texts\[0\] is \['a', 'b'\]"),
        (None, "texts is None"),
        (7, "texts is 7"),
        (b"cat", "texts is a bytes"),
        ({"text": "cat"}, "texts is a dict"),
        (pandas.DataFrame({"text": ["a"]}), "texts is a DataFrame"),
    ],
)
def test_what_is_no_text_is_named_with_its_index(texts, words, model, tokenizer):
    with pytest.raises(InputError, match=words):
        model.encode(texts)
    with pytest.raises(InputError, match=words):
        tuned("classify", tokenizer).predict(texts)


def test_progress_is_shown_where_asked_for(model, capsys, monkeypatch):
    model.encode(TEXTS)
    assert capsys.readouterr().err == ""
    from litebert import terminal

    terminal.console.cache_clear()
    model.encode(TEXTS, progress=True)
    assert "encoding texts" in capsys.readouterr().err
    terminal.console.cache_clear()


# Folders of sentence-transformers


def plant_sentence_files(folder: Path, mode: str, *, normalize: bool = False, length: int | None = None) -> None:
    (folder / "1_Pooling").mkdir()
    modes = {f"pooling_mode_{name}_tokens": name == mode for name in ("mean", "max")}
    modes["pooling_mode_cls_token"] = mode == "cls"
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **modes}))
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    modules = [{"idx": n, "type": f"sentence_transformers.models.{kind}"} for n, kind in enumerate(kinds)]
    (folder / "modules.json").write_text(json.dumps(modules))
    if length:
        (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length}))


def test_a_sentence_transformers_folder_keeps_its_own_pooling_and_length(model, tmp_path, caplog):
    model.save(tmp_path / "s")
    plant_sentence_files(tmp_path / "s", "mean", normalize=True, length=6)
    own = litebert.load(tmp_path / "s", device="cpu")
    wanted = model.encode(TEXTS, pooling="mean", normalize=True, max_length=6)
    np.testing.assert_allclose(own.encode(TEXTS), wanted, atol=1e-6)
    assert "2 of 4 texts are longer than 6 tokens" in caplog.text
    np.testing.assert_allclose(
        own.encode(TEXTS, normalize=False, pooling="first", max_length=24)[0],
        own.encode(TEXTS, normalize=False, pooling="first", max_length=20)[0],
        atol=1e-6,
    )
    own.save(tmp_path / "again")
    np.testing.assert_array_equal(litebert.load(tmp_path / "again", device="cpu").encode(TEXTS), own.encode(TEXTS))


def test_first_token_pooling_and_pooling_we_lack(model, tmp_path):
    for mode in ("cls", "max"):
        model.save(tmp_path / mode)
        plant_sentence_files(tmp_path / mode, mode)
    own = litebert.load(tmp_path / "cls", device="cpu")
    np.testing.assert_array_equal(own.encode(TEXTS), model.encode(TEXTS, pooling="first"))
    assert own.notes == []
    assert "pools by max_tokens" in litebert.load(tmp_path / "max", device="cpu").notes[0]


# Predictions


def test_classify(tokenizer):
    model = tuned("classify", tokenizer)
    found = model.predict(TEXTS)
    assert [one.label for one in found] == [model.predict(text).label for text in TEXTS]
    for one in found:
        assert list(one.probabilities) == ["no", "yes", "maybe"] and sum(one.probabilities.values()) == pytest.approx(1)
        assert one.probability == max(one.probabilities.values()) == one.probabilities[one.label]
    assert model.labels == ("no", "yes", "maybe")
    text = repr(found[0])
    assert text.startswith(f"Prediction(label='{found[0].label}', probability=") and "start" not in text
    assert isinstance(found[0], litebert.Prediction) and model.predict([]) == []
    deeper = [one.probability for one in model.predict(iter(TEXTS), depth=1)]
    assert deeper != [one.probability for one in found]
    assert deeper == [one.probability for one in model.at_depth(1).predict(TEXTS)]


def test_pairs_as_an_argument_or_as_tuples(tokenizer):
    model = tuned("classify", tokenizer, pairs=True)
    seconds = TEXTS[::-1]
    found = model.predict(TEXTS, seconds)
    assert model.predict(list(zip(TEXTS, seconds, strict=True))) == found
    assert model.predict(TEXTS[0], seconds[0]).label == found[0].label
    for call in (lambda: model.predict(TEXTS), lambda: model.predict("cat")):
        with pytest.raises(InputError, match="reads pairs"):
            call()
    with pytest.raises(InputError, match="4 texts but 1 pairs"):
        model.predict(TEXTS, ["cat"])


def test_labelled_rows_are_not_taken_for_pairs(tokenizer):
    model = tuned("classify", tokenizer, text=("body",))
    with pytest.raises(InputError, match="single texts"):
        model.predict([("the cat", "cat"), ("a dog", "dog")])
    with pytest.raises(InputError, match="single texts"):
        model.predict("the cat", "a dog")


def test_rows_with_the_columns_of_training(tokenizer):
    joined = tuned("classify", tokenizer, text=("subject+body",))
    rows = [{"subject": "the cat", "body": " sat ", "id": 7}, {"subject": None, "body": "a dog", "id": 8}]
    wanted = joined.predict(["the cat\nsat", "a dog"])
    assert joined.predict(rows) == joined.predict(pandas.DataFrame(rows)) == wanted
    assert joined.predict(rows[0]).label == wanted[0].label
    pair = tuned("classify", tokenizer, text=("subject", "body"), pairs=True)
    assert pair.predict(rows) == pair.predict(["the cat", ""], ["sat", "a dog"])
    with pytest.raises(InputError, match="row 1: the row has no column subject"):
        joined.predict([rows[0], {"body": "x"}])
    with pytest.raises(InputError, match="leave out pairs"):
        joined.predict(rows, ["a", "b"])


def test_several_labels_and_numbers(tokenizer):
    many = tuned("multilabel", tokenizer).predict(TEXTS)
    for one in many:
        assert one.label == tuple(name for name, share in one.probabilities.items() if share > 0.5)
        assert one.probability is None and "probability=" not in repr(one)
    number = tuned("regress", tokenizer).predict("the cat")
    assert isinstance(number.label, float) and repr(number) == f"Prediction(label={number.label!r})"


def test_options(tokenizer):
    model = tuned("choice", tokenizer)
    row = {"passage": "the cat sat .", "question": "a cat", "options": ["ran away", "sat", "and"]}
    one = model.predict(row)
    assert one.label in row["options"] and list(one.probabilities) == row["options"]
    assert sum(one.probabilities.values()) == pytest.approx(1) and one.probability == one.probabilities[one.label]
    bare = {"question": "a cat", "options": ("ran", "sat")}
    assert [found.label for found in model.predict([row, bare])] == [one.label, model.predict(bare).label]
    table = pandas.DataFrame([row, row])
    assert [found.label for found in model.predict(table)] == [one.label, one.label]
    for given, words in (
        ([row, {"question": "a"}], "row 1: the options are None"),
        ({"options": ["a", "b"]}, "needs a question and a list of options"),
        (["text"], "'text' is a str"),
    ):
        with pytest.raises(InputError, match=words):
            model.predict(given)


def test_spans(tokenizer):
    model = tuned("span", tokenizer)
    row = {"question": "the cat", "context": "a dog ran far away , and the cat sat on the mat . " * 3}
    one = model.predict(row)
    assert one.label and row["context"][one.start : one.end] == one.label and 0 < one.probability <= 1
    assert f"start={one.start}" in repr(one) and "probabilities" not in repr(one)
    with pytest.raises(InputError, match="row 1: the row has question but needs a question and a context"):
        model.predict([row, {"question": "a"}])
    none = tuned("span", tokenizer, answerable=True, has_null=True, null_threshold=-1e9).predict(row)
    assert none.label == "" and none.start is None and 0 < none.probability <= 1


@pytest.mark.parametrize("kind", ["classify", "multilabel", "regress", "choice", "span"])
def test_a_fine_tuned_model_is_saved_with_its_task(kind, tokenizer, tmp_path):
    model = tuned(kind, tokenizer)
    rows = {
        "choice": [{"question": "the", "options": ["cat", "dog"]}],
        "span": [{"question": "the", "context": "cat sat on a mat"}],
    }.get(kind, TEXTS)
    model.save(tmp_path / "tuned")
    again = litebert.load(tmp_path / "tuned", device="cpu")
    assert again.task == model.task and again.predict(rows) == model.predict(rows)
    low = load_predictor(tmp_path / "tuned", device="cpu")
    items, _ = items_of(rows, None, again.task)
    assert [one.label for one in low.predict(items)] == [one.label for one in again.predictor().predict(items)]


def test_a_head_without_a_task_file_predicts(tokenizer, tmp_path):
    model = tuned("classify", tokenizer)
    model.save(tmp_path / "tuned")
    (tmp_path / "tuned" / "task.json").unlink()
    again = litebert.load(tmp_path / "tuned", device="cpu")
    assert again.labels == ("no", "yes", "maybe")
    assert [one.label for one in again.predict(TEXTS)] == [one.label for one in model.predict(TEXTS)]


def test_a_model_without_a_head_says_to_fine_tune_first(model, tmp_path):
    assert model.task is None and model.labels == ()
    for call in (lambda: model.predict("cat"), lambda: model.evaluate(tmp_path / "x.csv")):
        with pytest.raises(InputError, match="fine-tune it first"):
            call()


# Scores


@pytest.fixture
def reviews(tmp_path):
    rows = [f"{text},{label}" for text, label in zip(TEXTS * 5, ["no", "yes", "maybe", "yes", "no"] * 4, strict=True)]
    (tmp_path / "reviews.csv").write_text("\n".join(["body,verdict", *rows]).replace(" , ", " ") + "\n")
    return tmp_path / "reviews.csv"


def test_evaluate(tokenizer, reviews):
    model = tuned("classify", tokenizer, text=("body",), label="verdict")
    found = model.evaluate(reviews)
    rows = [line.split(",") for line in reviews.read_text().splitlines()[1:]]
    predicted = [one.label for one in model.predict([text for text, _ in rows])]
    right = [guess == label for guess, (_, label) in zip(predicted, rows, strict=True)]
    assert list(found.scores) == ["accuracy", "macro_f1", "matthews"]
    assert found.scores["accuracy"] == pytest.approx(np.mean(right))
    table = np.array(found.confusion)
    assert table.sum() == 20 and found.labels == ("no", "yes", "maybe")
    assert table.trace() == sum(right) and table.sum(1).tolist() == [8, 8, 4]
    assert found.per_label["maybe"].count == 4 and set(found.per_label) == {"no", "yes", "maybe"}
    assert found.hardest and found.hardest[0].expected != found.hardest[0].predicted
    assert str(found).startswith("reviews: accuracy")
    named = model.evaluate(str(reviews), text="body", label="verdict", depths=[1, 3])
    assert named.scores == found.scores and [row.depth for row in named.depths] == [1, 3]
    assert named.depths[1].metrics == found.scores
    assert model.at_depth(1).evaluate(reviews).scores == named.depths[0].metrics
    assert model.evaluate(reviews, depth=1).scores == named.depths[0].metrics


def test_evaluate_another_kind_of_data(tokenizer, reviews):
    model = tuned("classify", tokenizer)
    reviews.write_text("text,label\nthe cat,yes\na dog,none\n")
    with pytest.raises(InputError, match="none"):
        model.evaluate(reviews)


# Gaps


def test_fill_gives_the_likeliest_words(model):
    guesses = model.fill("the cat [MASK] on a mat", top=3)
    assert len(guesses) == 3
    assert [g.probability for g in guesses] == sorted((g.probability for g in guesses), reverse=True)
    assert all(g.token == WORDS[g.id] for g in guesses)
    both = model.fill("the [MASK] sat [MASK]", top=2)
    assert len(both) == 2 and len(both[0]) == 2
    everything = model.fill("[MASK]", top=1000)
    assert len(everything) == len(WORDS) and abs(sum(g.probability for g in everything) - 1) < 1e-4
    assert model.fill(iter(["a [MASK]"])) == [[model.fill("a [MASK]")]]
    assert model.at_depth(1).fill("a [MASK]") == model.fill("a [MASK]", depth=1) != model.fill("a [MASK]")


def test_fill_of_a_permutation_model_looks_past_the_gap(tokenizer):
    net = network(family="xlnet", positions="relative", max_positions=0, num_segments=0, embedding_norm=False)
    model = Model(net, tokenizer)
    one, other = (model.fill("the cat [MASK] on", top=3, depth=depth) for depth in (2, 3))
    assert one != other and all(0 < g.probability < 1 for g in one)


def test_a_pair_and_its_reverse_add_up_to_one(model):
    forward, back = model.order(iter([(TEXTS[0], TEXTS[1]), (TEXTS[1], TEXTS[0])]))
    assert forward + back == pytest.approx(1) and model.order([]) == []


# Other models from one


def test_saved_and_loaded_is_the_same_model(model, tmp_path):
    texts = ["the cat sat", "a dog ran far away"]
    for _ in range(2):  # a second time into the same folder
        model.save(tmp_path / "saved")
    (tmp_path / "saved" / "notes.txt").write_text("mine")
    model.save(tmp_path / "saved")
    assert (tmp_path / "saved" / "notes.txt").read_text() == "mine"
    again = litebert.load(tmp_path / "saved", device="cpu")
    assert again.config == model.config
    np.testing.assert_array_equal(again.encode(texts), model.encode(texts))
    assert again.fill("a [MASK]") == model.fill("a [MASK]")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_drop_by_number_and_by_strategy(tokenizer, tmp_path):
    model = tuned("classify", tokenizer)
    small = model.drop(layers=3)
    assert small.config.num_layers == 2 and model.config.num_layers == 3
    np.testing.assert_allclose(small.encode(TEXTS), model.encode(TEXTS, depth=2), atol=1e-6)
    assert small.predict(TEXTS) == model.predict(TEXTS, depth=2) == model.drop(count=1).predict(TEXTS)
    assert model.drop(layers=[1, 3]).config.num_layers == 1
    lowest = model.drop(strategy="bottom", count=1)
    assert lowest.predict(TEXTS) == model.drop(layers=[1]).predict(TEXTS) != small.predict(TEXTS)
    lowest.save(tmp_path / "lowest")
    assert litebert.load(tmp_path / "lowest", device="cpu").predict(TEXTS) == lowest.predict(TEXTS)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({}, "layers .* or count"),
        ({"layers": [1], "count": 1}, "layers .* or count"),
        ({"layers": [1], "strategy": "top"}, "leave out strategy"),
        ({"layers": [4]}, "layer 4; .* of the layers 1 to 3"),
        ({"layers": []}, "no layer"),
        ({"layers": [1, 2, 3]}, "all layers"),
        ({"count": 3}, "leaves nothing"),
        ({"count": 1, "strategy": "tap"}, "did you mean 'top'"),
        ({"count": 1, "strategy": "greedy"}, "strategy greedy needs texts"),
    ],
)
def test_layers_that_cannot_be_dropped(how, words, model):
    with pytest.raises(InputError, match=words):
        model.drop(**how)


def test_at_depth_is_the_default_of_every_call(model, tmp_path):
    low = model.at_depth(2)
    np.testing.assert_array_equal(low.encode(TEXTS), model.encode(TEXTS, depth=2))
    np.testing.assert_array_equal(low.encode(TEXTS, depth=3), model.encode(TEXTS))
    pair = [(TEXTS[0], TEXTS[1])]
    assert low.order(pair) == model.order(pair, depth=2) and len(low.states([[2, 3]])) == 3
    assert low.network is model.network and model.depth is None
    low.save(tmp_path / "low")
    again = litebert.load(tmp_path / "low", device="cpu")
    assert again.config.num_layers == 2
    np.testing.assert_allclose(again.encode(TEXTS), low.encode(TEXTS), atol=1e-6)
    model.save(tmp_path / "whole")
    shallow = litebert.load(tmp_path / "whole", device="cpu", depth=2)
    np.testing.assert_array_equal(shallow.encode(TEXTS), low.encode(TEXTS))
    for depth in (0, 4):
        with pytest.raises(InputError, match=f"depth is {depth} but"):
            model.at_depth(depth)


def test_dtype_and_half(model, tmp_path):
    model.save(tmp_path / "saved")
    half = litebert.load(tmp_path / "saved", device="cpu", dtype="bfloat16")
    assert half.states([[2, 5, 3]])[-1].dtype == torch.bfloat16
    assert np.abs(half.encode(["the cat"]) - model.encode(["the cat"])).max() < 0.2
    half.save(tmp_path / "half")
    assert litebert.load(tmp_path / "half", device="cpu").encode(["the cat"]).dtype == np.float32
    wide = litebert.load(tmp_path / "saved", device="cpu", dtype=torch.float64)
    np.testing.assert_allclose(wide.encode(TEXTS), model.encode(TEXTS), atol=1e-4)
    np.testing.assert_array_equal(
        litebert.load(tmp_path / "saved", device="cpu").half().encode("the cat"), half.encode("the cat")
    )


def test_half_of_a_fine_tuned_model_predicts(tokenizer):
    whole, half = tuned("classify", tokenizer), tuned("classify", tokenizer).half()
    for one, other in zip(whole.predict(TEXTS), half.predict(TEXTS), strict=True):
        assert abs(one.probabilities["yes"] - other.probabilities["yes"]) < 0.1


@pytest.mark.slow
def test_compiled_gives_the_same(tokenizer):
    plain = tuned("classify", tokenizer)
    compiled = tuned("classify", tokenizer).compile()
    for texts in (TEXTS, TEXTS[:2], TEXTS * 3):
        np.testing.assert_allclose(compiled.encode(texts), plain.encode(texts), atol=1e-4)
    assert [one.label for one in compiled.predict(TEXTS)] == [one.label for one in plain.predict(TEXTS)]


def test_devices(model, tmp_path):
    assert model.to("cpu") is model and model.device.type == "cpu"
    model.save(tmp_path / "m")
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert litebert.load(tmp_path / "m").device.type == expected
    with pytest.raises(InputError, match="device is 'gpu'"):
        litebert.load(tmp_path / "m", device="gpu")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="no CUDA device"):
            model.to("cuda")


def test_threads_get_what_one_gets(tokenizer):
    model = tuned("classify", tokenizer)
    texts = [f"{a} {b}" for a in TEXTS for b in TEXTS]
    vectors, answers = model.encode(texts), model.predict(texts)
    single = [model.predict(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        found = (
            [pool.submit(model.encode, texts) for _ in range(8)],
            [pool.submit(model.predict, texts) for _ in range(8)],
        )
        each = list(pool.map(model.predict, texts))
        for future in found[0]:
            np.testing.assert_array_equal(future.result(), vectors)
        assert all(future.result() == answers for future in found[1]) and each == single
    assert not model.network.training


def test_a_network_in_training_predicts_without_dropout_and_goes_on_training(tokenizer):
    model = tuned("classify", tokenizer)
    wanted = model.predict(TEXTS)
    model.network.train()
    assert model.predict(TEXTS) == wanted and model.network.training


# Loading


def test_a_preset_has_new_weights_and_no_tokenizer(caplog):
    model = litebert.load("albert-tiny", device="cpu")
    assert "its weights are new" in caplog.text and model.notes == ["albert-tiny is a preset: its weights are new"]
    assert model.states([[2, 10, 3]])[-1].shape == (3, 128)
    with pytest.raises(InputError, match="no tokenizer"):
        model.encode(["text"])


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    """An empty cache of the Hub, and no way to it."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache"


def plant(cache: Path, name: str, model: Model) -> None:
    folder = cache / f"models--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("0" * 40)
    model.save(folder / "snapshots" / ("0" * 40))


def test_hub_names_are_read_from_the_cache_without_network(hub_cache, tokenizer):
    model = tuned("classify", tokenizer)
    plant(hub_cache, "someone/cats", model)
    loaded = litebert.load("someone/cats", device="cpu")
    assert loaded.predict(TEXTS) == model.predict(TEXTS) and loaded.name == "someone/cats"
    with pytest.raises(InputError, match=r"no folder 'someone/dogs'.*Hub"):
        litebert.load("someone/dogs")


def test_folders_win_over_hub_names(hub_cache, tokenizer):
    plant(hub_cache, "someone/cats", tuned("classify", tokenizer))
    Model(network(num_layers=1), tokenizer).save(Path("someone") / "cats")
    assert litebert.load("someone/cats", device="cpu").config.num_layers == 1


def test_presets_and_shipped_names_win_over_hub_names(hub_cache, tokenizer):
    plant(hub_cache, "albert-tiny", tuned("classify", tokenizer))
    assert litebert.load("albert-tiny", device="cpu").config.family == "albert"
    assert litebert.load("litebert-en", device="cpu").tokenizer is not None


def test_the_hub_without_its_library_names_the_extra(hub_cache, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"litebert\[hub\]"):
        litebert.load("someone/cats")


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
        (lambda m: m.states([[2, 3]], depth=9), "depth is 9"),
        (lambda m: m.fill("a [MASK]", depth=9), "depth is 9"),
        (lambda m: m.order([("a", "b")], depth=-1), "depth is -1"),
        (lambda m: m.at_depth("2"), "depth is '2' but must be a whole number from 1 to 3"),
        (lambda m: m.at_depth(0), "depth is 0"),
        (lambda m: m.encode(["the"], max_length="8"), "max_length is '8'"),
        (lambda m: m.order([("a", "b"), ("a", None)]), "pairs\\[1\\] is .*None"),
        (lambda m: m.order([3]), "pairs\\[0\\] is 3"),
        (lambda m: m.order("a b"), "pairs\\[0\\] is 'a'"),
        (lambda m: litebert.load(None), "source is missing"),
        (lambda m: litebert.load(7), "source is 7"),
        (lambda m: m.encode(["the"], depth=9), "depth is 9"),
        (lambda m: m.encode(["the"], ["a", "b"]), "1 texts but 2 pairs"),
        (lambda m: m.fill("the cat"), "no \\[MASK\\] in the text"),
        (lambda m: m.fill("the [MASK]", top=0), "top is 0"),
        (lambda m: m.order(["a b"]), "pairs\\[0\\] is 'a b'"),
        (lambda m: litebert.load("albert-tiny", dtype="float3"), "did you mean 'float32'"),
        (lambda m: litebert.load("albert-tny"), "did you mean 'albert-tiny'"),
        (lambda m: litebert.load("./none"), "no folder"),
    ],
)
def test_bad_input_gets_a_sentence(call, words, model):
    with pytest.raises(InputError, match=words):
        call(model)


def test_a_model_shows_what_it_is(tokenizer):
    text = repr(tuned("classify", tokenizer))
    assert "family='bert'" in text and "layers=3" in text and "task='toy'" in text and "depth" not in text
    assert "depth=2" in repr(tuned("classify", tokenizer).at_depth(2))


def test_the_public_names_are_listed_and_all_there():
    assert set(dir(litebert)) >= set(litebert.__all__) and {"load", "Model", "Prediction"} <= set(dir(litebert))
    assert all(getattr(litebert, name) is not None for name in litebert.__all__)
    with pytest.raises(AttributeError, match="lod"):
        litebert.lod  # noqa: B018


def test_token_batches_hold_everything_once_within_the_budget():
    lengths = [5, 1, 9, 3, 3, 20, 1]
    batches = token_batches(lengths, 10)
    assert sorted(i for batch in batches for i in batch) == list(range(7))
    assert all(sum(lengths[i] for i in batch) <= 10 or len(batch) == 1 for batch in batches)
    assert token_batches([], 10) == []
