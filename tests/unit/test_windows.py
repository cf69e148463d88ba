"""Texts that are longer than a model reads, in overlapping windows: torch models and exported ones."""

import itertools
import logging
from dataclasses import replace

import numpy as np
import pytest
import torch

import litebert
from litebert.errors import InputError
from litebert.model import Model
from litebert.nn.config import family_config
from litebert.nn.network import HeadsConfig, Network, NetworkConfig
from litebert.tasks.examples import TaskSpec
from litebert.text.tokenizer import overlapping
from litebert.text.tokenizer_files import read_tokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij"]
SIZES = {"vocab_size": len(WORDS), "width": 64, "num_layers": 2, "num_heads": 4, "feed_forward_width": 128}
LIMIT = 18  # sixteen words and two special tokens
SHORT, LONG = ["a b c", "d " * 16, "e"], ["a b c d e f g h " * 5, "j " * 17]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return read_tokenizer(folder, "albert")


def tuned(kind, tokenizer, **spec):
    torch.manual_seed(1)
    labels = ("no", "yes") if kind in ("classify", "multilabel") else ("score",)
    heads = HeadsConfig(names=({"choice": "choice", "span": "span"}.get(kind, "classify"),), labels=labels)
    network = Network(NetworkConfig(encoder=family_config({"max_positions": LIMIT, **SIZES}), heads=heads))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.2)
    task = TaskSpec(task="toy", kind=kind, labels=labels if kind != "regress" else (), length=LIMIT, **spec)
    return Model(network.eval(), tokenizer, task=task)


@pytest.fixture(scope="module", params=["torch", "exported"])
def classifier(request, tokenizer, tmp_path_factory):
    model = tuned("classify", tokenizer)
    if request.param == "torch":
        return model
    pytest.importorskip("onnxruntime", reason="litebert[runtime] is not installed")
    pytest.importorskip("onnx", reason="litebert[export] is not installed")
    folder = tmp_path_factory.mktemp("exported") / "model"
    model.export(folder, bits=32, standard=False)
    return litebert.load(folder)


@pytest.mark.parametrize(("tokens", "room"), [(17, 16), (40, 16), (1000, 509), (3, 2), (9, 1), (16, 16), (0, 16)])
def test_windows_are_full_overlap_and_cover_everything(tokens, room):
    found = overlapping(tokens, room)
    assert found[0][0] == 0 and found[-1][1] == tokens
    if tokens > room:
        assert all(end - begin == room for begin, end in found)
        assert all(after[0] <= before[1] - room // 4 for before, after in itertools.pairwise(found))
    else:
        assert found == [(0, tokens)]


def test_texts_that_fit_have_the_same_bits(classifier):
    assert classifier.predict(SHORT, windows=True) == classifier.predict(SHORT)
    np.testing.assert_array_equal(classifier.encode(SHORT, windows=True), classifier.encode(SHORT))


def test_a_long_text_has_the_mean_of_its_windows(classifier, tokenizer):
    text = LONG[0].split()
    parts = [" ".join(text[begin:end]) for begin, end in overlapping(len(text), LIMIT - 2)]
    assert len(parts) > 2
    shares = [one.probabilities for one in classifier.predict(parts)]
    margins = [np.log(one["yes"] / one["no"]) for one in shares]
    [found] = classifier.predict([LONG[0]], windows=True)
    margin = np.log(found.probabilities["yes"] / found.probabilities["no"])
    assert margin == pytest.approx(np.mean(margins), abs=1e-4)
    [cut] = classifier.predict([LONG[0]])
    assert cut.probabilities != found.probabilities
    vector = classifier.encode(LONG[0], windows=True)
    np.testing.assert_allclose(vector, classifier.encode(parts).mean(0), atol=1e-5)


def test_texts_of_all_lengths_come_in_their_order(classifier):
    mixed = [SHORT[0], LONG[0], SHORT[1], LONG[1], SHORT[2]]
    for one, text in zip(classifier.predict(mixed, windows=True), mixed, strict=True):
        [alone] = classifier.predict([text], windows=True)
        assert one.probabilities == pytest.approx(alone.probabilities, abs=1e-5)
    vectors = classifier.encode(mixed, windows=True, normalize=True)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_how_many_were_cut_or_read_in_windows_is_logged_once(classifier, caplog):
    texts = [*SHORT, *LONG]
    for call, words in (
        (lambda: classifier.predict(texts), "cut (windows reads all of them)"),
        (lambda: classifier.predict(texts, windows=True), "read in windows"),
        (lambda: classifier.encode(texts), "cut (max_length)"),
        (lambda: classifier.encode(texts, windows=True), "read in windows"),
        (lambda: classifier.encode(texts, max_length=18), "cut"),
        (lambda: classifier.evaluate([(text, "yes") for text in texts]), "cut (windows reads all of them)"),
    ):
        caplog.clear()
        with caplog.at_level(logging.INFO, "litebert"):
            call()
        said = [record.message for record in caplog.records if "longer than" in record.message]
        assert said == [f"2 of 5 texts are longer than 18 tokens and were {words}"]


def test_evaluation_counts_them(classifier):
    rows = [(text, "yes") for text in (*SHORT, *LONG)]
    cut, windows = classifier.evaluate(rows), classifier.evaluate(rows, windows=True)
    assert (cut.cut, cut.in_windows, windows.cut, windows.in_windows) == (2, 0, 0, 2)
    right = [one.label == "yes" for one in classifier.predict([text for text, _ in rows], windows=True)]
    assert windows.scores["accuracy"] == pytest.approx(np.mean(right))


def test_of_a_pair_the_longer_text_is_divided(tokenizer):
    first, second = list(range(5, 9)), list(range(5, 15)) * 4
    for texts in ((first, second), (second, first)):
        found = tokenizer.lay_out_windows(*texts, LIMIT)
        assert len(found) > 2 and all(len(one.ids) == LIMIT and not one.cut for one in found)
        kept = [one.ids[1:5] if texts[0] is first else one.ids[-5:-1] for one in found]
        assert kept == [first] * len(found)
    both = tokenizer.lay_out_windows(second, [*second, 5], LIMIT)  # neither fits beside the other
    assert all(len(one.ids) <= LIMIT for one in both) and len(both) > 4
    assert tokenizer.lay_out_windows(first, first, LIMIT) == [tokenizer.lay_out(first, first, LIMIT)]


@pytest.mark.parametrize("kind", ["multilabel", "regress"])
def test_other_kinds_of_texts(kind, tokenizer):
    model = tuned(kind, tokenizer)
    assert model.predict(SHORT, windows=True) == model.predict(SHORT)
    assert model.predict(LONG, windows=True) != model.predict(LONG)


@pytest.mark.parametrize("kind", ["choice", "span"])
def test_rows_are_not_read_in_windows(kind, tokenizer):
    row = {"question": "a", "options": ["b", "c"], "context": "d e f"}
    with pytest.raises(InputError, match="windows is for texts to label"):
        tuned(kind, tokenizer).predict(row, windows=True)


def test_a_lengthened_model_needs_no_windows(tokenizer, caplog):
    longer = tuned("classify", tokenizer).lengthened(64, attention="local(8)+global")
    assert longer.task == replace(tuned("classify", tokenizer).task, length=64) and longer.max_length == 64
    with caplog.at_level(logging.WARNING, "litebert"):
        assert longer.predict(LONG) == longer.predict(LONG, windows=True)
    assert not caplog.records
