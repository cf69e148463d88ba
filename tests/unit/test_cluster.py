"""Work on this machine: the order of results, memory, processes that die, runs at once and what stops them."""

import importlib
import os
import sys
import time

import pytest

from litebert.cluster import IN_FLIGHT, Placement, map_stream, place_runs, run_all
from litebert.errors import InputError

WORK = """
import os, signal, sys, threading, time
from functools import partial
from pathlib import Path

from litebert.errors import InputError

def double(task):
    return 2 * task

def process(task):
    return os.getpid()

def gpu(folder, run):
    "The GPU that a run sees, while another one has its own."
    (Path(folder) / f"run-{run}").touch()
    while len(list(Path(folder).glob("run-*"))) < 2:
        time.sleep(0.02)
    return os.environ["CUDA_VISIBLE_DEVICES"]

def terminal():
    return sys.stderr.isatty(), os.getpid()

def refuse(task):
    raise InputError(f"task {task} is wrong", parameter="task")

def die_once(folder, task):
    "Each third task kills its process, the first time that it is tried."
    mark = Path(folder) / str(task)
    if task % 3 == 0 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * task

def die_while_sending(folder, task):
    result = bytes(300_000_000)  # so large that a process which is killed a moment later has sent a part of it
    threading.Timer(float(folder), os.kill, (os.getpid(), signal.SIGKILL)).start()
    return result

def wait_until_stopped(folder):
    def stop(*_):
        (Path(folder) / "saved").touch()
        os._exit(0)
    signal.signal(signal.SIGTERM, stop)
    (Path(folder) / "waits").touch()
    time.sleep(60)

def fail_when_other_waits(folder):
    while not (Path(folder) / "waits").exists():
        time.sleep(0.05)
    raise InputError("this run failed")
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A module that the processes can import, too."""
    (tmp_path / "work_of_processes.py").write_text(WORK)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("work_of_processes")
    sys.modules.pop("work_of_processes")


def test_results_come_in_the_order_of_items(work):
    found = map_stream(work.double, (str(number) for number in range(20)), workers=2, sent=int)
    assert list(found) == [(str(number), 2 * number) for number in range(20)]


def test_a_single_worker_is_this_process(work):
    assert list(map_stream(work.process, [1], workers=1)) == [(1, os.getpid())]


def test_items_are_taken_only_when_there_is_room(work):
    taken = []
    found = map_stream(work.double, (taken.append(number) or number for number in range(100)), workers=2)
    for done, (number, _) in enumerate(found):
        assert len(taken) <= done + 1 + 2 * IN_FLIGHT
        assert number == done


def test_work_of_processes_that_die_is_done_again(work, tmp_path):
    found = map_stream(work.partial(work.die_once, str(tmp_path)), range(6), workers=2)
    assert list(found) == [(number, 2 * number) for number in range(6)]


@pytest.mark.parametrize("seconds", [0.01, 0.3])
def test_a_process_that_always_dies_while_sending_its_result_is_reported(work, seconds, monkeypatch):
    monkeypatch.setattr("litebert.cluster.RETRIES", 1)
    with pytest.raises(InputError, match="a worker process died 1 times"):
        list(map_stream(work.partial(work.die_while_sending, seconds), range(8), workers=2))


def test_a_mistake_found_by_a_worker_is_that_mistake(work):
    with pytest.raises(InputError, match="task 0 is wrong") as caught:
        list(map_stream(work.refuse, range(8), workers=2))
    assert caught.value.parameter == "task"


@pytest.mark.parametrize("at_once", [1, 2])
def test_runs_give_their_results_in_order(work, at_once):
    seen = {}
    jobs = [work.partial(work.double, number) for number in range(4)]
    assert run_all(jobs, on=Placement(at_once=at_once), needs={3: [0]}, finished=seen.__setitem__) == [0, 2, 4, 6]
    assert seen == {0: 0, 1: 2, 2: 4, 3: 6}


def test_runs_at_once_have_processes_of_their_own(work):
    found = run_all([work.partial(work.process, number) for number in range(3)], on=Placement(at_once=2))
    assert len({*found, os.getpid()}) == 4


def test_a_run_whose_process_dies_runs_again(work, tmp_path):
    jobs = [work.partial(work.die_once, str(tmp_path), number) for number in (3, 4)]
    assert run_all(jobs, on=Placement(at_once=2)) == [6, 8]


def test_an_error_stops_the_other_runs_which_save_their_state(work, tmp_path):
    jobs = [
        work.partial(work.wait_until_stopped, str(tmp_path)),
        work.partial(work.fail_when_other_waits, str(tmp_path)),
    ]
    begun = time.monotonic()
    with pytest.raises(InputError, match="this run failed"):
        run_all(jobs, on=Placement(at_once=2))
    assert (tmp_path / "saved").exists()
    assert time.monotonic() - begun < 50  # it slept for 60


def test_each_run_here_has_a_gpu_of_its_own(work, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    jobs = [work.partial(work.gpu, str(tmp_path), run) for run in range(2)]
    assert set(run_all(jobs, on=Placement(device="cuda", at_once=2))) == {"4", "7"}


def test_a_run_apart_has_a_process_that_draws_on_no_terminal(work):
    ((is_terminal, process),) = run_all([work.terminal], on=Placement(apart=True))
    assert not is_terminal and process != os.getpid()


@pytest.mark.parametrize(
    ("gpus", "cores", "at_once"), [(0, 0, 1), (0, 3, 2), (0, 8, 1), (4, 0, 4), (4, 4, 2), (1, 0, 1)]
)
def test_a_run_for_each_gpu_or_for_so_many_cores(gpus, cores, at_once, monkeypatch):
    monkeypatch.setattr("litebert.cluster.available_cores", lambda: 8)
    monkeypatch.setattr("litebert.cluster.usable_device", lambda device: "cuda" if gpus else "cpu")
    monkeypatch.setattr("litebert.cluster._visible_gpus", lambda: gpus)
    place = place_runs("here", "auto", cores)
    assert (place.at_once, place.device) == (at_once, "cuda" if gpus else "cpu")
    assert place.is_in_turn == (at_once == 1)
