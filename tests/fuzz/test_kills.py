"""Runs that are killed at random moments, again and again, end as an undisturbed one does; full disks lose nothing.

Commands that cannot be resumed leave all or nothing: the next try begins without --overwrite.
"""

import hashlib
import json
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fuzz_calls import CALLS, SHAPE, make_world

KILLS = 20
STEPS = ("steps=12", "scores=2", "batch=4")
FORMS = {
    "corpus build": (*CALLS["corpus build"], "--shard-tokens", "60"),
    "pretrain": (*(word if word != "1" else "12" for word in CALLS["pretrain"][:-4]), "-o", "out", "--save-every", "1"),
    "finetune": ("{}/model", "--data", "{}/table.csv", *STEPS, "--save-every", "1", "-o", "out"),
    "distill": ("{}/tuned", "--data", "{}/table.csv", "--drop", "1", *STEPS, "--save-every", "1", "-o", "out"),
    "shrink": ("{}/model", "--tolerance", "50%", "--data", "{}/table.csv", "--seeds", "2", "--strategy", "top",
               *STEPS, "-o", "out"),
    "study": ("dropout", "--preset", "albert-tiny", "--steps", "6", "--corpus", "{}/store", "--device", "cpu", *SHAPE,
              "batches.tokens=[[0,512]]", "batches.micro_tokens=512", "batches.lengths=[[0,32]]", "-o", "out"),
}  # fmt: skip
AT_ONCE = {
    "export": CALLS["export"],
    "exits": ("{}/tuned", "--data", "{}/table.csv", "--items", "20", "-o", "out"),
    "page": ("{}/tuned", "-o", "out.html"),
}
LAB = ("study",)
RESUME_BY_THEMSELVES = ("corpus build", "study", *AT_ONCE)
RESULTS = (
    *("out/**/model.safetensors", "out/train-*/*.bin", "out/held_out-*/*.bin", "out/trials.jsonl", "out/study.json"),
    *("out/**/*.onnx", "out/exits.json", "out/exits.safetensors", "out.html"),
)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    return make_world(tmp_path_factory.mktemp("kills") / "world")


def start(command: str, world: Path, folder: Path, file_bytes: int | None = None) -> "subprocess.Popen[str]":
    words = [word.replace("{}", str(world)) for word in (FORMS | AT_ONCE)[command]]
    can_resume = command not in RESUME_BY_THEMSELVES and (folder / "out/run.json").is_file()
    resume = ["--resume"] if can_resume else []
    program = "litebert_lab" if command in LAB else "litebert"

    def limit() -> None:
        if file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

    return subprocess.Popen(
        [sys.executable, "-m", program, *command.split(), *words, *resume],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=limit,
    )  # fmt: skip


def result(folder: Path) -> dict[str, str]:
    """The digests of what a run is for; of trials only the scores, as times differ."""
    found = {}
    for pattern in RESULTS:
        for path in sorted(folder.glob(pattern)):
            content = path.read_bytes()
            if path.suffix == ".jsonl":
                rows = [json.loads(line) for line in content.splitlines()]
                content = repr([(row["kept"], row["seed"], row["score"]) for row in rows]).encode()
            found[str(path.relative_to(folder))] = hashlib.sha256(content).hexdigest()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("command", FORMS)
def test_killed_at_random_moments(command, world, tmp_path):
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    begun = time.monotonic()
    assert start(command, world, tmp_path / "whole").wait() == 0
    took = time.monotonic() - begun
    draw, kills = random.Random(0), 0
    while kills < KILLS:
        running = start(command, world, tmp_path / "killed")
        try:
            running.wait(draw.uniform(0.2, 1.0) * took)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
            kills += 1
        else:  # it ended, or had ended when it was killed: what it made counts, and the next kill is for another run
            said = running.communicate()[1]
            assert running.returncode == 0 or "is finished" in said, said[-600:]
            assert result(tmp_path / "killed") == result(tmp_path / "whole")
            (tmp_path / "killed").rename(tmp_path / f"done-{time.monotonic_ns()}")
            (tmp_path / "killed").mkdir()
    ended = start(command, world, tmp_path / "killed")
    said = ended.communicate()[1]
    assert ended.returncode == 0 or "is finished" in said, said[-600:]
    assert result(tmp_path / "killed") == result(tmp_path / "whole")
    assert not list(tmp_path.rglob(".model.*"))


@pytest.mark.slow
@pytest.mark.parametrize("command", AT_ONCE)
def test_killed_before_it_ended_it_leaves_nothing(command, world, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    begun = time.monotonic()
    first = start(command, world, whole)
    said = first.communicate()[1]
    if command == "page" and "onnxruntime-web" in said:
        pytest.skip(said)
    assert first.returncode == 0, said[-600:]
    took, draw = time.monotonic() - begun, random.Random(0)
    wanted = result(whole)
    assert wanted
    for _ in range(KILLS):
        running = start(command, world, killed)
        try:
            running.wait(draw.uniform(0.2, 1.0) * took)
        except subprocess.TimeoutExpired:
            running.kill()
        running.communicate()
        assert result(killed) in ({}, wanted)
        for name in ("out", "out.html"):  # what is there is complete
            if (killed / name).exists():
                assert result(killed) == wanted
                (killed / name).rename(tmp_path / f"done-{time.monotonic_ns()}")
    assert start(command, world, killed).wait() == 0 and result(killed) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("command", FORMS)
@pytest.mark.parametrize("kilobytes", [1, 8, 60])
def test_a_full_disk_is_one_sentence_and_loses_nothing(command, kilobytes, world, tmp_path):
    full = start(command, world, tmp_path, kilobytes << 10)
    said = full.communicate()[1]
    if full.returncode == 0:
        return  # everything fits
    assert full.returncode == 2 and "Traceback" not in said, said[-600:]
    assert sum(line.startswith(("litebert: ", "litebert-lab: ")) for line in said.splitlines()) == 1
    again = start(command, world, tmp_path)
    said = again.communicate()[1]
    assert again.returncode == 0, said[-600:]
