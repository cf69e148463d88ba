"""Optimisers on two ranks with FSDP2 against one process: the same weights and states."""

import json
import subprocess
import sys

import pytest
import torch
import toy_lessons
from toy_lessons import Lesson, one_step_on_given_gradients, settings_of, small_network, train, weights_of, worst

from litebert.train.optimisers import build_optimiser
from litebert.train.settings import OPTIMISERS


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    """What one process and what two ranks with FSDP2 made of the same lessons, by optimiser."""
    folder = tmp_path_factory.mktemp("ranks")
    alone = {}
    for name in OPTIMISERS:
        net = small_network(share="attention")
        optimiser = build_optimiser(net, settings_of(name))
        train(Lesson(net), optimiser, range(5))
        torch.save({"weights": net.state_dict(), "state": optimiser.state_dict()}, folder / f"{name}.begun")
        train(Lesson(net), optimiser, range(5, 10))
        alone[name] = {"weights": weights_of(net), "state": optimiser.state_dict()}
        alone[name]["one step"] = one_step_on_given_gradients(small_network(share="attention"), name)
    command = [sys.executable, toy_lessons.__file__]
    processes = [subprocess.Popen([*command, json.dumps([rank, 2, str(folder)])]) for rank in range(2)]
    try:
        assert [process.wait(timeout=120) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
    return alone, [torch.load(folder / f"found.{rank}") for rank in range(2)]


# Muon makes matrices orthogonal in bf16, which blows the last digits of a gradient up to about a hundredth of the
# 0.1 that a weight may go in these steps; given the same gradients, it is exact.
TOLERANCE = {"adamw": 1e-6, "lamb": 1e-6, "muon": 3e-3}
EXACT = {"adamw": 0.0, "lamb": 1e-7, "muon": 0.0}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_two_ranks_equal_one(two_ranks, name):
    alone, found = two_ranks
    for rank in found:
        assert worst(rank[f"{name} one step"], alone[name]["one step"]) <= EXACT[name]
        assert worst(rank[f"{name} straight"], alone[name]["weights"]) < TOLERANCE[name]
        assert worst(rank[f"{name} resumed"], alone[name]["weights"]) < TOLERANCE[name]
        assert rank[f"{name} state"].keys() == alone[name]["state"].keys()
        for key, slots in rank[f"{name} state"].items():
            assert worst(slots, alone[name]["state"][key]) < TOLERANCE[name], key


def test_the_hard_shards_were_there(two_ranks):
    first, second = (rank["lamb shards"] for rank in two_ranks[1])
    assert (first["encoder.attention.0.qkv.weight"], second["encoder.attention.0.qkv.weight"]) == (15, 15)
    assert (first["encoder.embeddings.token.weight"], second["encoder.embeddings.token.weight"]) == (31, 30)
    assert (first["heads.choice.linear.weight"], second["heads.choice.linear.weight"]) == (1, 0)
