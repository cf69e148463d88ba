"""The leak check finds a leak that was put there and none where there is none."""

import dataclasses
import json

import numpy as np
import pytest
from scipy import sparse

from litebert.corpus.pairs import COLUMNS, DOCUMENT, LABEL, OTHER, SECOND_SIZE, SECOND_START, SIZE, START
from litebert.corpus.windows import Window, WindowPlan
from litebert.errors import InputError
from litebert_lab.leak import (
    BINS,
    OVERLAP,
    SEGMENTS,
    VERDICTS,
    Leak,
    classify,
    draw_folds,
    join_bags,
    make_bags,
)


def make_window(planted, *, count=3000, seed=0, pairs_a_document=4, own_words=0):
    """Pairs of random words; in a share ``planted`` of them word 7 is in x1 of swapped pairs or x2 of ordered ones.

    With ``own_words`` half of the words of a document are of so many of its own, all in its first halves or all in its
    second ones: neighbours then err together.
    """
    random = np.random.default_rng(seed)
    tokens = random.integers(10, 500, count * 20).astype(np.uint16)
    inputs = np.zeros((count, COLUMNS), np.int64)
    inputs[:, START], inputs[:, SIZE] = np.arange(count) * 20, 10
    inputs[:, SECOND_START], inputs[:, SECOND_SIZE] = np.arange(count) * 20 + 10, 10
    inputs[:, LABEL] = random.integers(0, 2, count)
    inputs[:, DOCUMENT] = inputs[:, OTHER] = np.arange(count) // pairs_a_document
    for row in inputs[random.random(count) < planted]:
        tokens[(row[START] if row[LABEL] else row[SECOND_START]) + 3] = 7
    if own_words:
        coins = random.integers(0, 2, count)
        for row in inputs:
            side = START if coins[row[DOCUMENT]] == row[LABEL] else SECOND_START
            tokens[row[side] : row[side] + 5] = (
                500 + row[DOCUMENT] % 20 * own_words + random.integers(own_words, size=5)
            )
    empty = np.zeros(0, np.int64)
    return Window(WindowPlan(empty, inputs, empty, empty), tokens, np.ones(len(tokens), np.uint8))


def bags_of(*windows, mirrored=True):
    return join_bags([make_bags(window, mirrored=mirrored, most=100_000) for window in windows])


@pytest.mark.parametrize("mirrored", [True, False])
def test_a_planted_leak_is_found(mirrored):
    leak = classify(bags_of(make_window(0.5), mirrored=mirrored))
    assert leak.num_pairs > (2999 if mirrored else 500)
    assert leak.accuracy > 0.68, "half of the pairs can be told, and half of the rest by luck"
    assert leak.verdict == "leaks"


def test_a_small_leak_is_found():
    """One pair in eight has a word that tells, which makes 56% of them right."""
    leak = classify(bags_of(*(make_window(0.12, count=8000, seed=seed) for seed in range(2))))
    assert 0.54 < leak.accuracy < 0.58
    assert leak.verdict == "leaks"


@pytest.mark.parametrize("mirrored", [True, False])
def test_no_leak_is_found_where_there_is_none(mirrored):
    leak = classify(bags_of(make_window(0.0, count=8000), make_window(0.0, seed=1, count=8000), mirrored=mirrored))
    assert abs(leak.accuracy - 0.5) < 4 * leak.standard_error
    assert leak.verdict == "tight" or not mirrored


def test_the_error_counts_documents():
    """Words that tell the order within a document only: chance decides by document, and the error must say so."""
    windows = [make_window(0.0, count=2000, seed=seed, pairs_a_document=40, own_words=10) for seed in range(10)]
    found = [classify(bags_of(window)) for window in windows]
    spread = np.std([leak.accuracy for leak in found])
    assert abs(np.mean([leak.accuracy for leak in found]) - 0.5) < 4 * spread / np.sqrt(10), "neither above nor below"
    assert spread > 3 * 0.5 / np.sqrt(2000), "far more than if pairs were independent"
    assert spread < 1.6 * np.mean([leak.standard_error for leak in found])


def test_the_swaps_of_sop_do_not_matter():
    """A pair and its mirror image are one to the classifier, so a coin less to err by."""
    bags = bags_of(make_window(0.2))
    coins = np.random.default_rng(1).integers(0, 2, len(bags.labels)).astype(np.int8)
    signs = sparse.diags(1.0 - 2 * coins)
    flipped = dataclasses.replace(bags, labels=bags.labels ^ coins, features=signs @ bags.features)
    assert classify(flipped).accuracy == pytest.approx(classify(bags).accuracy, abs=1e-3)


@pytest.mark.parametrize(("accuracy", "verdict"), [(0.56, "leaks"), (0.5, "tight"), (0.46, "tight"), (0.53, "unsure")])
def test_verdicts(accuracy, verdict):
    leak = Leak(accuracy=accuracy, standard_error=0.008, guess=0.5, num_pairs=1, num_documents=1)
    assert leak.verdict == verdict
    assert leak.leaks == (verdict == "leaks")


def test_features_are_the_words_of_each_segment():
    window = make_window(0.0, count=50)
    words = [
        [set(window.tokens[row[start] : row[start] + row[size]].tolist()) for start, size in SEGMENTS]
        for row in window.plan.inputs
    ]
    apart = bags_of(window, mirrored=True).features
    assert apart.nnz == sum(len(first ^ second) for first, second in words)  # no two words here have one hash
    assert (apart == 1).sum() == sum(len(first - second) for first, second in words)
    together = bags_of(window, mirrored=False).features
    assert together.shape[1] == 3 * BINS + 1
    shares = [OVERLAP * len(first & second) / len(first | second) for first, second in words]
    assert np.allclose(together[:, [-1]].toarray().ravel(), shares)


def test_documents_of_a_pair_are_never_on_both_sides():
    inputs = make_window(0.0).plan.inputs
    inputs[::2, OTHER] += 1
    folds = draw_folds(inputs, 0)
    for document in range(0, 700, 7):
        assert len(set(folds[inputs[:, DOCUMENT] == document, 0].tolist())) == 1
    same_side = (folds[:, 0] == folds[:, 1]).mean()
    assert 0.15 < same_side < 0.25
    assert (draw_folds(inputs, 1) != folds).any(), "another draw is another one"


def test_nothing_to_check_is_said():
    window = make_window(0.0)
    with pytest.raises(InputError, match="all of one document"):
        window.plan.inputs[:, DOCUMENT] = window.plan.inputs[:, OTHER] = 3
        classify(bags_of(window))
    window.plan.inputs[:, LABEL] = -100
    assert make_bags(window, mirrored=True, most=10) is None


def test_the_command_prints_a_verdict_and_writes_a_page(litebert_lab, store, tmp_path):
    words = ["leaks", store, "--length", 64]
    code, out, err = litebert_lab(*words, "--json", "--html", tmp_path / "page.html")
    assert code == 0, err
    found = json.loads(out)["leak"]
    assert found["verdict"] in VERDICTS and 0 < found["accuracy"] <= 1
    assert (tmp_path / "page.html").read_text().count("<svg") == 7
    code, out, _ = litebert_lab(*words)
    assert code == 0 and VERDICTS[found["verdict"]] in out
    assert litebert_lab("leaks", store, "--order", "none")[0] == 2
