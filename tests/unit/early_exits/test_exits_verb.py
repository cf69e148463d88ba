"""``litebert exits`` and ``Model.add_exits``: what is learnt, chosen, stored, loaded and reported."""

import json

import numpy as np
import pytest
import torch

import litebert as library
from litebert.checkpoints.folder import load_model
from litebert.early_exits.calibrate import features_of
from litebert.early_exits.heads import EXITS_JSON, EXITS_TENSORS
from litebert.nn.layout import Layout
from litebert.runs import read_run
from litebert.tasks.examples import EncodingSettings, Example
from litebert.tasks.kinds import KINDS
from litebert.tasks.predicting import load_predictor
from litebert.tasks.sources import read_task


def test_low_heads_know_what_letters_decide_and_the_last_depth_is_the_model_itself(litebert, model, table, tmp_path):
    folder, data = model(), table()
    code, out, err = litebert("exits", folder, "--data", data, "--json", "--device", "cpu")
    assert code == 0, err
    report = json.loads(out)
    assert report == json.loads((folder / EXITS_JSON).read_text())
    by_depth = [point["metrics"]["accuracy"] for point in report["points"] if point["rule"] == "depth"]
    assert len(by_depth) == 4 and by_depth[0] > 0.9
    dev = read_task(None, data, text="text", label="kind").dev["dev"]
    said = load_predictor(folder, device="cpu").predict(dev)
    own = sum(item.target == one.label for item, one in zip(dev, said, strict=True)) / len(dev)
    assert by_depth[-1] == pytest.approx(own) == pytest.approx(report["full_score"]) and own < 0.9
    assert report["mean_depth"] < 4 and report["score"] >= own - 0.003 and report["rows"] == len(dev)
    page = (folder / "exits.html").read_text()
    assert page.count("<svg") == 1 and "src=" not in page and "By confidence" in page
    assert read_run(folder).verb == "test"  # how the model was made is still known
    code, out, err = litebert("exits", folder, "--data", data, "-o", tmp_path / "out", "--device", "cpu")
    assert code == 0 and "heads that agree" in out and "of 4 layers on average" in out and "* is the rule" in out, err
    note = read_run(tmp_path / "out")
    assert note.verb == "exits" and note.parents[0].folder == str(folder)
    assert (tmp_path / "out" / EXITS_TENSORS).read_bytes() == (folder / EXITS_TENSORS).read_bytes()


def test_stored_exits_predict_as_those_just_made(model, table, tmp_path):
    folder, data = model(), table()
    made = library.load(folder, device="cpu").add_exits(data)
    assert made.exits.weight.shape == (4, 32, 2) and made.exits.bias.shape == (4, 2)
    made.save(tmp_path / "stored")
    stored = library.load(tmp_path / "stored", device="cpu")
    assert stored.exits.report == made.exits.report
    assert torch.equal(stored.exits.weight, made.exits.weight) and torch.equal(stored.exits.bias, made.exits.bias)
    texts = ["aaab", "bbbc", "abcdabcd", "ddda"]
    assert stored.predict(texts, exits=True) == made.predict(texts, exits=True)
    assert stored.at_depth(4).exits is stored.exits and stored.drop(layers=4).exits is None
    stored.drop(layers=4).save(tmp_path / "stored")  # other weights take the exits away
    assert library.load(tmp_path / "stored", device="cpu").exits is None


def test_the_promise_is_kept_on_the_rows_it_was_made_for(model, table):
    """What ``predict`` does with exits on the held-out rows is what the report says of them."""
    folder, data = model(), table()
    fitted = library.load(folder, device="cpu").add_exits(data, max_loss=1.0)
    report = fitted.exits.report
    dev = read_task(None, data, text="text", label="kind").dev["dev"]
    predictor = fitted.predictor(exits=True)
    found = predictor.predict(dev)
    right = np.mean([item.target == one.label for item, one in zip(dev, found, strict=True)])
    assert right == pytest.approx(report.score) and predictor.depths.mean() == pytest.approx(report.mean_depth)
    assert report.loss <= 1.0 and report.full_score - right <= 0.01 + 1e-9


def test_numbers_leave_by_patience_alone(litebert, model, table):
    folder, data = model("regress"), table("regress")
    code, out, err = litebert("exits", folder, "--data", data, "--json", "--device", "cpu")
    assert code == 0, err
    report = json.loads(out)
    assert report["metric"] == "pearson" and {one["rule"] for one in report["points"]} == {"depth", "patience"}
    assert report["points"][0]["metrics"]["pearson"] > 0.9
    assert report["rule"] == "patience" and report["tolerance"] > 0 and report["mean_depth"] < 4
    assert library.load(folder, device="cpu").predict(["aaab", "bbbb"], exits=True)[0].label > 0


def test_several_labels_leave_together(model, table):
    folder, data = model("multilabel"), table("multilabel")
    fitted = library.load(folder, device="cpu").add_exits(data, max_loss=5)
    assert fitted.exits.report.kind == "multilabel" and fitted.exits.weight.shape == (4, 32, 3)
    assert set(fitted.predict("aaab", exits=0.6).probabilities) == {"a", "b", "c"}


@pytest.mark.parametrize("family", ["bert", "albert", "xlnet"])
def test_heads_see_the_pooled_token_and_the_mean_of_all(model, family):
    folder = model(family=family)
    loaded, predictor = load_model(folder), load_predictor(folder, device="cpu")
    items = [Example(key=text, first=text) for text in ("abc", "d", "abcdefgh")]
    inputs = KINDS["classify"].encode(items, loaded.tokenizer, EncodingSettings(length=16))
    found, own = features_of(predictor, inputs, lambda done: None)
    assert found.shape == (4, 3, 32) and own.shape == (3, 2)
    for number in range(3):
        begin, end = inputs.starts[number], inputs.starts[number + 1]
        ids, segments = (torch.from_numpy(part[begin:end]).long() for part in (inputs.ids, inputs.segments))
        layout = Layout.of([len(ids)])
        with torch.no_grad():
            states = loaded.network.encoder.states(ids, layout, segments)[1:]
            answer = loaded.network.heads["classify"](loaded.network.pooled(states[-1], layout))
        pooled = -1 if family == "xlnet" else 0
        expected = torch.stack([torch.cat([one[pooled], one.mean(0)]) for one in states])
        torch.testing.assert_close(found[:, number], expected, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(own[number], answer[0], atol=1e-4, rtol=1e-4)


def test_mistakes_of_exits_get_one_sentence(litebert, model, table, tmp_path):
    folder, data = model(), table()
    for words, said in (
        ([folder, "--data", data, "-o", data], "a file; name a folder"),
        ([folder, "--data", data, "--items", 1], "--items is 1"),
        ([folder, "--data", data, "--max-loss", -1], "--max-loss is -1"),
        ([tmp_path / "none", "--data", data], "there is no folder"),
        ([folder], "data is missing"),
        ([model("regress"), "--data", data], "not a number"),
        (["litebert-en", "--data", data], "has no head for a task"),
    ):
        code, _, err = litebert("exits", *words, "--device", "cpu")
        assert code == 2 and said in err and len(err.strip().splitlines()) == 1, (words, err)
    assert not (folder / EXITS_JSON).exists()


def test_mistakes_of_predicting_with_exits_get_one_sentence(model, table, litebert):
    folder = model()
    plain = library.load(folder, device="cpu")
    with pytest.raises(library.InputError, match="has no early exits"):
        plain.predict("abc", exits=True)
    fitted = plain.add_exits(table())
    with pytest.raises(library.InputError, match="leave out one of them"):
        fitted.predict("abc", exits=True, depth=2)
    fitted.save(folder)
    for content in ("{}", "[", json.dumps(fitted.exits.report.as_plain() | {"features": "other"})):
        (folder / EXITS_JSON).write_text(content)
        loaded = library.load(folder, device="cpu")
        assert loaded.exits is None and "the exits in" in loaded.notes[-1]
    code, _, err = litebert("exits", folder, "--data", table(), "--device", "cpu")
    assert code == 0 and library.load(folder, device="cpu").exits is not None, err
