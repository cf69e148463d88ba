"""Real data for the tests of tasks: the archives beside the checkout, unpacked once."""

import tarfile

import pytest


@pytest.fixture(scope="session")
def real_data(shared_data, tmp_path_factory):
    """A folder with glue, squad, race and the sets in Chinese, Japanese and Korean, for ``shared`` tests."""
    folder = tmp_path_factory.mktemp("real")
    for name in ("glue", "squad", "race", "cjk"):
        with tarfile.open(shared_data / f"{name}.tar.xz") as archive:
            archive.extractall(folder, filter="data")
    return folder
