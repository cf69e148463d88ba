"""run.json, the lock of a run folder, and the tree that ``litebert runs`` prints."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from litebert.errors import InputError
from litebert.runs import (
    Parent,
    RunLock,
    check_run_folder,
    is_in_use,
    list_runs,
    new_file,
    parent_of,
    parents_among,
    read_run,
    standing,
    tree,
    update_run,
    write_atomically,
    write_run,
)

HOLD = """
import sys, time
from pathlib import Path
from litebert.runs import RunLock
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    if len(sys.argv) > 2:
        import os
        if os.fork() == 0:
            print(os.getpid(), flush=True)  # the worker itself: by now it has let go of the lock
            time.sleep(60)
    sys.stdin.read()
"""


def make_run(folder, verb="pretrain", **options):
    folder.mkdir(parents=True, exist_ok=True)
    write_run(folder, verb, options.pop("settings", {"model": "albert-tiny"}), **options)
    return folder


def holder(run, *words):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    return process


def test_a_note_says_what_was_given_and_keeps_it_through_updates(tmp_path):
    parent = Parent(role="corpus", folder="store", fingerprint="abc")
    make_run(tmp_path, settings={"model": "albert-base", "path": tmp_path}, parents=[parent], status="running")
    first = read_run(tmp_path)
    assert (first.verb, first.model, first.status, first.parents) == ("pretrain", "albert-base", "running", (parent,))
    assert first.made and first.litebert and first.fingerprint and not first.ended
    update_run(tmp_path, result={"step": 5, "loss": 2.0})
    update_run(tmp_path, status="finished", result={"loss": 1.0})
    last = read_run(tmp_path)
    assert last.result == {"step": 5, "loss": 1.0} and last.status == "finished" and last.ended >= last.made
    assert (last.made, last.fingerprint, last.settings, last.parents) == (
        first.made,
        first.fingerprint,
        first.settings,
        first.parents,
    )


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"verb": 3, "litebert": "1"}', '{"verb": "x"}', "\x00"])
def test_files_of_others_are_passed_over(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    assert read_run(tmp_path) is None and list_runs([tmp_path]) == []


def test_a_note_with_odd_fields_is_still_read(tmp_path):
    note = {"verb": "convert", "litebert": "0.1", "parents": [1, {"folder": "x"}], "settings": 3, "result": None}
    (tmp_path / "run.json").write_text(json.dumps(note))
    info = read_run(tmp_path)
    assert info.settings == {} == info.result and info.status == "finished" and info.parents[0].folder == "x"


def test_runs_are_found_below_a_folder_once_and_not_inside_runs(tmp_path):
    make_run(tmp_path / "a")
    make_run(tmp_path / "a/model")
    make_run(tmp_path / "a/checkpoints/step-000000001")
    make_run(tmp_path / "a/shrunk")
    make_run(tmp_path / ".hidden")
    make_run(tmp_path / "deep/er/model")
    found = list_runs([tmp_path, tmp_path / "a"])
    assert sorted(str(run.folder.relative_to(tmp_path)) for run in found) == ["a", "a/shrunk", "deep/er/model"]


def test_lineage_by_fingerprint_and_folder(tmp_path):
    store = tmp_path / "store"
    store.mkdir()
    (store / "store.json").write_text('{"fingerprint": "0123456789abcdef"}')
    first = make_run(tmp_path / "first", parents=[parent_of("corpus", store)], result={"step": 1200})
    make_run(first / "model")
    second = make_run(
        tmp_path / "second",
        parents=[parent_of("corpus", store), parent_of("warm start", first / "model")],
        result={"step": 99, "held_out_loss": 2.5},
    )
    make_run(tmp_path / "third", parents=[parent_of("warm start", second)], status="diverged")
    lines = tree(list_runs([tmp_path])).splitlines()
    assert lines[1] == f"{store} (corpus 01234567)"
    assert lines[2].startswith(f"└─ {first} ") and "1,200" in lines[2]
    assert lines[3].startswith(f"   └─ {second} ") and lines[3].endswith("2.500")
    assert lines[4].startswith(f"      └─ {tmp_path / 'third'} ") and "diverged" in lines[4]
    first.rename(tmp_path / "zmoved")
    parents = parents_among(list_runs([tmp_path]))
    assert [run.folder.name for run in parents[second]] == ["zmoved"]
    shutil.copytree(tmp_path / "zmoved", first)
    assert [run.folder.name for run in parents_among(list_runs([tmp_path]))[second]] == ["first"]


def test_a_circle_of_parents_is_listed_like_any_other(tmp_path):
    for name, other in (("a", "b"), ("b", "a"), ("c", "a"), ("d", "d")):
        make_run(tmp_path / name, parents=[Parent(role="warm start", folder=str(tmp_path / other))])
    text = tree(list_runs([tmp_path]))
    assert all(text.count(f"─ {tmp_path / name} ") == 1 for name in "abcd")


def command(*words):
    return subprocess.run([sys.executable, "-m", "litebert", "runs", *words], capture_output=True, text=True)


def test_the_verb(tmp_path):
    make_run(tmp_path / "one", settings={"model": "albert-small"}, result={"held_out_loss": 3.25})
    shown = command(str(tmp_path))
    assert shown.returncode == 0 and "albert-small" in shown.stdout and "3.250" in shown.stdout
    [row] = json.loads(command(str(tmp_path), "--json").stdout)
    assert row["settings"] == {"model": "albert-small"} and row["status"] == "finished" and row["came_from"] == []
    assert command(str(tmp_path / "one"), "--json").stdout == command(str(tmp_path), "--json").stdout
    (tmp_path / "empty").mkdir()
    assert command(str(tmp_path / "empty")).stdout == "no runs here\n"
    missing = command(str(tmp_path / "missing"))
    assert missing.returncode == 2 and "is not a folder" in missing.stderr


def test_a_narrow_window_gets_a_narrow_tree(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, verb in (("words", "tokenizer train"), ("tuned", "finetune")):
        (tmp_path / name).mkdir()
        write_run(tmp_path / name, verb, {"model": f"somewhere/on/a/disk/{name}/model"}, result={"held_out_loss": 1.5})
    monkeypatch.setenv("COLUMNS", "120")
    wide = tree(list_runs([tmp_path.relative_to(tmp_path)]))
    assert "somewhere/on/a/disk/words/model" in wide and "tokenizer train" in wide and "held-out loss" in wide
    monkeypatch.setenv("COLUMNS", "80")
    lines = tree(list_runs([tmp_path.relative_to(tmp_path)])).splitlines()
    assert max(map(len, lines)) <= 80 and lines[0].endswith("held out")
    [tuned] = [line for line in lines if line.startswith("tuned")]
    assert "…k/tuned/model" in tuned and tuned.endswith("1.500")


@pytest.mark.parametrize(("verb", "resume"), [("tokenizer train", True), ("tokenizer train", False), (None, True)])
def test_a_folder_without_a_run_of_training_is_refused_as_it_is(tmp_path, verb, resume):
    (tmp_path / "notes.txt").touch()
    if verb:
        write_run(tmp_path, verb, {})
    with pytest.raises(InputError, match="holds no run of training; name another folder"):
        check_run_folder(tmp_path, resume)


def test_a_run_is_gone_on_with_only_when_that_is_said(tmp_path):
    with pytest.raises(InputError, match=r"there is no run in .* to resume"):
        check_run_folder(tmp_path, resume=True)
    check_run_folder(tmp_path, resume=False)
    write_run(tmp_path, "finetune", {})
    check_run_folder(tmp_path, resume=True)
    with pytest.raises(InputError, match="not empty; pass resume"):
        check_run_folder(tmp_path, resume=False)


def test_listing_runs_needs_no_torch(tmp_path):
    code = "import sys, litebert.runs, litebert.cli; print({'torch', 'numpy', 'rich.live'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_a_run_in_use_is_refused_with_the_name_of_the_process(tmp_path):
    run = make_run(tmp_path / "run", status="running")
    process = holder(run)
    try:
        assert is_in_use(run) and standing(read_run(run)) == "running"
        with pytest.raises(InputError, match=rf"run is in use by process {process.pid} on .* \(since"), RunLock(run):
            pass
    finally:
        process.communicate("")
    assert not is_in_use(run)
    with RunLock(run):
        assert is_in_use(run)
    assert not is_in_use(run)


def test_the_lock_of_a_killed_process_is_free_though_its_worker_lives(tmp_path):
    run = make_run(tmp_path / "run", status="running")
    process = holder(run, "fork")
    worker = int(process.stdout.readline())
    process.kill()
    process.wait()
    try:
        os.kill(worker, 0)  # fails where it is gone, and then this would test nothing
        assert not is_in_use(run) and standing(read_run(run)) == "killed"
        with RunLock(run):
            assert json.loads((run / "lock").read_text())["pid"] == os.getpid()
    finally:
        os.kill(worker, signal.SIGKILL)


def test_a_lock_survives_the_end_of_forked_workers(tmp_path):
    with RunLock(tmp_path):
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        assert is_in_use(tmp_path)


def test_only_one_of_many_gets_the_lock(tmp_path):
    code = HOLD.replace("sys.stdin.read()", "time.sleep(2)").replace("held", "won")
    begun = time.monotonic()
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for _ in range(4)
    ]
    won = [process.communicate()[0] for process in processes]
    assert time.monotonic() - begun < 30 and won.count(b"won\n") == 1


def test_a_run_on_another_host_is_not_called_killed(tmp_path):
    run = make_run(tmp_path, status="running")
    (run / "lock").write_text(json.dumps({"pid": 1, "host": "elsewhere", "since": "now"}))
    assert standing(read_run(run)) == "running on elsewhere"


@pytest.mark.parametrize("before", ["nothing", "a folder", "a file in it"])
def test_a_run_that_fails_at_once_leaves_nothing_of_its_own(tmp_path, before):
    run = tmp_path / "run"
    if before != "nothing":
        run.mkdir()
    with pytest.raises(InputError), RunLock(run):
        if before == "a file in it":
            (run / "metrics.jsonl").write_text("{}")
        raise InputError("no")
    assert run.exists() == (before != "nothing")
    assert (run / "metrics.jsonl").exists() == (before == "a file in it")
    with RunLock(run):
        pass
    assert (run / "lock").exists()  # of a run that ended well


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path, monkeypatch):
    def full(handle, data, offset):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(InputError, match="no room left on the disk"), RunLock(tmp_path / "run"):
        pass
    assert not (tmp_path / "run").exists()


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text(encoding="utf-8")), daemon=True)
    reader.start()
    write_atomically(pipe, "all of it\n")
    reader.join(timeout=10)
    assert read == ["all of it\n"]
    assert pipe.is_fifo() and list(tmp_path.iterdir()) == [pipe]


def test_a_file_that_is_not_finished_leaves_the_old_one(tmp_path):
    path = tmp_path / "figures.txt"
    write_atomically(path, "old")
    with pytest.raises(KeyError), new_file(path) as file:
        file.write("half of the n")
        raise KeyError
    assert path.read_text(encoding="utf-8") == "old" and list(tmp_path.iterdir()) == [path]
