"""A run to an amount of arithmetic: the schedule of a budget of time, but the same on any machine."""

import shutil
from itertools import pairwise

import torch
from toy_pretraining import settings, weights

from litebert.checkpoints.training import saved_states
from litebert.pretraining.run import pretrain
from litebert.train.metrics import read_metrics
from litebert.train.settings import Bound

FLOPS = Bound(flops=7e9)
GROWING = ("growth.depths=[[0,1],[0.5,2]]", "growth.order_from=0")


def test_shares_of_the_run_are_shares_of_its_arithmetic(store, tmp_path):
    """Steps of twice the layers take the run further."""
    result = pretrain(settings(store, tmp_path / "run", recipe=GROWING, bound=FLOPS))
    rows = [row for row in read_metrics(tmp_path / "run") if "rate" in row and row["step"] % 10 == 0]
    gains = [after["progress"] - before["progress"] for before, after in pairwise(rows)]
    assert result.status == "finished" and 50 <= result.step <= 150 and rows[-1]["progress"] > 0.8
    assert 1.2 < gains[-1] / gains[0] < 2  # heads and embeddings cost the same at any depth
    assert max(gains[: len(gains) // 3]) < min(gains[-len(gains) // 3 :])


def test_it_goes_on_where_it_was(store, tmp_path):
    pretrain(settings(store, tmp_path / "whole", recipe=GROWING, bound=FLOPS, save_steps=40))
    pretrain(settings(store, tmp_path / "cut", recipe=GROWING, bound=FLOPS, save_steps=40))
    shutil.rmtree(saved_states(tmp_path / "cut")[-1].folder)
    result = pretrain(settings(store, tmp_path / "cut", recipe=GROWING, bound=FLOPS, save_steps=40, resume=True))
    assert result.status == "finished"
    for name, tensor in weights(tmp_path / "whole").items():
        assert torch.equal(tensor, weights(tmp_path / "cut")[name]), name
