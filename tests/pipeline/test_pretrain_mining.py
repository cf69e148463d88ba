"""Runs that choose what to learn from: exact resume, arithmetic with the scoring pass, what they leave."""

import shutil

import pytest
import torch
from toy_pretraining import settings, weights

import litebert
from litebert.checkpoints.training import saved_states
from litebert.pretraining.run import pretrain
from litebert.train.settings import Bound

TOKENS = ("select.kind=hard-tokens", "select.depth=1")
ROWS = ("select.kind=hard-rows", "select.depth=1")
EVERY_WAY = [
    TOKENS,
    (*TOKENS, "select.draw=weighted", "masking=plain"),
    (*ROWS, "select.draw=weighted", "growth.depths=[[0,1],[0.5,2]]"),
    (*ROWS, "select.by=frequency", "mask_rate=[[0,0.3],[0.5,0.15]]"),
    ("select.kind=hard-rows", "select.by=repeats", "batches.lengths=[[0,32],[0.5,64]]"),
]


@pytest.mark.parametrize("recipe", EVERY_WAY)
def test_resuming_is_exact(recipe, store, tmp_path):
    words = ("dropout=0.1",)
    pretrain(settings(store, tmp_path / "whole", recipe=recipe, words=words))
    pretrain(settings(store, tmp_path / "parts", recipe=recipe, words=words, save_steps=5))
    shutil.rmtree(saved_states(tmp_path / "parts")[-1].folder)
    pretrain(settings(store, tmp_path / "parts", recipe=recipe, words=words, save_steps=5, resume=True))
    for name, tensor in weights(tmp_path / "whole").items():
        assert torch.equal(tensor, weights(tmp_path / "parts")[name]), name


def test_choosing_changes_what_is_learnt_and_leaves_a_plain_model(store, tmp_path):
    pretrain(settings(store, tmp_path / "plain"))
    plain = weights(tmp_path / "plain")
    for name, recipe in (("tokens", TOKENS), ("rows", ROWS)):
        result = pretrain(settings(store, tmp_path / name, recipe=recipe))
        assert result.status == "finished" and "mlm_loss" in result.held_out
        mined = weights(tmp_path / name)
        assert set(mined) == set(plain) and not all(torch.equal(mined[key], plain[key]) for key in plain)
    assert len(litebert.load(tmp_path / "rows").fill("first the cat woke [MASK] .")) == 5


def test_scoring_passes_are_part_of_the_arithmetic(store, tmp_path):
    """The more is read to score, the fewer steps fit; and a scoring pass that costs nothing costs nothing."""
    bound = Bound(flops=3e9)
    ways = {
        "plain": (),
        "repeats": ("select.kind=hard-rows", "select.by=repeats"),
        "half": ROWS,
        "tenth": (*ROWS, "select.share=0.1"),
    }
    steps = {
        name: pretrain(settings(store, tmp_path / name, recipe=recipe, bound=bound)).step
        for name, recipe in ways.items()
    }
    assert steps["repeats"] == pytest.approx(steps["plain"], rel=0.07)
    assert steps["tenth"] < 0.6 * steps["half"] < 0.6 * steps["plain"]
