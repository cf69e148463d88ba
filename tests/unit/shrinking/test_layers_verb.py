"""``litebert layers`` from the outside. (Here, since it uses the same model folders.)"""

import json
import re
from contextlib import contextmanager

import pytest

from litebert.analyse import measure
from litebert.analyse.measure import short_names


def test_numbers_as_json(litebert, model_folder, text):
    model, other = model_folder(idle=(2,)), model_folder("albert", name="other")
    code, out, _ = litebert("layers", model, other, "--texts", text, "--json", "--untrained")
    found = json.loads(out)["models"]
    assert code == 0 and [one["family"] for one in found] == ["bert", "bert", "albert"]
    assert [layer["layer"] for layer in found[0]["layers"]] == [1, 2, 3, 4, 5, 6]
    assert found[0]["least_contribution_first"][0] == 2 and found[0]["layers"][1]["distance"] < 1e-3
    assert len(found[0]["similarity"]) == 7 and found[0]["similarity"][1][2] == pytest.approx(1, abs=1e-5)
    assert found[1]["model"].endswith("untrained") and found[1]["layers"][0]["entropy_share"] > 0.99
    assert {layer["attention_block"] for layer in found[2]["layers"]} == {0}
    assert all(len(layer["entropy_heads"]) == 4 for one in found for layer in one["layers"])
    assert found[0]["texts"] == 40


@pytest.mark.parametrize("family", ["albert", "bert", "roberta", "distilbert", "xlnet"])
def test_every_family(family, litebert, model_folder, text):
    code, out, _ = litebert("layers", model_folder(family), "--texts", text, "--max-texts", 5)
    assert code == 0 and "5 texts" in out and len(re.findall(r"^ +\d ", out, re.M)) == 6


def test_a_page_that_needs_nothing_else_and_a_picture(litebert, model_folder, text, tmp_path):
    model = model_folder()
    page, picture = tmp_path / "page.html", tmp_path / "picture.png"
    words = ["--texts", text, "--against", model, "--html", page, "--png", picture]
    code, out, _ = litebert("layers", model, *words)
    assert code == 0 and f"wrote {page}" in out and f"wrote {picture}" in out
    written = page.read_text()
    outside = re.findall(r"""(?:src|href)=["']?(?!#|data:)([^"'> ]+)""", written)
    assert not outside and written.count("<svg") == 7 and "<script" not in written
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_progress_is_shown_from_the_start(litebert, model_folder, text, monkeypatch):
    shown = []

    @contextmanager
    def progress():
        yield shown.append

    monkeypatch.setattr(measure, "progress", progress)
    model = model_folder()
    assert litebert("layers", model, "--texts", text)[0] == 0
    assert shown[:2] == [f"loading {model}", f"{model}: 0 of 40 texts"]
    assert shown[-1].startswith(f"{model}: 40 of 40 texts, about ")


def test_errors_are_one_line(litebert, model_folder, text, tmp_path):
    model = model_folder()
    shallow = model_folder(num_layers=3, name="shallow")
    for words, said in (
        ([model], "--texts is missing"),
        ([model, "--texts", "nowhere.txt"], "there is no file or folder 'nowhere.txt'"),
        ([model, "--texts", text, "--against", shallow], "has 3 layers where the model has 6"),
        ([model, "--texts", text, "--html", tmp_path / "no" / "page.html"], "there is no folder"),
        ([model, model, "--texts", "-"], "standard input can be read for one model only"),
        (["albert-tiny", "--texts", text], "has no tokenizer"),
    ):
        code, _, err = litebert("layers", *words)
        assert code == 2 and said in err and len(err.strip().splitlines()) <= 2, (words, err)
    (tmp_path / "empty.txt").write_text("\n\n")
    code, _, err = litebert("layers", model, "--texts", tmp_path / "empty.txt")
    assert code == 2 and "the corpus is empty" in err


def test_short_names_are_distinct():
    assert short_names(["a/b", "c"]) == ["b", "c"]
    assert short_names(["a/x", "b/x"]) == ["a/x", "b/x"]
    assert short_names(["runs/one/model", "runs/two"]) == ["one/model", "runs/two"]
