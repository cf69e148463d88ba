"""What changes over a run besides rate, depth and length: mask rate and batch; and the average of the weights."""

import json
import shutil

import pytest
import torch
from toy_pretraining import settings, weights

from litebert.checkpoints.training import saved_states
from litebert.pretraining.run import pretrain
from litebert.runs import list_runs
from litebert.train.metrics import read_metrics

CHANGING = (
    *("mask_rate=[[0,0.3],[0.5,0.1]]", "batches.tokens=[[0,512],[0.5,1024]]", "optimiser.rate_at_batch=1024"),
    *("schedule.kind=constant", "schedule.warmup=0.0", "averaging.kind=uniform", "averaging.span=0.4"),
)


def test_resuming_is_exact_and_both_sets_of_weights_are_kept(store, tmp_path):
    words = ("dropout=0.1",)
    whole = pretrain(settings(store, tmp_path / "whole", recipe=CHANGING, words=words))
    pretrain(settings(store, tmp_path / "parts", recipe=CHANGING, words=words, save_steps=5))
    shutil.rmtree(saved_states(tmp_path / "parts")[-1].folder)  # back to step 10, in the middle of the average
    resumed = pretrain(settings(store, tmp_path / "parts", recipe=CHANGING, words=words, save_steps=5, resume=True))
    assert resumed.held_out == whole.held_out and {"loss", "averaged_loss"} <= set(whole.held_out)
    better = whole.held_out["averaged_loss"] <= whole.held_out["loss"]
    assert json.loads((tmp_path / "whole" / "run.json").read_text())["result"]["weights"] == (
        "averaged" if better else "last"
    )
    other = "model-last" if better else "model-averaged"
    for folder in ("model", other):
        ours, theirs = weights(tmp_path / "whole" / folder), weights(tmp_path / "parts" / folder)
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    name = "encoder.feed_forward.0.up.weight"
    assert not torch.equal(weights(tmp_path / "whole" / "model")[name], weights(tmp_path / "whole" / other)[name])
    assert len(list_runs([tmp_path])) == 2  # the model folders are parts of their runs


def test_the_rate_follows_the_batch_and_masks_their_schedule(store, tmp_path):
    pretrain(settings(store, tmp_path / "run", recipe=CHANGING))
    rows = [row for row in read_metrics(tmp_path / "run") if "rate" in row]
    assert rows[0]["rate"] == pytest.approx(0.003 / 2**0.5, rel=1e-5) and rows[-1]["rate"] == pytest.approx(0.003)
    plain = ("mask_rate=0.3", *CHANGING[1:])
    pretrain(settings(store, tmp_path / "plain", recipe=plain))
    others = [row for row in read_metrics(tmp_path / "plain") if "rate" in row]
    assert rows[1]["mlm_loss"] == others[1]["mlm_loss"] and rows[-1]["mlm_loss"] != others[-1]["mlm_loss"]
