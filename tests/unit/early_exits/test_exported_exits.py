"""The rule of an exported file is chosen on what the file itself gives for the held-out rows."""

import json
from dataclasses import replace

import numpy as np
import pytest

import litebert as library
from litebert.early_exits.heads import EXITS_ROWS, loss_in_points
from litebert.tasks.kinds import KINDS

pytest.importorskip("onnxruntime", reason="litebert[runtime] is not installed")
pytest.importorskip("onnx", reason="litebert[export] is not installed")


@pytest.fixture
def fitted(model, table):
    def make(kind: str = "classify", max_loss: float = 1.0):
        return library.load(model(kind, "albert"), device="cpu").add_exits(table(kind), max_loss=max_loss)

    return make


def score_of(runtime, fitted, exits: bool) -> float:
    """The first metric of what an exported file answers for the held-out rows."""
    report, rows = fitted.exits.report, fitted.exits.rows
    items = rows.items(report.kind)
    scores = runtime._head_scores(rows.inputs, None, exits, lambda _: None)
    found = KINDS[report.kind].decode(items, rows.inputs, scores, fitted.task)
    metrics = KINDS[report.kind].evaluate([report.metric], items, found, len(fitted.task.labels))
    return metrics[report.metric]


@pytest.mark.parametrize("kind", ["classify", "multilabel", "regress"])
def test_the_file_keeps_the_promise_itself(kind, fitted, tmp_path):
    model = fitted(kind)
    careless = replace(model.exits.report, rule="patience", value=1, tolerance=0.0)  # all leave at the first depth
    model.exits = replace(model.exits, report=careless)
    runtime = library.load(model.export(tmp_path / "out", standard=False).folder)
    about = json.loads((tmp_path / "out" / "litebert.json").read_text())["exits"]
    assert (about["rule"], about["value"]) != (careless.rule, careless.value)
    full, score = score_of(runtime, model, False), score_of(runtime, model, True)
    assert full == pytest.approx(about["full_score"]) and score == pytest.approx(about["score"])
    assert loss_in_points(about["metric"], full, score) <= 1.0 + 1e-9
    assert about["rows"] == len(model.exits.rows.inputs) and about["max_loss"] == 1.0


def test_scores_of_all_depths_are_those_of_the_heads(fitted, tmp_path):
    model = fitted()
    runtime = library.load(model.export(tmp_path / "out", bits=32, standard=False).folder)
    rows = model.exits.rows
    found = runtime.exit_scores(rows.inputs, lambda _: None)
    assert found.shape == (4, len(rows.inputs), 2)
    for depth in (1, 4):
        at = model.predictor(exits=True)
        at.rule = replace(at.rule, rule="depth", value=depth, tolerance=0.0)
        np.testing.assert_allclose(found[depth - 1], at.scores(rows.inputs).scores, atol=1e-3)


def test_rows_are_stored_with_the_model_and_may_be_missing(fitted, tmp_path):
    model = fitted()
    model.save(tmp_path / "model")
    stored = library.load(tmp_path / "model", device="cpu").exits.rows
    for name in ("ids", "segments", "starts"):
        np.testing.assert_array_equal(getattr(stored.inputs, name), getattr(model.exits.rows.inputs, name))
    np.testing.assert_array_equal(stored.targets, model.exits.rows.targets)
    (tmp_path / "model" / EXITS_ROWS).unlink()
    without = library.load(tmp_path / "model", device="cpu")
    made = without.export(tmp_path / "out", standard=False)
    assert "the rows it was chosen on are not in the model folder" in made.notes[-1]
    about = json.loads((tmp_path / "out" / "litebert.json").read_text())["exits"]
    assert about["value"] == model.exits.report.value


@pytest.mark.parametrize("damage", ["ids", "segments", "starts", "targets", "file"])
def test_rows_of_another_model_are_left_out_with_a_sentence(damage, fitted, tmp_path):
    from safetensors.numpy import load_file, save_file

    fitted().save(tmp_path / "model")
    path = tmp_path / "model" / EXITS_ROWS
    if damage == "file":
        path.write_bytes(b"{}")
    else:
        arrays = load_file(path)
        arrays[damage] = arrays[damage] + 1000
        save_file(arrays, path)
    loaded = library.load(tmp_path / "model", device="cpu")
    assert loaded.exits is not None and loaded.exits.rows is None
    assert EXITS_ROWS in loaded.notes[-1]


def test_rows_are_scored_as_their_texts_were(fitted):
    model = fitted("multilabel")
    rows = model.exits.rows
    items = rows.items("multilabel")
    assert {type(item.target) for item in items} == {tuple}
    found = model.predictor().predict_encoded(items, rows.inputs)
    report = model.exits.report
    metrics = KINDS["multilabel"].evaluate([report.metric], items, found, len(model.task.labels))
    assert metrics[report.metric] == pytest.approx(report.full_score)
