"""The benchmark of early exits: every engine on the same texts, at the mean depth that is asked for."""

import json

import numpy as np
import pytest

from litebert_lab.bench.exits import drawn_depths


@pytest.mark.parametrize("mean", [1.2, 4.5, 9.0])
def test_drawn_depths_have_the_mean(mean):
    depths = drawn_depths(20_000, mean, 12)
    assert depths.mean() == pytest.approx(mean, abs=0.02) and depths.min() == 1 and depths.max() <= 12
    assert np.unique(depths).size > 2


def test_all_engines_are_timed_on_a_cpu(litebert_lab):
    words = ["albert-small", "--count", 6, "--repeats", 1, "--mean-depth", 2, "--device", "cpu", "--json"]
    code, out, err = litebert_lab("bench", "exits", *words)
    assert code == 0, err
    report = json.loads(out)
    assert [row["engine"].split(",")[0] for row in report["rows"]] == ["packed", "one at a time", "one at a time"]
    assert all(row["texts_per_second"] > 0 for row in report["rows"])
    assert report["rows"][2]["mean_depth"] == pytest.approx(2, abs=0.5) and report["rows"][1]["mean_depth"] > 2.5
    assert report["rows"][1]["p50"] > 0 and report["rows"][2]["p99"] > 0


def test_a_model_without_exits_cannot_run_by_its_own_rule(litebert_lab, tmp_path):
    (tmp_path / "texts.txt").write_text("one\ntwo\n")
    code, _, err = litebert_lab("bench", "exits", "litebert-en", "--texts", tmp_path / "texts.txt", "--device", "cpu")
    assert code == 2 and "has no early exits" in err
