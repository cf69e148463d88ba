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

# Every run of this file on two ranks: one launch takes them all in turn, so that Python and torch start only once.
RECIPES = {
    "adamw": (False, ("optimiser.name=adamw", "elastic=true")),
    "lamb": (False, ("optimiser.name=lamb",)),
    "replaced": (
        False,
        ("optimiser.name=adamw", "objective=replaced", "generator_depth=1", "growth.depths=[[0,1],[0.4,2]]"),
    ),
    "mined": (
        False,
        ("optimiser.name=adamw", "select.kind=hard-rows", "select.depth=1", "select.draw=weighted"),
    ),
    "mined_words": (True, ("optimiser.name=adamw", "select.kind=hard-tokens", "select.depth=1")),
    "averaged": (
        True,
        ("optimiser.name=adamw", "averaging.kind=ema", "averaging.span=0.3", "mask_rate=[[0,0.3],[0.5,0.15]]"),
    ),
    "grown": (True, ("optimiser.name=lamb", "elastic=true", "growth.depths=[[0,1],[0.4,2]]")),
}
ARITHMETIC = Bound(flops=1e9)
PERMUTATION = {"preset": "xlnet-small", "words": ("embedding_width=32",), "recipe": ("objective=permutation",)}
RUNS = {
    **{name: {"sharded": sharded, "recipe": recipe} for name, (sharded, recipe) in RECIPES.items()},
    "resumed": {"sharded": True},
    "permutation": PERMUTATION,
    "arithmetic": {"bound": ARITHMETIC},
}
SCRIPT = """
import sys
from pathlib import Path
import torch.distributed as dist
from litebert.pretraining.run import pretrain
from litebert.train.parallel import end_rank
sys.path[:0] = sys.argv[1:3]
import toy_pretraining as toy
from {this} import RUNS
leave, dist.destroy_process_group = dist.destroy_process_group, lambda: None  # the runs share the group
for name, how in RUNS.items():
    pretrain(toy.settings(Path(sys.argv[3]), Path(sys.argv[4]) / name, **{{"save_steps": 6, **how}}))
leave()
end_rank()
"""


@pytest.fixture(scope="module")
def two(store, tmp_path_factory) -> Path:
    """The folder with what two ranks made of every one of ``RUNS``."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "rank.py").write_text(SCRIPT.format(this=Path(__file__).stem))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    words = (folder / "rank.py", Path(toy_pretraining.__file__).parent, Path(__file__).parent, store, folder)
    done = subprocess.run(
        [*command, *map(str, words)], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.parametrize("name", RECIPES)
def test_two_ranks_lose_what_one_loses(name, store, two, tmp_path):
    pretrain(settings(store, tmp_path, recipe=RECIPES[name][1], save_steps=6))
    folders = (tmp_path, two / name)
    one, both = ({r["step"]: r for r in read_metrics(folder) if "rate" in r} for folder in folders)
    assert set(one) == set(both) and len(one) >= 3
    for step in one:
        for part in ("mlm_loss", "order_loss"):
            assert abs(one[step][part] - both[step][part]) < 1e-5 * max(1, one[step][part]), (step, part)
    scores = [[numbers(row) for row in read_metrics(folder) if "rate" not in row] for folder in folders]
    ours, theirs = (found[-1] for found in scores)  # how many there are is up to the clock
    assert "held_out/loss" in ours and ours == pytest.approx(theirs, rel=1e-4, abs=1e-2)  # of an accuracy, a few words


def test_resumed_with_another_number_of_ranks(store, two, tmp_path):
    pretrain(settings(store, tmp_path / "one", save_steps=6))
    resumed = shutil.copytree(two / "resumed", tmp_path / "two")
    shutil.rmtree(saved_states(resumed)[-1].folder)  # back to step 6
    assert [state.step for state in saved_states(resumed)] == [6]
    pretrain(settings(store, resumed, save_steps=6, resume=True))
    for name, tensor in weights(tmp_path / "one").items():
        torch.testing.assert_close(weights(resumed)[name], tensor, atol=2e-5, rtol=1e-4)


def test_two_ranks_draw_the_orders_of_one(store, two, tmp_path):
    pretrain(settings(store, tmp_path, save_steps=6, **PERMUTATION))
    one, both = ([r for r in read_metrics(folder) if "rate" in r] for folder in (tmp_path, two / "permutation"))
    assert len(one) == len(both) >= 3
    for ours, theirs in zip(one, both, strict=True):
        assert ours["permutation_loss"] == pytest.approx(theirs["permutation_loss"], rel=1e-5)


def test_two_ranks_do_the_arithmetic_of_one(store, two, tmp_path):
    one = pretrain(settings(store, tmp_path / "one", bound=ARITHMETIC))
    assert one.step > 5 and read_metrics(two / "arithmetic")[-1]["step"] == one.step
