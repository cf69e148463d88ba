"""States of a run: what is read is what was saved, whatever happened while it was saved or since."""

import errno
import json
import os
import random
import shutil
import signal
import time

import pytest
import torch

from litebert.checkpoints import training
from litebert.checkpoints.training import load_state, save_state, saved_states
from litebert.errors import InputError


def state_of(step):
    generator = torch.Generator().manual_seed(step)
    return {"step": step, "weights": {"a": torch.randn(50, 7, generator=generator)}, "random": torch.get_rng_state()}


def steps(run):
    return [saved.step for saved in saved_states(run)]


def names(run):
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def assert_loads(run, step, which="last"):
    found, state, notes = load_state(run, which=which)
    assert found == step == state["step"]
    assert torch.equal(state["weights"]["a"], state_of(step)["weights"]["a"])
    return notes


def test_everything_a_state_may_hold_comes_back(tmp_path):
    large = torch.arange(1000.0)
    state = {
        "numbers": [1, -2.5, True, None, 2**200],
        "words": {"text": "が é", 7: (1, "two")},
        "half": torch.ones(3, dtype=torch.bfloat16),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "view": large[10:12],
        "transposed": torch.arange(6.0).view(2, 3).T,
        "empty": torch.zeros(0),
    }
    folder = save_state(tmp_path, 3, state)
    _, read, notes = load_state(tmp_path)
    assert notes == []
    for name in ("numbers", "words"):
        assert read[name] == state[name] and type(read["words"][7]) is tuple
    for name in ("half", "parameter", "view", "transposed", "empty"):
        assert torch.equal(read[name], state[name]) and read[name].dtype == state[name].dtype
    assert read["view"].untyped_storage().nbytes() == 8
    assert (folder / "state.pt").stat().st_size < 4000 + 1000 * 4, "a view took its whole storage along"


def test_what_could_not_be_read_back_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(TypeError, match=r"state\.optimiser\.0\.kind is a set"):
        save_state(tmp_path, 1, {"optimiser": [{"kind": {1}}]})
    with pytest.raises(TypeError, match="key"):
        save_state(tmp_path, 1, {"a": {(1, 2): 3}})
    assert not (tmp_path / "checkpoints").exists()


def test_nothing_saved_is_none(tmp_path):
    assert load_state(tmp_path) is None and load_state(tmp_path / "missing", which="best") is None


def test_the_last_ones_and_the_best_stay(tmp_path):
    for step in range(1, 8):
        save_state(tmp_path, step * 10, state_of(step * 10), keep=2, best=step in (2, 3))
    assert steps(tmp_path) == [30, 60, 70]
    assert_loads(tmp_path, 70)
    assert_loads(tmp_path, 30, "best")
    assert_loads(tmp_path, 60, 60)
    with pytest.raises(InputError, match=r"no state of step 5; there is 30, 60, 70"):
        load_state(tmp_path, which=5)
    save_state(tmp_path, 80, state_of(80), keep=1, best=True)
    assert names(tmp_path) == ["best.json", "step-000000080"]


def test_after_a_rollback_the_last_is_the_one_saved_last(tmp_path):
    for step in (10, 20, 30):
        save_state(tmp_path, step, state_of(step), keep=3, best=step == 30)
    save_state(tmp_path, 15, state_of(15), keep=2)
    assert_loads(tmp_path, 15)
    assert_loads(tmp_path, 30, "best")
    save_state(tmp_path, 30, state_of(31) | {"step": 30}, keep=2)
    step, state, notes = load_state(tmp_path, which="best")
    assert "does not record which" in notes[0], "another state of the same step passed for the best one"
    assert torch.equal(state["weights"]["a"], state_of(31)["weights"]["a"])


def test_saving_a_step_again_keeps_its_mark(tmp_path):
    save_state(tmp_path, 10, state_of(10), best=True)
    save_state(tmp_path, 10, state_of(10))
    assert names(tmp_path) == ["best.json", "step-000000010"]
    assert assert_loads(tmp_path, 10, "best") == []


def damage_randomly(path, seed):
    """Cut a file or flip one bit of it, anywhere."""
    data = bytearray(path.read_bytes())
    chance = random.Random(seed)
    if seed % 3 == 0:
        data = data[: chance.randrange(len(data))]
    else:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


@pytest.mark.parametrize("seed", range(24))
def test_damage_is_noticed_and_the_state_before_is_used(tmp_path, seed):
    for step in (10, 20, 30):
        save_state(tmp_path, step, state_of(step), keep=3)
    damage_randomly(tmp_path / "checkpoints/step-000000030/state.pt", seed)
    notes = assert_loads(tmp_path, 20)
    assert "step 30 cannot be used" in notes[0] and "step 20 instead" in notes[1]


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "state.pt").unlink(),
        lambda folder: (folder / "checksum.json").unlink(),
        lambda folder: (folder / "checksum.json").write_text("{"),
        lambda folder: (folder / "checksum.json").write_text("[]"),
        lambda folder: (folder / "checksum.json").write_bytes(b"\xff\xfe"),
        lambda folder: shutil.copy(folder.with_name("step-000000010") / "checksum.json", folder),
    ],
)
def test_missing_and_foreign_files_are_noticed(tmp_path, damage):
    save_state(tmp_path, 10, state_of(10))
    save_state(tmp_path, 20, state_of(20))
    damage(tmp_path / "checkpoints/step-000000020")
    assert "step 20 cannot be used" in assert_loads(tmp_path, 10)[0]
    # The next save must not count the damaged one among those it keeps.
    save_state(tmp_path, 30, state_of(30), keep=2)
    assert steps(tmp_path) == [10, 30]


def test_a_damaged_best_falls_back(tmp_path):
    for step in (10, 20, 30):
        save_state(tmp_path, step, state_of(step), keep=3, best=step == 20)
    damage_randomly(tmp_path / "checkpoints/step-000000020/state.pt", 1)
    assert "step 20 cannot be used" in assert_loads(tmp_path, 10, "best")[0]


def test_when_all_are_damaged_it_says_so_instead_of_beginning_anew(tmp_path):
    for step in (10, 20):
        save_state(tmp_path, step, state_of(step))
    for step in (10, 20):
        damage_randomly(tmp_path / f"checkpoints/step-{step:09d}/state.pt", 0)
    with pytest.raises(InputError, match=r"no state of .* can be used .*step 20.*step 10"):
        load_state(tmp_path)


class Killed(BaseException):
    """Stands for SIGKILL: no handler of ours may run any code that matters."""


def die_at(monkeypatch, name, count):
    """Let the ``count``-th call of ``os.name`` and everything after it fail, as if the process were gone."""
    real, calls = getattr(os, name), []

    def call(*arguments, **options):
        calls.append(name)
        if len(calls) >= count:
            raise Killed
        return real(*arguments, **options)

    monkeypatch.setattr(os, name, call)
    # A killed process cleans nothing up.
    monkeypatch.setattr(training.shutil, "rmtree", lambda *_, **__: None)


@pytest.mark.parametrize("again", [False, True], ids=["a new step", "the same step"])
@pytest.mark.parametrize("name", ["fsync", "replace", "mkdir", "open"])
def test_killed_at_any_call_of_a_save(tmp_path, name, again):
    """At whatever call the process dies, the run goes on from the old state or from the new one, and cleans up."""
    survived = set()
    for count in range(1, 40):
        run = tmp_path / f"{count}"
        save_state(run, 10, state_of(10), keep=1, best=True)
        step = 10 if again else 20
        with pytest.MonkeyPatch.context() as patch:
            die_at(patch, name, count)
            try:
                save_state(run, step, state_of(step), keep=1, best=True)
                finished = True
            except Killed:
                finished = False
        found, state, notes = load_state(run)
        assert torch.equal(state["weights"]["a"], state_of(found)["weights"]["a"]) and notes == []
        assert found == step if finished else found in (10, step)
        survived.add(found)
        save_state(run, 30, state_of(30), keep=1, best=True)
        assert names(run) == ["best.json", "step-000000030"], "leftovers stayed"
        if finished:
            break
    else:
        raise AssertionError("never got through")
    assert count > 1 and survived <= {10, step}


@pytest.mark.parametrize("room", [0, 1000, 6000])
def test_a_full_disk_is_said_and_loses_nothing(tmp_path, monkeypatch, room):
    save_state(tmp_path, 10, state_of(10))
    before = (tmp_path / "checkpoints/step-000000010/state.pt").read_bytes()
    real = training._Digesting.write

    class Full:
        def __init__(self, file):
            self.file, self.left = file, room

        def write(self, data):
            self.left -= len(data)
            if self.left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return self.file.write(data)

    def write(self, data):
        if not isinstance(self._file, Full):
            self._file = Full(self._file)
        return real(self, data)

    monkeypatch.setattr(training._Digesting, "write", write)
    with pytest.raises(InputError, match=r"no room left to save step 20 .*saved before and whole: step 10.*--resume"):
        save_state(tmp_path, 20, {"x": torch.randn(10000)})
    assert names(tmp_path) == ["step-000000010"]
    assert (tmp_path / "checkpoints/step-000000010/state.pt").read_bytes() == before
    monkeypatch.undo()
    assert_loads(tmp_path, 10)


def test_reading_runs_no_code(tmp_path):
    folder = save_state(tmp_path, 1, state_of(1))

    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "ran"),))

    torch.save({"x": Evil()}, folder / "state.pt")
    data = (folder / "state.pt").read_bytes()
    note = json.loads((folder / "checksum.json").read_text())
    note |= {"bytes": len(data), "sha256": training.hashlib.sha256(data).hexdigest()}
    (folder / "checksum.json").write_text(json.dumps(note))
    with pytest.raises(InputError, match="torch cannot read it"):
        load_state(tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.long
def test_really_killed_at_random_moments(tmp_path):
    """A process that does nothing but save is killed twenty times; each time the last state it finished is there."""
    chance = random.Random(0)
    done = 0
    for _ in range(20):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            for step in range(done + 1, 10**6):
                save_state(tmp_path, step, state_of(step), keep=2, best=step % 3 == 0)
                os.write(writing, b".")
        os.close(writing)
        time.sleep(chance.uniform(0.0, 0.08))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        done += len(os.read(reading, 1 << 16))
        os.close(reading)
        if found := load_state(tmp_path):
            step, state, notes = found
            assert step in (done, done + 1) and notes == []
            assert torch.equal(state["weights"]["a"], state_of(step)["weights"]["a"])
            done = step
    assert done > 20
    save_state(tmp_path, done + 1, state_of(done + 1))
    assert [name for name in names(tmp_path) if name.startswith(".")] == [] and len(steps(tmp_path)) <= 3
