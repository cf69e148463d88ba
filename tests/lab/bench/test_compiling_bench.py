"""Starts of pretraining, timed: figures of a short run, and ways that are none."""

import json

import pytest
from toy_stories import build_stories
from typer.testing import CliRunner

from litebert.errors import InputError
from litebert_lab.bench.commands import app
from litebert_lab.bench.compiling import bench_compiling

WORDS = ["num_layers=2", "width=32", "embedding_width=16", "num_heads=2", "feed_forward_width=64"]


def test_a_run_that_compiles_nothing(tmp_path):
    store = build_stories(tmp_path / "text")
    words = ["compiling", *WORDS, "batches.tokens=2048", "growth.depths=[[0,1],[0.5,2]]", "--corpus", str(store)]
    words += ["--model", "albert-tiny", "--way", "none", "--starts", "1", "--steps", "40", "--device", "cpu", "--json"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    [start] = json.loads(done.stdout)
    assert start["way"] == "none" and 0 < start["ready"] < start["seconds"]
    assert set(start["tokens_per_second"]) == {"1", "2"} and min(start["tokens_per_second"].values()) > 0


def test_a_way_that_is_none(tmp_path):
    with pytest.raises(InputError, match="must be whole, layers, none"):
        bench_compiling("albert-tiny", tmp_path, [], ways=["half"], starts=1, steps=20, device="cpu")
