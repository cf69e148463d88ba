"""A run that diverges goes back with a lower rate, one whose loss is to jump does not, one that is stuck is told."""

import json
import math
import shutil

import torch
from toy_pretraining import lose_everything_once, settings, weights

from litebert.checkpoints.training import load_state, saved_states
from litebert.pretraining.run import pretrain
from litebert.runs import read_run
from litebert.train.objective import Stage
from litebert.train.settings import Bound


def test_a_stage_that_raises_the_loss_is_no_divergence(store, tmp_path, monkeypatch):
    """The order loss, coming in late at ten times its weight, is not taken for an explosion."""
    usual = Stage.weight
    monkeypatch.setattr(Stage, "weight", lambda self, part: usual(self, part) * (10 if part == "order" else 1))
    late = ("growth.order_from=0.5", "optimiser.rate=0.01", "batches.tokens=[[0,512]]")
    result = pretrain(settings(store, tmp_path / "run", recipe=late, bound=Bound(steps=120)))
    assert result.status == "finished" and not any("went back" in note for note in result.notes)


def test_divergence_is_rolled_back_with_a_lower_rate(store, tmp_path):
    wild = settings(
        store,
        tmp_path / "run",
        recipe=("optimiser.rate=1e9", "schedule.warmup=0.5", "optimiser.clip=0"),
        bound=Bound(steps=60),
        save_steps=2,
    )
    result = pretrain(wild)
    text = " ".join(result.notes)
    assert "went back to step" in text and "rate times 0.5" in text
    assert result.status == "diverged" and "gave up after 3 rollbacks" in text
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "diverged"
    good = load_state(tmp_path / "run")[1]["weights"]  # the model is that of the last good state
    assert all(torch.equal(tensor, good[name]) for name, tensor in weights(tmp_path / "run").items())
    assert all(torch.isfinite(tensor).all() for tensor in good.values())


def test_divergence_in_the_last_steps_is_rolled_back_too(store, tmp_path, monkeypatch):
    """The eleventh of twelve steps, of which no line tells before the end; what was scored then is scored again."""
    monkeypatch.setattr("litebert.train.clock.SCORING_SHARE", 1e9)  # at every tenth of the run
    lose_everything_once(monkeypatch, 42)
    result = pretrain(settings(store, tmp_path / "run"))
    assert result.status == "finished" and result.step == 12
    assert "the loss is nan at step 11; went back to step 0" in " ".join(result.notes)
    assert math.isfinite(result.held_out["loss"])
    assert all(torch.isfinite(tensor).all() for tensor in weights(tmp_path / "run").values())


def test_what_a_deeper_network_destroys_is_little(store, tmp_path, monkeypatch):
    """Lost in the eighth step, two after the depth has grown: back to the state before it did."""
    lose_everything_once(monkeypatch, 30)
    growing = ("growth.depths=[[0,0.5],[0.5,1.0]]",)
    result = pretrain(settings(store, tmp_path / "run", recipe=growing))
    assert "the loss is nan at step 8; went back to step 6 with the rate times 0.5" in result.notes
    assert result.status == "finished" and tuple(read_run(tmp_path / "run").result["notes"]) == result.notes


def test_a_run_that_stays_at_word_frequencies_is_told_so_once(store, tmp_path):
    """It learns nothing; gone on with after that was said, it does not say it again."""
    still = {"recipe": ("optimiser.rate=1e-12",), "save_steps": 10}
    result = pretrain(settings(store, tmp_path / "run", **still))
    [note] = result.notes
    assert "after 83% of the run the masked-LM loss is" in note
    assert "has not begun to use context. Try the budget recipe" in note
    shutil.rmtree(saved_states(tmp_path / "run")[-1].folder)
    assert pretrain(settings(store, tmp_path / "run", resume=True, **still)).notes == ()
