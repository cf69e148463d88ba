"""Starts of several processes that torchrun may restart: a name for each start, the job's name, random numbers."""

import threading
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from toy_trainer import make

from litebert.train.parallel import Ranks, _name_of_start, restartable_job


def test_every_start_has_a_name_of_its_own_whatever_killed_processes_left_in_the_store():
    store = dist.HashStore()
    names: dict[int, str] = {}

    def start(rank: int) -> None:
        names[rank] = _name_of_start(store, rank, 3)

    seen = set()
    for _ in range(3):
        store.set("litebert/knock/1", "of a process that was killed before it heard the answer")
        threads = [threading.Thread(target=start, args=(rank,)) for rank in (0, 2, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert names.keys() == {0, 1, 2} and len(set(names.values())) == 1
        seen.add(names[0])
        names.clear()
    assert len(seen) == 3


def test_only_a_job_that_may_restart_has_a_name(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_MAX_RESTARTS", raising=False)
    assert not restartable_job()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "night")
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "0")
    assert not restartable_job()
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "3")
    assert restartable_job() == "night"
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")  # torchrun's default: its process stands for the job
    assert restartable_job() == restartable_job() != "none"


def test_each_rank_continues_its_own_random_numbers():
    trainer = make()
    states = []
    for seed in (3, 4):
        torch.manual_seed(seed)
        states.append(torch.get_rng_state())
    saved = {"world": 2, "cpu": states, "cuda": None}
    trainer.ranks = replace(trainer.ranks, rank=1, world=2)
    trainer._set_random(saved)
    assert torch.equal(torch.get_rng_state(), states[1])
    trainer.ranks = replace(trainer.ranks, rank=0, world=1)
    trainer._set_random(saved)  # another number of ranks: neither's
    assert not any(torch.equal(torch.get_rng_state(), state) for state in states)
    trainer._set_random({"world": 1, "cpu": states[0], "cuda": None})  # as older states have it
    assert torch.equal(torch.get_rng_state(), states[0])


def test_alone_there_is_nobody_to_ask():
    alone = Ranks.alone(torch.device("cpu"))
    assert alone.from_first("a") == "a" and alone.of_all(3) == [3]
    with pytest.raises(RuntimeError, match="as it was"), alone.one_error():
        raise RuntimeError("as it was")
