"""Work on Ray: order, bounded memory, workers and nodes that die, what stops everything."""

import contextlib
import os
import sys
from functools import partial
from pathlib import Path

import pytest
import toy_work

from litebert.cluster import IN_FLIGHT, map_stream, place_device, place_runs, run_all
from litebert.errors import InputError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nodes")]


def test_order_and_room(nodes):
    taken = []
    items = (taken.append(number) or number for number in range(200))
    for done, (number, doubled) in enumerate(map_stream(toy_work.double, items, on="ray")):
        assert (number, doubled) == (done, 2 * done)
        assert len(taken) <= done + 1 + 2 * IN_FLIGHT  # one worker for each of the two cores
    assert done == 199


def test_a_killed_worker_changes_nothing(nodes, tmp_path):
    work = toy_work.KilledOnce(toy_work.double, tmp_path / "killed", at=5)
    assert [found for _, found in map_stream(work, range(40), on="ray")] == [2 * number for number in range(40)]
    assert (tmp_path / "killed").exists()


def test_a_lost_node_changes_nothing(nodes):
    extra = nodes.add_node(num_cpus=1, object_store_memory=80 << 20)
    found = []
    for number, doubled in map_stream(toy_work.slow_double, range(120), on="ray", workers=3):
        found.append(doubled)
        if number == 20:
            nodes.remove_node(extra, allow_graceful=False)
    assert found == [2 * number for number in range(120)]


def test_work_that_always_kills_is_reported(nodes):
    with pytest.raises(InputError, match="a worker process died 3 times"):
        list(map_stream(toy_work.die, range(3), on="ray"))


def test_a_mistake_is_that_mistake(nodes):
    with pytest.raises(InputError, match="number is 0 but must be another") as caught:
        list(map_stream(toy_work.refuse, range(3), on="ray"))
    assert caught.value.parameter == "number"


def test_the_end_of_a_stream_ends_its_workers(nodes, ray_library):
    with contextlib.closing(map_stream(toy_work.process, range(100), on="ray")) as stream:
        workers = {next(stream)[1] for _ in range(20)}
    for _ in range(100):
        living = [pid for pid in workers if Path(f"/proc/{pid}").exists()]
        if not living:
            break
        ray_library.wait([ray_library.remote(num_cpus=0)(toy_work.double).remote(1)], timeout=0.2)
    assert workers and not living


def test_runs_resume_after_their_process_is_killed(nodes, tmp_path):
    jobs = [toy_work.Run(tmp_path, number, kills=number == 1) for number in range(4)]
    seen = {}
    found = run_all(jobs, on=place_runs("ray", cores=1), needs={0: [], 3: [1]}, finished=seen.__setitem__)
    assert found == [0, 1, 4, 9] and seen == dict(enumerate(found))
    assert (tmp_path / "killed").exists()
    assert {path.read_text() for path in tmp_path.glob("*.steps")} == {"0123"}


def test_runs_have_processes_of_their_own(nodes):
    found = run_all([partial(toy_work.process, number) for number in range(4)], on=place_runs("ray", cores=1))
    assert len({*found, os.getpid()}) == 5


def test_what_the_cluster_does_not_have(nodes):
    with pytest.raises(InputError, match="no node of the Ray cluster has 1 core and 1 GPU"):
        list(map_stream(toy_work.double, [1], on="ray", gpus=1))
    with pytest.raises(InputError, match="device is cuda"):
        place_device("ray", "cuda")
    assert place_device("ray", "auto") == "cpu"


def test_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'litebert\[ray\]'"):
        list(map_stream(toy_work.double, [1], on="ray"))
