"""A run that reads several stores in turn, stopped and resumed where only the one that it needs is."""

import json
import shutil

import pytest
import torch
from toy_pretraining import settings, weights
from toy_stories import build_stories

from litebert.checkpoints.training import saved_states
from litebert.errors import InputError
from litebert.pretraining.run import pretrain
from litebert.train.metrics import read_metrics

RECIPE = ("batches.parts=[2,1,1]", "growth.depths=[[0,1],[0.3,2]]")


@pytest.fixture(scope="module")
def stores(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    return (store, *(build_stories(folder / f"part{seed}", store / "tokenizer", seed=seed) for seed in (2, 3)))


def same(one, other) -> bool:
    ours, theirs = weights(one), weights(other)
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_parts_follow_each_other_and_resuming_is_exact(stores, store, tmp_path):
    whole = pretrain(settings(store, tmp_path / "whole", recipe=RECIPE, corpus=stores))
    assert whole.status == "finished"
    first = pretrain(settings(store, tmp_path / "first", recipe=RECIPE[1:]))
    one, all_parts = (read_metrics(tmp_path / name) for name in ("first", "whole"))
    assert one[0]["loss"] == all_parts[0]["loss"]  # the first part is the first store alone
    assert first.held_out["loss"] != whole.held_out["loss"]
    state = torch.load(saved_states(tmp_path / "whole")[-1].folder / "state.pt")["train_state"]
    assert sorted(name[-6:] for name in state["positions"]) == ["part 1", "part 2", "part 3"]
    pretrain(settings(store, tmp_path / "cut", recipe=RECIPE, corpus=stores, save_steps=5))
    shutil.rmtree(saved_states(tmp_path / "cut")[-1].folder)
    assert saved_states(tmp_path / "cut")[-1].step == 10  # in the middle of the third
    again = pretrain(settings(store, tmp_path / "cut", recipe=RECIPE, corpus=stores, save_steps=5, resume=True))
    assert again.held_out == whole.held_out and same(tmp_path / "cut", tmp_path / "whole")


def test_one_part_at_a_time_on_different_machines(stores, store, tmp_path):
    whole = pretrain(settings(store, tmp_path / "whole", recipe=RECIPE, corpus=stores))
    for number in range(3):
        here = tmp_path / f"machine{number}"
        here.mkdir()
        shutil.copytree(stores[number], here / f"part{number}")
        places = tuple(here / f"part{other}" for other in range(3))
        run = tmp_path / "run"
        how = {"recipe": RECIPE, "corpus": places, "resume": number > 0}
        result = pretrain(settings(store, run, **how))
        if number < 2:
            assert result.status == "stopped" and f"part{number + 1}, is not on this machine" in result.notes[-1]
            with pytest.raises(InputError, match=f"part{number + 1}, is not on this machine"):
                pretrain(settings(store, run, **{**how, "resume": True}))
        shutil.rmtree(here)
    assert result.status == "finished" and result.held_out == whole.held_out and same(run, tmp_path / "whole")
    note = json.loads((run / "corpus" / "parts.json").read_text())
    assert all(note["fingerprints"]) and len(set(note["fingerprints"])) == 3


def test_parts_that_do_not_fit(stores, store, tmp_path):
    with pytest.raises(InputError, match="3 shares for 2 stores"):
        pretrain(settings(store, tmp_path / "run", recipe=RECIPE, corpus=stores[:2]))
    assert not (tmp_path / "run").exists()
    pretrain(settings(store, tmp_path / "run", recipe=RECIPE, corpus=stores))
    swapped = settings(store, tmp_path / "run", recipe=RECIPE, corpus=stores[::-1], resume=True)
    with pytest.raises(InputError, match="is not part 1 of this run: its fingerprint is"):
        pretrain(swapped)
