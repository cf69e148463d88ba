"""Folders that cannot be written to and disks that are full: one sentence, and nothing is lost or left.

A limit on the size of a file stands for the full disk (``tests/fuzz/test_kills.py`` resumes such runs).
"""

import hashlib
import shutil
from pathlib import Path

import pytest
from call_server import CallServer, Ended
from fuzz_calls import CALLS, make_world, snapshot

WRITERS: dict[str, tuple[str, ...]] = {
    **{name: words for name, words in CALLS.items() if "out" in words or "out.html" in words},
    "predict": ("{}/tuned", "{}/new.csv", "-o", "out.csv"),
    "evaluate": (*CALLS["evaluate"], "--html", "out.html"),
    "corpus look": (*CALLS["corpus look"], "--html", "out.html"),
    "layers": (*CALLS["layers"], "--html", "out.html"),
}
OVERWRITERS = ("tokenizer train", "shrink", "convert", "export")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with CallServer(tmp_path_factory.mktemp("server") / "scratch") as server:
        yield server


@pytest.fixture(scope="module")
def world(tmp_path_factory, server) -> Path:
    return make_world(tmp_path_factory.mktemp("disks") / "world", server)


def words_of(command: str, world: Path) -> list[str]:
    return [*command.split(), *(word.replace("{}", str(world)) for word in WRITERS[command])]


def sentence(ended: Ended) -> str:
    """The one sentence that a call ended with."""
    assert ended.code == 2, ended
    assert "Traceback" not in ended.said and not ended.left, ended
    [said] = [line for line in ended.said.splitlines() if line.startswith("litebert: ")]
    return said


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("command", WRITERS)
def test_a_folder_that_cannot_be_written_to(command, world, server, tmp_path):
    before = snapshot(world)
    tmp_path.chmod(0o555)
    try:
        said = sentence(server.call(words_of(command, world), tmp_path, plain=True))
    finally:
        tmp_path.chmod(0o755)
    assert "Permission denied" in said and "out" in said and "; choose" in said, said
    assert not list(tmp_path.iterdir()) and snapshot(world) == before


@pytest.mark.parametrize("command", WRITERS)
@pytest.mark.parametrize("limit", [3_000, *(pytest.param(other, marks=pytest.mark.slow) for other in (300, 30_000))])
def test_a_full_disk(command, limit, world, server, tmp_path):
    before = snapshot(world)
    ended = server.call(words_of(command, world), tmp_path, file_bytes=limit)
    if ended.code != 0:
        said = sentence(ended)
        assert "space" in said, said
        assert "again" in said or "resume" in said or not list(tmp_path.iterdir()), list(tmp_path.rglob("*"))
    assert snapshot(world) == before


@pytest.mark.parametrize("command", OVERWRITERS)
def test_what_a_full_disk_keeps_from_being_replaced_stays(command, world, server, tmp_path):
    words = words_of(command, world)
    assert server.call(words, tmp_path).code == 0
    before = contents(tmp_path)
    for limit in (300, 3_000):
        ended = server.call([*words, "--overwrite"], tmp_path, file_bytes=limit)
        assert "space" in sentence(ended)
        assert contents(tmp_path) == before
    shutil.rmtree(tmp_path / "out")
