"""Runs of permutation language modelling: what they leave, exact resume, next to transformers, what is refused."""

import shutil

import pytest
import torch
from toy_pretraining import settings, weights

import litebert
from litebert.api import evaluate
from litebert.checkpoints.training import saved_states
from litebert.errors import InputError
from litebert.nn.layout import Layout
from litebert.pretraining.run import pretrain
from litebert.train.metrics import read_metrics

PERMUTATION = ("objective=permutation", "mask_rate=0.2")
XLNET = {"preset": "xlnet-small", "words": ("embedding_width=32",)}


def test_a_run_leaves_a_model_that_fills_gaps_and_is_scored_like_others(store, tmp_path):
    chosen = settings(store, tmp_path / "run", recipe=(*PERMUTATION, "growth.depths=[[0,1],[0.5,2]]"), **XLNET)
    result = pretrain(chosen)
    assert {"mlm_loss", "permutation_loss", "order_accuracy"} <= set(result.held_out)
    assert result.held_out["loss"] == pytest.approx(result.held_out["mlm_loss"] + result.held_out["order_loss"])
    last = [row for row in read_metrics(tmp_path / "run") if "rate" in row][-1]
    assert last["loss"] == pytest.approx(last["permutation_loss"] + last["order_loss"])
    model = litebert.load(tmp_path / "run")
    assert len(model.fill("first the cat woke [MASK] .")) == 5
    (scored,) = evaluate(tmp_path / "run", corpus=store, length=64, device="cpu").depths
    assert {"mlm_loss", "permutation_loss", "order_accuracy"} <= set(scored.figures)


@pytest.mark.parametrize("recipe", [PERMUTATION, (*PERMUTATION, "order=none", "masking=plain")])
def test_resuming_is_exact(recipe, store, tmp_path):
    how = {"recipe": recipe, "preset": "xlnet-small", "words": ("embedding_width=32", "dropout=0.1")}
    pretrain(settings(store, tmp_path / "whole", **how))
    pretrain(settings(store, tmp_path / "parts", save_steps=5, **how))
    shutil.rmtree(saved_states(tmp_path / "parts")[-1].folder)
    pretrain(settings(store, tmp_path / "parts", save_steps=5, resume=True, **how))
    for name, tensor in weights(tmp_path / "whole").items():
        assert torch.equal(tensor, weights(tmp_path / "parts")[name]), name


def test_transformers_loads_it_and_gives_the_same_logits(store, tmp_path):
    transformers = pytest.importorskip("transformers")
    words = ("embedding_width=32", "share=none")
    chosen = settings(store, tmp_path / "run", recipe=(*PERMUTATION, "order=none"), preset="xlnet-small", words=words)
    pretrain(chosen)
    folder = tmp_path / "run" / "model"
    theirs, reading = transformers.XLNetLMHeadModel.from_pretrained(folder, output_loading_info=True)
    assert not reading["missing_keys"] and not reading["unexpected_keys"]
    network = litebert.load(tmp_path / "run", device="cpu").network.eval()
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 30, (12,), generator=draw)
    segments = torch.tensor([0] * 6 + [1] * 5 + [2])
    ranks = torch.full((12,), -1)
    ranks[[1, 4, 8, 9]] = torch.tensor([2, 0, 3, 1])
    hidden = (ranks[None, :] >= ranks[:, None]) & (ranks[None, :] >= 0)
    targets = (ranks >= 0).nonzero()[:, 0]
    with torch.no_grad():
        expected = theirs.eval()(
            ids[None],
            token_type_ids=segments[None],
            perm_mask=hidden.float()[None],
            target_mapping=torch.nn.functional.one_hot(targets, 12).float()[None],
        ).logits[0]
        states = network.encoder.two_streams(ids, Layout.of([12]), ranks, segments, places=targets[None])[1]
    torch.testing.assert_close(network.masked_lm_at(states[0]), expected, atol=1e-4, rtol=1e-4)


def test_objective_and_positions_must_go_together(store, tmp_path):
    with pytest.raises(InputError, match="objective is 'masked'; add objective=permutation"):
        pretrain(settings(store, tmp_path / "run", **XLNET))
    with pytest.raises(InputError, match="needs relative positions, which albert-tiny does not have; use xlnet-small"):
        pretrain(settings(store, tmp_path / "run", recipe=PERMUTATION))
    assert not (tmp_path / "run" / "run.json").exists()
