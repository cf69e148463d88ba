"""Tables of any size: every format, each row once and in order, shards that are resumed, what is refused."""

import csv
import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import toy_tasks as toy
import toy_work

import litebert
from litebert import batch_inference
from litebert.data import output
from litebert.errors import InputError
from litebert.model import Model
from litebert.nn.network import HeadsConfig, Network, NetworkConfig
from litebert.tasks.examples import TaskSpec

parquet = pytest.importorskip("pyarrow.parquet", reason="litebert[corpus] is not installed")

HEADS = {
    "classify": ("classify", ("bad", "good")),
    "multilabel": ("classify", ("cat", "dog", "hen")),
    "regress": ("classify", ("score",)),
    "choice": ("choice", ()),
    "span": ("span", ()),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Path]:
    """A model for each kind of task, with random weights."""
    folder = tmp_path_factory.mktemp("models")
    base = litebert.load(toy.make_model(folder / "base"))
    for kind, (head, labels) in HEADS.items():
        torch.manual_seed(3)
        network = Network(NetworkConfig(encoder=base.config, heads=HeadsConfig(names=(head,), labels=labels))).eval()
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.normal_(std=0.3)
        spec = TaskSpec(kind=kind, labels=labels if kind != "regress" else (), length=32)
        Model(network, base.tokenizer, task=spec).save(folder / kind)
    return {kind: folder / kind for kind in HEADS}


@pytest.fixture
def model(models, monkeypatch) -> Path:
    monkeypatch.setattr(output, "MOST_ROWS", 4)  # of a portion
    return models["classify"]


def texts(count: int) -> list[str]:
    return [item.first for item in toy.items("classify", count, 5)]


def write_rows(path: Path, rows: list[str], first: int = 0) -> Path:
    lines = [f"r{number},{text}" for number, text in enumerate(rows, first)]
    path.write_text("\n".join(["id,text", *lines]) + "\n")
    return path


def shards(folder: Path) -> list[dict]:
    return [json.loads(line) for path in sorted(folder.glob("part-*")) for line in path.read_text().splitlines()]


def test_formats_hold_the_same(model, tmp_path):
    rows = texts(11)
    data = write_rows(tmp_path / "rows.csv", rows)
    expected = litebert.load(model).predict(rows)
    for name in ("a.jsonl", "a.csv", "a.tsv", "a.parquet"):
        written = litebert.predict(model, data, tmp_path / name)
        assert (written.rows, written.files, written.skipped) == (11, 1, 0)
    of_json = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    of_cells = list(csv.DictReader((tmp_path / "a.csv").open()))
    of_arrow = parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert (tmp_path / "a.tsv").read_text().replace("\t", ",") == (tmp_path / "a.csv").read_text()
    for number, one in enumerate(expected):
        found = (of_json[number], of_cells[number], of_arrow[number])
        assert {row["key"] for row in found} == {f"r{number}"} and {row["label"] for row in found} == {one.label}
        for shares in (of_json[number]["probabilities"], of_cells[number], of_arrow[number]["probabilities"]):
            assert float(shares["good"]) == pytest.approx(one.probabilities["good"], abs=1e-5)
    assert len(of_json) == len(of_cells) == len(of_arrow) == 11


@pytest.mark.parametrize("kind", ["multilabel", "regress", "choice", "span"])
def test_every_kind_is_written_to_parquet_as_to_json(kind, models, tmp_path):
    items = toy.items(kind, 6, 5)
    rows = [{"text": item.first} for item in items] if kind in ("multilabel", "regress") else None
    if kind == "choice":
        rows = [{"context": one.passage, "question": one.question, "options": list(one.options)} for one in items]
    rows = rows or [{"context": one.passage, "question": one.question} for one in items]
    for name in ("a.jsonl", "a.parquet"):
        litebert.predict(models[kind], rows, tmp_path / name)
    of_json = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    of_arrow = parquet.read_table(tmp_path / "a.parquet").to_pylist()
    assert [row["label"] for row in of_arrow] == [row["label"] for row in of_json] and len(of_json) == 6
    for one, other in zip(of_arrow, of_json, strict=True):
        assert (one.pop("cut"), one.pop("windows")) == (other.pop("cut", False), other.pop("windows", 1))
        assert one.keys() == other.keys()
        if "probabilities" in other:
            assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)


def test_vectors_are_those_of_encode(model, tmp_path, messages):
    rows = texts(10)
    data = write_rows(tmp_path / "rows.csv", [*rows, "cat " * 100, "dog " * 100])
    expected = litebert.load(model).encode([*rows, "cat " * 100, "dog " * 100], pooling="first", normalize=True)
    messages.clear()
    for name in ("v.npy", "v.parquet", "v.jsonl"):
        litebert.encode(model, data, tmp_path / name, pooling="first", normalize=True)
    assert [one for one in messages if "cut" in one] == 3 * [
        "2 of 12 texts are longer than 64 tokens and were cut (max_length)"
    ]
    array = np.load(tmp_path / "v.npy", mmap_mode="r")
    assert array.dtype == np.float32 and array.shape == (12, 32)
    np.testing.assert_allclose(array, expected, atol=1e-6)
    table = parquet.read_table(tmp_path / "v.parquet")
    assert table["key"].to_pylist() == [f"r{number}" for number in range(12)]
    np.testing.assert_array_equal(np.stack(table["vector"].to_numpy()), array)
    lines = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    np.testing.assert_array_equal(np.array([line["vector"] for line in lines], np.float32), array)


def test_long_texts_may_be_read_in_windows(model, tmp_path):
    rows = ["cat dog " * 60, "the hen"]
    expected = litebert.load(model)
    litebert.encode(model, rows, tmp_path / "v.npy", windows=True)
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), expected.encode(rows, windows=True), atol=1e-6)
    litebert.predict(model, rows, tmp_path / "a.jsonl", windows=True)
    first, second = (json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines())
    assert first["windows"] > 1 and "windows" not in second
    assert first["label"] == expected.predict(rows, windows=True)[0].label


def test_many_files_are_one_table(model, tmp_path):
    rows, folder = texts(12), tmp_path / "in"
    (folder / "more").mkdir(parents=True)
    (folder / "a.csv").write_text("\n".join(["text", *rows[:4]]) + "\n")
    (folder / "b.jsonl.gz").write_bytes(gzip.compress("".join(f'{{"text": "{row}"}}\n' for row in rows[4:8]).encode()))
    arrow = output.arrow_library()
    parquet.write_table(arrow.table({"text": rows[8:]}), folder / "more/c.parquet")
    (folder / "_shards.json").write_text("{}")
    (folder / ".hidden.csv").write_text("text\nno\n")
    for data, out in ((folder, tmp_path / "one"), (folder / "**", tmp_path / "two")):
        litebert.predict(model, data, out, format="jsonl")
        assert [row["key"] for row in shards(out)] == [str(number) for number in range(12)]
    litebert.predict(model, rows, tmp_path / "plain.jsonl")
    assert (tmp_path / "one/part-00000.jsonl").read_text() == (tmp_path / "plain.jsonl").read_text()


def test_a_run_that_failed_is_resumed(model, tmp_path, monkeypatch):
    rows = texts(150)
    data = write_rows(tmp_path / "rows.csv", rows)
    litebert.predict(model, data, tmp_path / "alone", format="jsonl", shard_rows=40)
    assert len(list((tmp_path / "alone").glob("part-*"))) == 4 and len(shards(tmp_path / "alone")) == 150
    lines = data.read_text().splitlines(keepends=True)
    data.write_text("".join([*lines[:122], '"broken\n']))
    with pytest.raises(InputError, match="line 123: a quote"):
        litebert.predict(model, data, tmp_path / "out", format="jsonl", shard_rows=40)
    there = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert there == ["_shards.json", "part-00000.jsonl", "part-00001.jsonl", "part-00002.jsonl"]
    data.write_text("".join(lines))
    asked = []
    answered = Model.predict_items
    monkeypatch.setattr(
        Model, "predict_items", lambda self, items, *a, **k: asked.extend(items) or answered(self, items, *a, **k)
    )
    written = litebert.predict(model, data, tmp_path / "out", format="jsonl", shard_rows=40)
    assert (written.rows, written.files, written.skipped) == (150, 4, 120)
    assert [item.key for item in asked] == [f"r{number}" for number in range(120, 150)]
    for name in ("part-00000.jsonl", "part-00001.jsonl", "part-00002.jsonl", "part-00003.jsonl", "_shards.json"):
        content = (tmp_path / "alone" / name).read_text()
        assert (tmp_path / "out" / name).read_text() == content
    (tmp_path / "out/part-00001.jsonl").unlink()
    (tmp_path / "out/.part-00002.jsonl.abc").touch()  # of a process that was killed
    written = litebert.predict(model, data, tmp_path / "out", format="jsonl", shard_rows=40)
    assert written.skipped == 110 and shards(tmp_path / "out") == shards(tmp_path / "alone")
    assert not list((tmp_path / "out").glob(".part*"))


def test_other_rows_or_settings_are_refused(model, tmp_path):
    rows = texts(20)
    data = write_rows(tmp_path / "rows.csv", rows)
    call = {"model": model, "data": data, "out": tmp_path / "out", "format": "jsonl", "shard_rows": 8}
    litebert.predict(**call)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    for change, named in (
        ({"depth": 1}, "depth is None there and 1 here"),
        ({"shard_rows": 9}, "shard_rows is 8 there and 9 here"),
        ({"format": "csv"}, "format is jsonl there and csv here"),
        ({"text": "id"}, "text is None there and id here"),
        ({"data": write_rows(tmp_path / "more.csv", rows)}, r"data is .*rows\.csv there and .*more\.csv here"),
    ):
        with pytest.raises(InputError, match=named):
            litebert.predict(**{**call, **change})
    with pytest.raises(InputError, match="command is predictions there and vectors here"):
        litebert.encode(**call)
    for changed, named in (
        ([*rows[:3], "other", *rows[4:]], "rows of .*part-00000.jsonl have changed"),
        ([*rows, "more"], "rows of .*part-00002.jsonl have changed"),
        (rows[:8], "the data has fewer rows than when .*part-00001.jsonl was written"),
    ):
        write_rows(data, changed)
        with pytest.raises(InputError, match=named):
            litebert.predict(**call)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    write_rows(data, rows)
    (tmp_path / "copy").mkdir()
    for path in model.iterdir():
        (tmp_path / "copy" / path.name).write_bytes(path.read_bytes())
    call |= {"model": tmp_path / "copy", "out": tmp_path / "other"}
    litebert.predict(**call)
    (tmp_path / "copy/task.json").write_text(TaskSpec(labels=("x", "y")).text_of_file())
    with pytest.raises(InputError, match="the files of the model is"):
        litebert.predict(**call)


def test_where_it_is_written(model, tmp_path):
    rows = texts(5)
    for out, wanted in (
        ("folder", "folder/part-00000.jsonl"),
        ("dotted.d/", "dotted.d/part-00000.jsonl"),
        ("file.csv", "file.csv"),
    ):
        litebert.predict(model, rows, f"{tmp_path}/{out}")
        assert (tmp_path / wanted).is_file()
    with pytest.raises(InputError, match="format is 'xls' but must be one of jsonl, csv, tsv, parquet"):
        litebert.predict(model, rows, tmp_path / "rows.xls")
    with pytest.raises(InputError, match="there is no folder"):
        litebert.predict(model, rows, tmp_path / "none/rows.csv")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/notes.md").touch()
    with pytest.raises(InputError, match="full is not empty and holds no shards"):
        litebert.predict(model, rows, tmp_path / "full")
    with pytest.raises(InputError, match="has no column 'nothing'"):
        litebert.predict(model, [{"a": "the cat"}], tmp_path / "new", text="nothing")
    assert not (tmp_path / "new").exists()


def test_urls(model, tmp_path):
    upath = pytest.importorskip("upath", reason="universal-pathlib is not installed")
    rows = texts(20)
    litebert.predict(model, rows, tmp_path / "alone", format="parquet", shard_rows=8)
    place = upath.UPath("memory://batch/in.csv")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("text\n" + "\n".join(rows) + "\n")
    call = {"model": model, "data": "memory://batch/in.csv", "out": "memory://batch/out", "format": "parquet"}
    assert litebert.predict(**call, shard_rows=8).skipped == 0
    (upath.UPath("memory://batch/out") / "part-00001.parquet").unlink()
    assert litebert.predict(**call, shard_rows=8).skipped == 12
    for name in ("part-00000.parquet", "part-00001.parquet", "part-00002.parquet"):
        assert (upath.UPath("memory://batch/out") / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    litebert.encode(model, "memory://batch/in.csv", "memory://batch/v.npy")
    (tmp_path / "v.npy").write_bytes(upath.UPath("memory://batch/v.npy").read_bytes())
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), litebert.load(model).encode(rows), atol=1e-6)


def test_exported_models_and_a_killed_process(model, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime", reason="litebert[runtime] is not installed")
    pytest.importorskip("onnx", reason="litebert[export] is not installed")
    litebert.load(model).export(tmp_path / "small", bits=32, standard=False)
    data = write_rows(tmp_path / "rows.csv", texts(40))
    litebert.predict(tmp_path / "small", data, tmp_path / "alone.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "alone.jsonl").read_text().splitlines()]
    expected = litebert.load(model).predict(texts(40))
    assert [row["label"] for row in rows] == [one.label for one in expected]

    code = "import sys; sys.modules['torch'] = None; import litebert; litebert.predict(*sys.argv[1:], shard_rows=64)"
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "small"), str(data), str(tmp_path / "alone-too")], check=True
    )
    assert len((tmp_path / "alone-too/part-00000.csv").read_text().splitlines()) == 41

    def killed(work, *arguments, **settings):
        return spread(toy_work.KilledOnce(work, tmp_path / "killed"), *arguments, **settings)

    spread = batch_inference.map_stream
    monkeypatch.setattr(batch_inference, "map_stream", killed)
    litebert.predict(tmp_path / "small", data, tmp_path / "two.jsonl", workers=2)
    assert (tmp_path / "killed").exists()
    assert (tmp_path / "two.jsonl").read_bytes() == (tmp_path / "alone.jsonl").read_bytes()
