"""The benchmark of fine-tuning on a toy model: both sides start from the same logits and learn the same task."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import toy_tasks as toy
from typer.testing import CliRunner

from litebert.errors import InputError
from litebert.report import to_markdown
from litebert_lab.bench import finetune_time
from litebert_lab.bench.finetune import QualitySettings, bench_quality, quality_report
from litebert_lab.cli import app


@pytest.fixture(scope="module")
def glue(tmp_path_factory) -> Path:
    """SST-2 in its official form, with texts of ours."""
    folder = tmp_path_factory.mktemp("glue") / "SST-2"
    folder.mkdir()
    for name, count, seed in (("train", 256, 1), ("dev", 64, 2)):
        rows = [f"{item.first}\t{item.target}" for item in toy.items("classify", count, seed)]
        (folder / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    return folder.parent


def test_speed_side_by_side(glue, tmp_path):
    model = toy.make_model(tmp_path / "model")
    command = ["bench", "finetune", str(model), "--data", str(glue), "--batch", "8", "--steps", "4", "--turns", "1"]
    done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["worst_difference"] < 1e-5 and 0 < report["padding"] < 1
    names = [row["engine"] for row in report["rows"]]
    assert names[-1] == "litebert" and "transformers, plain loop" in names
    assert abs(report["rows"][0]["ratio"] - 1) < 1e-9 and all(row["steps_per_second"] > 0 for row in report["rows"])


def test_where_the_time_goes(tmp_path, monkeypatch):
    monkeypatch.setattr(finetune_time, "training_precision", lambda device, width: "bf16")
    model = toy.make_model(tmp_path / "model")
    rows = [f"{item.first},{item.target}" for item in toy.items("classify", 64, 1)]
    (tmp_path / "data.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    words = ["bench", "finetune-time", str(model), "--data", str(tmp_path / "data.csv"), "--steps", "3", "--batch", "8"]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["rows"]
    assert [(row["part"], row["precision"]) for row in found] == [("3 steps", "bf16"), ("dev", "bf16"), ("dev", "fp32")]
    assert found[1]["tokens"] == found[2]["tokens"] and 0 < found[0]["tokens"] < 3 * 8 * 64
    assert all(row["seconds"] > 0 and row["share"] == row["products"] / row["seconds"] for row in found)


def test_quality_side_by_side(glue, tmp_path, caplog):
    """Sides and seeds in runs of their own; together they are the table, and nothing is done twice."""
    model = toy.make_model(tmp_path / "model")
    settings, results = QualitySettings(model=str(model), epochs=12, rate=3e-3), tmp_path / "results"
    assert bench_quality(settings, glue, tasks=["sst2"], sides=["theirs"], seeds=[1, 0], results=results) == []
    assert bench_quality(settings, glue, tasks=["sst2"], sides=["ours"], seeds=[1], results=results) != []
    caplog.set_level(logging.INFO)
    caplog.clear()
    found = bench_quality(settings, glue, tasks=["sst2"], seeds=[0, 1], results=results)
    assert [line.split(":")[0] for line in caplog.messages if "seed" in line] == ["sst2 ours, seed 0"]
    assert found[0].metric == "accuracy" and [one.seed for one in found[0].ours] == [0, 1]
    assert min(one.score for one in (*found[0].ours, *found[0].theirs)) > 0.9
    page = to_markdown(quality_report(found))
    assert "sst2" in page and "of 2 seeds" in page
    assert bench_quality(settings, tmp_path / "nowhere", tasks=["sst2"], seeds=[0, 1], results=results) == found
    with pytest.raises(InputError, match="other settings"):
        bench_quality(replace(settings, batch=8), glue, tasks=["sst2"], seeds=[0], results=results)
