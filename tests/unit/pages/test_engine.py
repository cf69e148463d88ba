"""The engine of a page answers as the runtime in Python: the same ids, probabilities within 3e-4, for every kind."""

import numpy as np
import pytest

import litebert
from litebert.pages.single import write_page

pytestmark = pytest.mark.browser
NEAR = 3e-4
TEXTS = ["the cat sat on a mat .", "dog", "a cat and a dog ran far away !", "The MAT, unknown café", "the [MASK] sat"]
ROWS = {
    "choice": [
        {"question": "the cat", "options": ["sat", "ran away"]},
        {"question": "a _ ran", "options": ["dog", "mat", "."], "passage": "the cat sat on a mat"},
        {"question": "a", "options": ["dog", "far"], "passage": "the cat sat on a mat and ran far away on a mat " * 3},
    ],
    "span": [
        {"question": "the cat", "context": "a dog ran far away and the cat sat on a mat . " * 3},
        {"question": "a", "context": "Café dog, ran away"},
    ],
    "pairs": [{"premise": "the cat", "more": "sat", "hypothesis": "a dog"}],
}
KINDS = ["classify", "multilabel", "regress", "choice", "span", "answerable", "pairs"]


def rows_of(name: str):
    return ROWS["span" if name == "answerable" else name] if name in (*ROWS, "answerable") else TEXTS


def same(ours: dict, theirs) -> None:
    """One answer of the page beside one ``Prediction``."""
    if isinstance(theirs.label, float):
        assert ours["label"] == pytest.approx(theirs.label, abs=NEAR * max(1, abs(theirs.label)))
        return
    label = tuple(ours["label"]) if isinstance(ours["label"], list) else ours["label"]
    assert (label, ours.get("start"), ours.get("end")) == (theirs.label, theirs.start, theirs.end)
    assert ours.get("probability") == pytest.approx(theirs.probability, abs=NEAR)
    assert ours.get("probabilities", {}) == pytest.approx(dict(theirs.probabilities), abs=NEAR)


@pytest.mark.parametrize("depth", [None, 1])
@pytest.mark.parametrize("name", KINDS)
def test_predictions(name, depth, ask, models):
    rows = rows_of(name)
    found = ask("/predict", model=name, inputs=rows, depth=depth, truncate=True)
    for ours, theirs in zip(found["results"], models[name].predict(rows, depth=depth), strict=True):
        same(ours, theirs)


@pytest.mark.parametrize("rule", [True, 0.5, 2])
def test_early_exits(rule, ask, models):
    found = ask("/predict", model="exits", inputs=TEXTS, exits=rule)
    for ours, theirs in zip(found["results"], models["exits"].predict(TEXTS, exits=rule), strict=True):
        same(ours, theirs)
        assert 1 <= ours["depth"] <= 3


@pytest.mark.parametrize("name", ["plain", "unlike"])
def test_words_order_and_vectors(name, ask, models):
    model, depths = models[name], (None, 1, 4) if name == "plain" else (None,)
    for depth in depths:
        texts = ["the [MASK] sat", "a [MASK] and a [MASK] ."]
        results = ask("/fill", model=name, inputs=texts, top=4, depth=depth)["results"]
        for ours, theirs in zip(results, model.fill(texts, 4, depth=depth), strict=True):
            for one, other in zip(ours["masks"], theirs, strict=True):
                assert [guess["probability"] for guess in one] == pytest.approx(
                    [guess.probability for guess in other], abs=NEAR
                )
                assert [(g["id"], g["word"], g["token"]) for g in one] == [(g.id, g.word, g.token) for g in other]
        pairs = [("the cat", "sat on a mat"), ("dog", "ran")]
        shares = [one["in_order"] for one in ask("/order", model=name, inputs=pairs, depth=depth)["results"]]
        assert shares == pytest.approx(model.order(pairs, depth=depth), abs=NEAR)
        vectors = [one["embedding"] for one in ask("/v1/embeddings", model=name, input=TEXTS, depth=depth)["data"]]
        expected = model.encode(TEXTS, depth=depth)
        assert np.abs(np.array(vectors) - expected).max() < 2e-2 * np.abs(expected).max()  # of integers: a step or two


def test_what_cannot_be_answered_says_why(ask, opened):
    for route, body, message in (
        ("/fill", {"model": "classify", "inputs": "the [MASK]"}, "cannot answer fill"),
        ("/fill", {"model": "plain", "inputs": "the cat"}, r"no \[MASK\]"),
        ("/predict", {"model": "nobody", "inputs": "the"}, "no model 'nobody'"),
        ("/predict", {"model": "classify", "inputs": "the", "depth": 9}, "depth is 9"),
        ("/predict", {"model": "classify", "inputs": "the cat " * 30}, "longer than the model reads"),
        ("/predict", {"model": "pairs", "inputs": [{"premise": "the"}]}, "no more"),
        ("/predict", {"model": "classify", "inputs": "the", "exits": True}, "no early exits"),
    ):
        with pytest.raises(Exception, match=message):
            ask(route, **body)
    assert opened.errors == []


FILLED = ["The cat [MASK] on the mat.", "London is the [MASK] of England.", "Café — [MASK], “naïve” & 3½ €!"]
# Rounding to integers turns a difference in the last bit into one of 0.01 a few layers later (docs/page.md).
INTEGERS = {1: NEAR, 3: 0.03, 6: 0.03, 12: 0.03}


@pytest.mark.parametrize(
    ("bits", "near"), [(8, INTEGERS), pytest.param(32, dict.fromkeys(INTEGERS, NEAR), marks=pytest.mark.slow)]
)
def test_the_shipped_model(bits, near, browser, runtime, tmp_path):
    """litebert-en from disk without a network: ids, words and probabilities of Python at four depths; int8: 20 MB."""
    folder = litebert.load("litebert-en").export(tmp_path / "en", bits=bits, standard=False).folder
    made = write_page([("litebert-en", folder)], tmp_path / "page.html", runtime)
    assert bits == 32 or made.size <= 20_000_000
    model = litebert.Runtime(folder, activation_bits=8)
    page = browser.new_context(offline=True).new_page()
    page.goto(made.file.as_uri())
    page.wait_for_selector("#status:not(.busy)")
    for depth, distance in near.items():
        body = {"inputs": FILLED, "top": 5, "depth": depth}
        results = page.evaluate("body => page.client.send('/fill', body)", body)["results"]
        for ours, theirs in zip(results, model.fill(FILLED, 50, depth=depth), strict=True):
            expected = {guess.id: guess.probability for guess in theirs[0]}
            found = {guess["id"]: guess["probability"] for guess in ours["masks"][0]}
            assert next(iter(found)) == theirs[0][0].id
            assert found == pytest.approx({id: expected[id] for id in found}, abs=distance)
    tokens = page.evaluate("inputs => page.client.send('/tokenize', { inputs })", FILLED)["results"]
    assert [one["ids"] for one in tokens] == [model.tokenizer.encode(text).ids for text in FILLED]
    page.context.close()


@pytest.mark.slow
def test_the_last_bit_of_some_weights_changes_probabilities_in_python_as_well(tmp_path):
    """Why a page cannot be nearer than it is: a deep int8 model is as far from itself with a few last bits changed."""
    onnx = pytest.importorskip("onnx", reason="litebert[export] is not installed")
    folder = litebert.load("litebert-en").export(tmp_path / "en", standard=False).folder
    expected = litebert.Runtime(folder, activation_bits=8).fill(FILLED, 5)
    file = str(folder / "litebert.onnx")
    model = onnx.load(file)
    [norm] = [one for one in model.graph.initializer if one.name == "encoder.embeddings.norm.weight"]
    weights = onnx.numpy_helper.to_array(norm).copy()
    weights[::7] = np.nextafter(weights[::7], np.float32(10))
    norm.CopyFrom(onnx.numpy_helper.from_array(weights, norm.name))
    onnx.save(model, file)
    found = litebert.Runtime(folder, activation_bits=8).fill(FILLED, 50)
    far = [
        abs({g.id: g.probability for g in one[0]}[guess.id] - guess.probability)
        for one, other in zip(found, expected, strict=True)
        for guess in other[0]
    ]
    assert NEAR < max(far) < 0.03
