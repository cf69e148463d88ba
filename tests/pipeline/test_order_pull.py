"""The order loss in a run: its pull reaches the layers, and the example that shows it."""

import runpy
import sys
from pathlib import Path

import pytest
import torch
from toy_pretraining import settings, weights

from litebert.pretraining.run import pretrain

EXAMPLE = Path(__file__).parents[2] / "examples" / "order_pull.py"


def test_a_run_with_a_pull_goes_another_way_once_order_counts(store, tmp_path):
    runs = {"plain": (), "pulled": ("order_grad_ratio=2",), "before": ("order_grad_ratio=2", "growth.order_from=0.99")}
    for name, recipe in runs.items():
        assert pretrain(settings(store, tmp_path / name, recipe=recipe)).status == "finished"
    assert pretrain(settings(store, tmp_path / "late", recipe=("growth.order_from=0.99",))).status == "finished"
    found = {name: weights(tmp_path / name) for name in (*runs, "late")}
    block = next(name for name in found["plain"] if name.startswith("encoder.attention") and name.endswith("weight"))
    assert not torch.allclose(found["plain"][block], found["pulled"][block])
    torch.testing.assert_close(found["before"][block], found["late"][block])


def show(monkeypatch, *words):
    """Run the example."""
    monkeypatch.setattr(sys, "argv", [EXAMPLE.name, *map(str, words)])
    runpy.run_path(str(EXAMPLE), run_name="__main__")


@pytest.mark.parametrize("words", [(), ("--fresh",)])
def test_the_example_shows_how_hard_both_losses_pull(store, tmp_path, monkeypatch, capsys, words):
    pretrain(settings(store, tmp_path / "run"))
    capsys.readouterr()
    sizes = ("--tokens", "512", "--length", "64", "--batches", "2")
    show(monkeypatch, tmp_path / "run", "--store", store, *sizes, *words)
    heading, *rows = capsys.readouterr().out.splitlines()
    assert "pull of words" in heading and len(rows) == 2
    for row in rows:
        *_, alike, words_pull, order_pull, pooler = map(float, row.replace(",", " ").split())
        assert -1 <= alike <= 1 and min(words_pull, order_pull, pooler) > 0


def test_what_does_not_fit_is_one_sentence(store, tmp_path, monkeypatch):
    for model, folder, sentence in (
        ("litebert-en", store, "another vocabulary than that of litebert-en"),
        ("litebert-en", tmp_path, "is not a token store"),
        (tmp_path / "none", store, "is not a folder"),
    ):
        with pytest.raises(SystemExit, match=sentence):
            show(monkeypatch, model, "--store", folder)
