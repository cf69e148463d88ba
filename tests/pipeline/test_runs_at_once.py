"""Several runs at once, in processes: the figures of runs that follow each other, whatever is killed or stopped."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import toy_tasks as toy
import toy_work

from litebert.checkpoints.folder import load_model
from litebert.cluster import IN_TURN, Placement, Stopped, run_all
from litebert.errors import InputError
from litebert.tasks import finetune as finetuning
from litebert.tasks.finetune import finetune_seeds

TWO = Placement(at_once=2)
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return toy.make_model(tmp_path_factory.mktemp("bert"))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_model(folder).network.state_dict()


def figures(found) -> dict:
    """What must not depend on where runs are."""
    return {name: value for name, value in vars(found).items() if name != "seconds"}


def test_two_at_once_with_one_killed_give_what_runs_in_turn_give(model, tmp_path, monkeypatch):
    data = toy.task("classify", 96)
    expected, _ = finetune_seeds(toy.settings(model, tmp_path / "turn", epochs=2), data, 2)
    killing = toy_work.kill_first(run_all, tmp_path / "killed", step=4)
    with monkeypatch.context() as patched:
        patched.setattr(finetuning, "run_all", killing)
        settings = toy.settings(model, tmp_path / "once", epochs=2, save_steps=2)
        found, results = finetune_seeds(settings, data, 2, TWO)
    assert (tmp_path / "killed").exists()
    assert figures(found) == figures(expected) and [result.steps for result in results] == [6, 6]
    ours, theirs = weights(tmp_path / "once" / "model"), weights(tmp_path / "turn" / "model")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_stopped_study_of_seeds_runs_again_only_what_is_missing(model, tmp_path, monkeypatch):
    data, ended = toy.task("classify", 96), []

    def stops(jobs, *, finished, **how):
        def first(index, result):
            finished(index, result)
            ended.append(index)
            raise KeyboardInterrupt

        return run_all(jobs, finished=first, **how)

    settings = toy.settings(model, tmp_path / "run", epochs=2)
    with monkeypatch.context() as patched:
        patched.setattr(finetuning, "run_all", stops)
        with pytest.raises(KeyboardInterrupt):
            finetune_seeds(settings, data, 2)
    done = tmp_path / "run" / f"seed-{ended[0]}" / "result.json"
    before = done.stat().st_mtime_ns
    assert sorted(path.parent.name for path in done.parents[1].glob("*/result.json")) == ["seed-0"]
    found, _ = finetune_seeds(replace(settings, resume=True), data, 2, TWO)
    assert done.stat().st_mtime_ns == before
    assert figures(found) == figures(finetune_seeds(replace(settings, out=tmp_path / "whole"), data, 2)[0])


def test_being_asked_to_stop_begins_no_other_run():
    done: list[int] = []
    with pytest.raises(Stopped, match="with resume to continue"):
        run_all([lambda: done.append(1), lambda: done.append(2)], on=IN_TURN, stop=done)
    assert done == [1]


@pytest.mark.slow
def test_layers_are_dropped_alike(litebert, tmp_path, model, monkeypatch):
    monkeypatch.setattr("litebert.cluster.available_cores", lambda: 2)
    rows = [f"{item.first},{item.target + number / 1000}" for number, item in enumerate(toy.items("regress", 80, 1))]
    (tmp_path / "table.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    words = ["shrink", model, "--tolerance", "90%", "--data", tmp_path / "table.csv", "--seeds", 2]
    words += [
        "--strategy",
        "top",
        "steps=100",
        "batch=32",
        "scores=1",
        "optimiser.rate=3e-3",
        "--device",
        "cpu",
        "--json",
    ]
    found = {}
    for name, more in (("turn", []), ("once", ["--cores", 1])):
        code, out, err = litebert(*words, "-o", tmp_path / name, *more)
        assert code == 0, err
        found[name] = json.loads(out)["found"]
    assert found["turn"] == found["once"] and found["turn"]["best"]["dropped"] == 1
    assert len({found["turn"]["whole"], found["turn"]["best"]["mean"]}) == 2
    ours, theirs = weights(tmp_path / "once" / "model"), weights(tmp_path / "turn" / "model")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_what_cannot_be_placed(litebert, model, tmp_path):
    words = ["finetune", model, "--data", tmp_path / "table.csv", "--out", tmp_path / "run"]
    (tmp_path / "table.csv").write_text("text,label\n" + "\n".join(f"good {n},{n % 2}" for n in range(30)) + "\n")
    code, _, err = litebert(*words, "--seeds", 2, "--cores", 5000, "--device", "cpu")
    assert code == 2 and "cores is 5000 but this machine has" in err
    code, _, err = litebert(*words, "--on", "ray")
    assert code == 2 and "on is ray, which is for several runs; use it with" in err
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match="on is 'rey' but must be here, ray or ray://HOST:PORT"):
        run_all([], on="rey")
