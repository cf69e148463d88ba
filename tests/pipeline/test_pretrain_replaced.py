"""Runs that learn at every token: what they leave, exact resume, and from a trained model on."""

import shutil

import pytest
import torch
from toy_pretraining import settings, weights

import litebert
from litebert.checkpoints.training import saved_states
from litebert.pretraining.run import pretrain
from litebert.train.metrics import read_metrics

REPLACED = ("objective=replaced", "generator_depth=1", "masked_every=4")


def test_a_run_is_masked_lm_until_full_depth_and_leaves_a_plain_model(store, tmp_path):
    result = pretrain(settings(store, tmp_path / "run", recipe=(*REPLACED, "growth.depths=[[0,1],[0.5,2]]")))
    assert result.held_out["depth"] == 2 and {"mlm_loss", "depth_1_mlm_loss"} <= set(result.held_out)
    rows = [row for row in read_metrics(tmp_path / "run") if "rate" in row]
    assert "replaced_loss" not in rows[0] and rows[0]["loss"] == pytest.approx(
        rows[0]["mlm_loss"] + rows[0]["order_loss"]
    )
    last = rows[-1]
    expected = last["generator_loss"] + 50 * last["replaced_loss"] + last["mlm_loss"] + last["order_loss"]
    assert last["loss"] == pytest.approx(expected, rel=1e-5)
    model = litebert.load(tmp_path / "run")
    assert len(model.fill("first the cat woke [MASK] .")) == 5 and "replaced" in model.network.heads
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForPreTraining.from_pretrained(tmp_path / "run" / "model")
    assert type(theirs).__name__ == "AlbertForPreTraining"


@pytest.mark.parametrize("recipe", [REPLACED, ("objective=all-tokens", "generator_depth=1", "order=none")])
def test_resuming_is_exact(recipe, store, tmp_path):
    words = ("dropout=0.1",)
    pretrain(settings(store, tmp_path / "whole", recipe=recipe, words=words))
    pretrain(settings(store, tmp_path / "parts", recipe=recipe, words=words, save_steps=5))
    shutil.rmtree(saved_states(tmp_path / "parts")[-1].folder)
    pretrain(settings(store, tmp_path / "parts", recipe=recipe, words=words, save_steps=5, resume=True))
    for name, tensor in weights(tmp_path / "whole").items():
        assert torch.equal(tensor, weights(tmp_path / "parts")[name]), name


def test_from_a_model_of_masked_lm_on(store, tmp_path, messages):
    pretrain(settings(store, tmp_path / "first"))
    begun = settings(store, tmp_path / "second", recipe=REPLACED, source=str(tmp_path / "first" / "model"))
    assert pretrain(begun).status == "finished"
    assert any("4 new" in sentence for sentence in messages)  # the head's dense layer and its score
    again = settings(store, tmp_path / "third", recipe=REPLACED, source=str(tmp_path / "second" / "model"))
    assert pretrain(again).status == "finished"
    assert any(" 0 new" in sentence for sentence in messages)
