"""Pretraining on two ranks, DDP and sharded, against one; and resumed with another number of ranks."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import toy_pretraining
from toy_pretraining import settings, weights

from litebert.checkpoints.training import saved_states
from litebert.pretraining.run import pretrain
from litebert.train.metrics import numbers, read_metrics
from litebert.train.settings import Bound

RANK = """
import sys
from pathlib import Path
sys.path.insert(0, {toys!r})
import toy_pretraining as toy
from litebert.pretraining.run import pretrain
from litebert.train.parallel import end_rank
how = dict(recipe={recipe!r}, sharded={sharded}, save_steps=6, bound=toy.{bound})
settings = toy.settings(Path({store!r}), Path({out!r}), **how)
pretrain(settings)
end_rank()
"""


def run_on_two_ranks(store: Path, out: Path, *, sharded: bool, recipe=(), bound=Bound(steps=12)) -> None:
    toys = str(Path(toy_pretraining.__file__).parent)
    script = out.with_suffix(".py")
    script.write_text(
        RANK.format(toys=toys, store=str(store), out=str(out), recipe=recipe, sharded=sharded, bound=bound)
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize(
    ("sharded", "recipe"),
    [
        (False, ("optimiser.name=adamw", "elastic=true")),
        (False, ("optimiser.name=lamb",)),
        (
            False,
            ("optimiser.name=adamw", "objective=replaced", "generator_depth=1", "growth.depths=[[0,1],[0.4,2]]"),
        ),
        (True, ("optimiser.name=adamw", "averaging.kind=ema", "averaging.span=0.3", "mask_rate=[[0,0.3],[0.5,0.15]]")),
        (True, ("optimiser.name=lamb", "elastic=true", "growth.depths=[[0,1],[0.4,2]]")),
    ],
)
def test_two_ranks_lose_what_one_loses(sharded, recipe, store, tmp_path):
    pretrain(settings(store, tmp_path / "one", recipe=recipe, save_steps=6))
    run_on_two_ranks(store, tmp_path / "two", sharded=sharded, recipe=recipe)
    one, two = ({r["step"]: r for r in read_metrics(tmp_path / name) if "rate" in r} for name in ("one", "two"))
    assert set(one) == set(two) and len(one) >= 3
    for step in one:
        for name in ("mlm_loss", "order_loss"):
            assert abs(one[step][name] - two[step][name]) < 1e-5 * max(1, one[step][name]), (step, name)
    scores = [[numbers(row) for row in read_metrics(tmp_path / name) if "rate" not in row] for name in ("one", "two")]
    ours, theirs = (found[-1] for found in scores)  # how many there are is up to the clock
    assert "held_out/loss" in ours and ours == pytest.approx(theirs, rel=1e-4, abs=1e-2)  # of an accuracy, a few words


def test_resumed_with_another_number_of_ranks(store, tmp_path):
    pretrain(settings(store, tmp_path / "one", save_steps=6))
    run_on_two_ranks(store, tmp_path / "two", sharded=True)
    shutil.rmtree(saved_states(tmp_path / "two")[-1].folder)  # back to step 6
    resumed = settings(store, tmp_path / "two", save_steps=6, resume=True)
    pretrain(resumed)
    for name, tensor in weights(tmp_path / "one").items():
        torch.testing.assert_close(weights(tmp_path / "two")[name], tensor, atol=2e-5, rtol=1e-4)


def test_two_ranks_do_the_arithmetic_of_one(store, tmp_path):
    bound = Bound(flops=1e9)
    one = pretrain(settings(store, tmp_path / "one", bound=bound))
    run_on_two_ranks(store, tmp_path / "two", sharded=False, bound=bound)
    assert one.step > 5 and read_metrics(tmp_path / "two")[-1]["step"] == one.step
