"""A Ray cluster of a head and two workers on this machine; skipped with a reason where Ray is not installed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

STORE = 100 << 20  # bytes of the object store of a node


@pytest.fixture(scope="session")
def ray_library() -> Any:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    return pytest.importorskip("ray", reason="needs Ray: pip install 'litebert[ray]'")


@contextmanager
def paths_of_workers() -> Iterator[None]:
    """Workers import litebert and the toys of the tests, as this process does."""
    with pytest.MonkeyPatch.context() as patch:
        tests = Path(__file__).parents[1]
        patch.setenv("PYTHONPATH", os.pathsep.join([str(tests.parent / "src"), str(tests / "toys")]))
        yield


@pytest.fixture
def one_node(ray_library: Any) -> Iterator[None]:
    """The smallest cluster: this machine with two workers; that of ``nodes`` where it was begun before."""
    if ray_library.is_initialized():
        yield
        return
    with paths_of_workers():
        options = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
        ray_library.init(address="local", num_cpus=2, object_store_memory=STORE, **options)
        yield
        ray_library.shutdown()


@pytest.fixture(scope="session")
def nodes(ray_library: Any) -> Iterator[Any]:
    """A cluster whose head does no work; this process is connected to it."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
    with paths_of_workers():
        cluster = Cluster(initialize_head=True, head_node_args=head)
        for _ in range(2):
            cluster.add_node(num_cpus=1, object_store_memory=STORE)
        ray_library.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
        ray_library.shutdown()
        cluster.shutdown()
