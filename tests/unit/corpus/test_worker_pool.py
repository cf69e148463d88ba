"""The pool of processes: order of results, and a process that dies while it sends one."""

import importlib
import sys

import pytest

from litebert.corpus.worker_pool import OrderedPool
from litebert.errors import InputError

WORK = """
import os, signal, threading

def nothing(_):
    pass

def double(task):
    return 2 * task

def dies_while_it_sends(seconds):
    result = bytes(300_000_000)  # so large that a process which is killed a moment later has sent a part of it
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return result
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A module that the processes can import, too."""
    (tmp_path / "work_of_processes.py").write_text(WORK)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("work_of_processes")
    sys.modules.pop("work_of_processes")


def test_results_come_in_the_order_of_tasks(work):
    pool = OrderedPool(2, work.nothing, None, work.double)
    try:
        assert list(pool.run((str(number), number) for number in range(20))) == [(str(n), 2 * n) for n in range(20)]
    finally:
        pool.stop()


@pytest.mark.parametrize("seconds", [0.01, 0.3, 0.5])
def test_a_process_that_dies_while_sending_its_result_is_reported(work, seconds):
    pool = OrderedPool(2, work.nothing, None, work.dies_while_it_sends)
    try:
        with pytest.raises(InputError, match="a worker process died"):
            list(pool.run((number, seconds) for number in range(8)))
    finally:
        pool.stop()
