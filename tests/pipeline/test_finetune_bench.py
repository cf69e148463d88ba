"""The benchmark of fine-tuning on a toy model: both sides start from the same logits and learn the same task."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))
import toy_tasks as toy

from litebert.bench.finetune_quality import bench_quality, quality_table
from litebert.cli import app


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


def test_quality_side_by_side(glue, tmp_path):
    model = toy.make_model(tmp_path / "model")
    found = bench_quality(str(model), glue, tasks=["sst2"], seeds=2, epochs=12, rate=3e-3, batch=32)
    assert found[0].metric == "accuracy" and len(found[0].ours) == len(found[0].theirs) == 2
    assert min(*found[0].ours, *found[0].theirs) > 0.9
    assert "sst2" in quality_table(found)
