"""Runs on Ray: the figures and the models are those of runs that follow each other, also where a worker is killed."""

from pathlib import Path

import pytest
import torch
import toy_tasks
import toy_work
from toy_stories import build_stories

from litebert.checkpoints.folder import load_model
from litebert.cluster import place_runs, run_all
from litebert.shrinking.search import shrink_for_task
from litebert.tasks import finetune as finetuning
from litebert.tasks.finetune import finetune_seeds
from litebert_lab.study.run import StudySettings, run_study

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nodes", "one_thread")]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return toy_tasks.make_model(tmp_path_factory.mktemp("bert"))


def same_weights(one: Path, other: Path) -> bool:
    ours, theirs = (load_model(folder).network.state_dict() for folder in (one, other))
    return all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_seeds_with_a_worker_killed_midway(model, tmp_path, monkeypatch):
    data = toy_tasks.task("classify", 96)
    expected, _ = finetune_seeds(toy_tasks.settings(model, tmp_path / "here", epochs=2), data, 3)
    monkeypatch.setattr(finetuning, "run_all", toy_work.kill_first(run_all, tmp_path / "killed", step=4))
    settings = toy_tasks.settings(model, tmp_path / "ray", epochs=2, save_steps=2)
    place = place_runs("ray", "auto", cores=1)
    assert (place.at_once, place.device, place.is_in_turn) == (2, "cpu", False)
    found, _ = finetune_seeds(settings, data, 3, place)
    assert (tmp_path / "killed").exists()
    assert (found.scores, found.best) == (expected.scores, expected.best)
    assert same_weights(tmp_path / "ray" / "model", tmp_path / "here" / "model")


def test_a_search_for_the_fewest_layers(model, tmp_path):
    data, how = toy_tasks.task("classify", 64), {"tolerance": 0.6, "seeds": range(2), "strategies": ("top",)}
    expected, found = (
        shrink_for_task(toy_tasks.settings(model, tmp_path / on, epochs=2), data, place=place_runs(on, "cpu", 1), **how)
        for on in ("here", "ray")
    )
    assert found.found == expected.found and found.kept == expected.kept and found.after.scores == expected.after.scores
    assert same_weights(tmp_path / "ray" / "model", tmp_path / "here" / "model")


def test_rows_of_a_study(tmp_path):
    words = ["num_layers=2", "width=16", "embedding_width=8", "num_heads=2", "feed_forward_width=32"]
    words += ["batches.tokens=[[0,512]]", "batches.micro_tokens=512", "batches.lengths=[[0,32]]"]
    how = {"preset": "albert-tiny", "corpus": build_stories(tmp_path / "text"), "budget": None, "steps": 4}
    done = {}
    for on in ("here", "ray"):
        settings = StudySettings(study="dropout", out=tmp_path / on, words=tuple(words), **how)
        done[on] = run_study(settings, place_runs(on, "cpu", 1 if on == "ray" else 0))
    tables = {on: {name: seeds[0].table for name, seeds in study.scores.items()} for on, study in done.items()}
    assert done["ray"].complete and tables["ray"] == tables["here"]
