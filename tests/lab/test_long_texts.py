"""Texts put together from public data: labels, lengths, what they end on; and how readings are compared."""

import random
import tarfile

import numpy as np
import pytest

from litebert.tasks.examples import Prediction
from litebert_lab.cli import _write_report
from litebert_lab.long_texts import AGREEING, HESITANT, Reading, _text, _verdicts, compare_readings, long_rows

QUOTATIONS = (["Bad."], ["Good."])
STORIES = [["It rained.", "They went home.", "Nobody knew why."]]


def quotations(text):
    return [word == "Good." for word in text.split() if word in ("Good.", "Bad.")]


def test_a_text_ends_on_its_label():
    draw = random.Random(0)
    early = []
    for number in range(200):
        label = number % 2
        found = quotations(_text(draw, QUOTATIONS, STORIES, label, 12))
        assert len(found) == 12 and all(one == bool(label) for one in found[8:])
        early += [one == bool(label) for one in found[: int(HESITANT * 11)]]
    assert np.mean(early) == pytest.approx(AGREEING, abs=0.05)


@pytest.mark.shared
def test_rows_are_a_function_of_the_data(shared_data, tmp_path):
    with tarfile.open(shared_data / "race.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    corpus = shared_data / "corpus"
    data = corpus / "en-wiki.txt.xz", corpus / "en-books.txt.xz", tmp_path / "race"
    rows = long_rows(*data, 40, split="dev")
    assert rows == long_rows(*data, 40, split="dev")
    assert {label for _, label in rows} == {"encyclopedia", "novel"}
    sizes = sorted(len(text.split()) for text, _ in rows)
    assert sizes[0] < 200 and sizes[-1] > 800


def test_verdicts():
    cut = Reading("cut", (0.9, 0.9, 0.8, 0.7, 0.6), 0.78)
    windows = Reading("windows", (0.9, 0.9, 0.9, 0.8, 0.8), 0.86)
    longer = Reading("long", (0.9, 0.9, 0.9, 0.9, 0.88), 0.9)
    found = _verdicts(cut, windows, longer)
    assert "2.0 points below the shortest (within 3)" in found[0]
    assert "give back 67% of the 30.0 points" in found[1]
    assert "cutting loses nothing" in _verdicts(Reading("cut", (0.8,) * 5, 0.8), windows, longer)[1]


class Reader:
    """Reads the last word of a text, or in windows the first one."""

    asked = 0

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def predict(self, texts, *, windows):
        Reader.asked += 1
        return [Prediction(label=text.split()[0 if windows else -1]) for text in texts]


def test_the_same_call_again_scores_nothing_anew(letter_tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr("litebert_lab.long_texts._tuned", lambda *_: Reader(letter_tokenizer()))
    rows = [("cat sat", "sat"), ("dog sat", "dog"), ("cat cat", "cat"), ("a mat", "mat"), ("on mat", "on")]
    first = compare_readings("short", "long", rows, rows, tmp_path)
    assert [one["accuracy"] for one in first.data["readings"]] == [0.6, 0.6, 0.6]
    _write_report(first, tmp_path, "long", as_json=True)
    again = compare_readings("short", "long", rows, rows, tmp_path)
    assert again.data == first.data and Reader.asked == 3
