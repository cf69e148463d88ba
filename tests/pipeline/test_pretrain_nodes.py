"""Pretraining over two nodes, each a torchrun of its own on this machine: killed ranks, and run folders apart."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from toy_pretraining import RECIPE, WORDS

STEPS, SAVE_EVERY = 40, 8


def start_nodes(store: Path, folders: list[Path], *words: str) -> "list[subprocess.Popen[str]]":
    """A torchrun for each folder that it is started in; the run is ``out`` there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torchrun = [
        *(sys.executable, "-m", "torch.distributed.run", f"--nnodes={len(folders)}", "--nproc-per-node=1"),
        *("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", f"--rdzv-id=job-{port}"),
    ]
    command = [
        *("-m", "litebert", "pretrain", "albert-tiny", *WORDS, *RECIPE, "--recipe", "paper", "--corpus", str(store)),
        *("--out", "out", "--steps", str(STEPS), "--save-every", str(SAVE_EVERY), "--device", "cpu"),
    ]
    paths = os.pathsep.join(str(Path(path).resolve()) for path in sys.path if path)  # PYTHONPATH may be relative
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    return [
        subprocess.Popen(
            [*torchrun, *(word for word in words if word.startswith("--max-restarts")), *command,
             *(word for word in words if "--max-restarts" not in word)],
            cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for folder in folders
    ]  # fmt: skip


def rank_below(parent: int) -> dict[int, int]:
    """The processes that a torchrun has started, by rank."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    found = {}
    for child in map(int, children):
        words = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        found |= {int(word.removeprefix(b"RANK=")): child for word in words if word.startswith(b"RANK=")}
    return found


def weights_of(folder: Path) -> bytes:
    return (folder / "out/model/model.safetensors").read_bytes()


@pytest.mark.slow
def test_a_killed_rank_is_restarted_and_nothing_changes(store, tmp_path):
    whole = tmp_path / "whole"
    whole.mkdir()
    for node in start_nodes(store, [whole, whole], "dropout=0.1"):
        said = node.communicate(timeout=150)[0]
        assert node.returncode == 0, said[-3000:]
    for rank in (0, 1):
        folder = tmp_path / f"killed-{rank}"
        folder.mkdir()
        nodes = start_nodes(store, [folder, folder], "dropout=0.1", "--max-restarts=2")
        while not (folder / f"out/checkpoints/step-{2 * SAVE_EVERY:09d}").is_dir():
            assert all(node.poll() is None for node in nodes)
            time.sleep(0.02)
        ranks = {rank: process for node in nodes for rank, process in rank_below(node.pid).items()}
        os.kill(ranks[rank], signal.SIGKILL)
        said = [node.communicate(timeout=150)[0] for node in nodes]
        assert [node.returncode for node in nodes] == [0, 0], said
        assert any("restarted: continuing the run" in one for one in said)
        assert sum("lost contact with another process" in one for one in said) == 1
        assert "please report" not in "".join(said)
        assert weights_of(folder) == weights_of(whole)


@pytest.mark.slow
def test_run_folders_that_the_nodes_do_not_share_are_refused_in_one_sentence(store, tmp_path):
    folders = [tmp_path / name for name in ("node-0", "node-1")]
    for folder in folders:
        folder.mkdir()
    nodes = start_nodes(store, folders)
    said = "".join(node.communicate(timeout=150)[0] for node in nodes)
    assert all(node.returncode for node in nodes)
    assert said.count("litebert: ") == 1 and "is not the folder of rank 0; put the run folder on a disk" in said


@pytest.mark.slow
def test_a_restart_does_not_take_over_the_run_of_another_job(store, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/run.json").write_text('{"verb": "pretrain", "litebert": "0", "settings": {"job": "yesterday"}}')
    (node,) = start_nodes(store, [tmp_path], "--max-restarts=1")
    said = node.communicate(timeout=150)[0]
    assert node.returncode and said.count("out is not empty; pass resume to continue the run there") == 2
