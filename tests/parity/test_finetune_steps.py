"""Fine-tuning takes the very steps of a plain loop over transformers' model: same batches, rates, decay, clipping."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import toy_tasks as toy

from litebert.config import changed
from litebert.tasks.finetune import finetune, prepare
from litebert.tasks.predicting import load_predictor
from litebert.tasks.prepare import start_network, task_heads
from litebert_lab.bench.theirs import CLASS, their_model, their_rows, their_scores, train_theirs


@pytest.mark.parametrize("family", ["bert", "albert"])
@pytest.mark.parametrize("kind", ["classify", "regress"])
def test_twenty_steps_give_the_same_model(kind, family, tmp_path):
    model = toy.make_model(tmp_path / "model", family)
    data = toy.task(kind, 100)  # the last batch of an epoch is a short one
    recipe = toy.settings(model, tmp_path / "run").recipe
    values = {"optimiser.rate": 1e-2, "schedule.warmup": 0.2, "optimiser.clip": 0.5}
    recipe = changed(replace(recipe, steps=20, batch=16, scores=1, classifier_dropout=0.0), values)
    settings = replace(toy.settings(model, tmp_path / "run"), recipe=recipe)
    prepared = prepare(settings, data)
    network, _ = start_network(prepared.source.network, task_heads(data, answerable=False), prepared.recipe, 0)
    theirs = their_model(network, CLASS, prepared.tokenizer)
    begun = their_scores(theirs, prepared.dev[0].inputs, device="cpu", pad_id=0)
    rows = their_rows(prepared.inputs, prepared.targets)
    train_theirs(theirs, rows, prepared.recipe, device="cpu", seed=0, pad_id=0, plain=True)
    wanted = their_scores(theirs, prepared.dev[0].inputs, device="cpu", pad_id=0)
    finetune(settings, data, prepared)
    found = load_predictor(tmp_path / "run", device="cpu").scores(prepared.dev[0].inputs).scores
    assert np.abs(wanted - begun).max() > 0.05  # something was learnt
    assert np.abs(found - wanted).max() < 1e-4 * np.abs(wanted - begun).max()


def test_their_trainer_and_the_plain_loop_use_the_same_settings(tmp_path):
    """One batch an epoch, so that order does not matter: the Trainer takes the steps of the loop."""
    data = toy.task("classify", 32)
    settings = toy.settings(toy.make_model(tmp_path / "model"), tmp_path / "run")
    values = {"optimiser.rate": 2e-3, "schedule.warmup": 0.25}
    recipe = changed(replace(settings.recipe, steps=12, batch=32, classifier_dropout=0.0), values)
    prepared = prepare(replace(settings, recipe=recipe), data)
    network, _ = start_network(prepared.source.network, task_heads(data, answerable=False), prepared.recipe, 0)
    found = []
    for plain in (True, False):
        theirs = their_model(network, CLASS, prepared.tokenizer)
        rows = their_rows(prepared.inputs, prepared.targets)
        train_theirs(theirs, rows, prepared.recipe, device="cpu", seed=0, pad_id=0, plain=plain)
        found.append(their_scores(theirs, prepared.dev[0].inputs, device="cpu", pad_id=0))
    assert torch.isfinite(torch.from_numpy(found[0])).all()
    assert np.abs(found[0] - found[1]).max() < 1e-4
