"""Fine-tuning with exits: the loss is that of all depths, and the model is left with exits and no other heads."""

import numpy as np
import pytest
import torch

import litebert as library
from litebert.early_exits.heads import EXITS_JSON, features_for_training
from litebert.early_exits.training import EXIT_HEADS, ExitTraining
from litebert.nn.layout import Layout
from litebert.runs import read_run
from litebert.tasks.encoding import Targets, TaskBatches
from litebert.tasks.examples import EncodingSettings, Example
from litebert.tasks.kinds import KINDS
from litebert.tasks.objective import TaskObjective


def test_the_loss_is_the_sum_over_depths_weighted_by_depth(model):
    loaded = library.load(model(), device="cpu")
    network = loaded.network
    items = [Example(key=text, first=text, target=number % 2) for number, text in enumerate(("abc", "d", "abcdefgh"))]
    inputs = KINDS["classify"].encode(items, loaded.tokenizer, EncodingSettings(length=16))
    labels = [item.target for item in items]
    batch = TaskBatches(inputs, Targets(np.arange(4), labels=np.array(labels)), batch=3).batch(0, 0)
    training = ExitTraining(hard=0.5, temperature=2.0)
    objective, weights = training.begin(TaskObjective("classify", 16), network, torch.device("cpu"))
    tensors = objective.tensors(batch, torch.device("cpu"))
    parts = objective.parts(network, tensors)
    assert weights == {"exits": 1.0} and objective.counts(batch) == {"task": 3, "exits": 3}
    layout = Layout(tensors["starts"], tensors["positions"], batch.longest)
    with torch.no_grad():
        states = network.encoder.states(tensors["ids"], layout, tensors["segments"])[1:]
        own = network.heads["classify"](network.pooled(states[-1], layout))
        expected = torch.zeros(())
        for depth in (1, 2, 3):
            seen = torch.stack(
                [torch.cat([one[0], one.mean(0)]) for one in states[depth - 1].split(layout.lengths.tolist())]
            )
            scores = network.heads[EXIT_HEADS][depth - 1](seen)
            hard = torch.nn.functional.cross_entropy(scores, tensors["labels"], reduction="sum")
            wanted = (own / 2).softmax(-1)
            soft = 4 * (wanted * (wanted.log() - (scores / 2).log_softmax(-1))).sum()
            expected += depth / 6 * (0.5 * hard + 0.5 * soft)
    torch.testing.assert_close(parts["exits"].loss.detach(), expected, atol=1e-4, rtol=1e-4)
    parts["exits"].loss.backward()
    assert all(head.weight.grad.abs().sum() > 0 for head in network.heads[EXIT_HEADS])
    training.end(network)
    assert list(network.heads) == ["classify"]


def test_filling_adds_nothing_to_the_features(model):
    network = library.load(model(), device="cpu").network
    states = torch.randn(9, 16)
    layout = Layout.of([4, 3, 2])
    filled = Layout(torch.tensor([0, 4, 7, 9, 9], dtype=torch.int32), layout.positions, 4)
    found = features_for_training(network, states, filled)
    torch.testing.assert_close(found[:3], features_for_training(network, states, layout))
    assert found.isfinite().all()


def test_finetuning_with_exits_leaves_a_model_that_has_them(litebert, model, table, tmp_path):
    data, run = table(), tmp_path / "run"
    words = ["--data", data, "--epochs", 3, "--learning-rate", 1e-3, "--exits", "--device", "cpu", "-o", run]
    code, _, err = litebert("finetune", model(family="albert"), *words)
    assert code == 0, err
    assert (tmp_path / "run" / "model" / EXITS_JSON).is_file()
    note = read_run(tmp_path / "run")
    assert note.verb == "finetune" and 1 <= note.result["exits"]["mean_depth"] <= 4
    tuned = library.load(tmp_path / "run", device="cpu")
    assert list(tuned.network.heads) == ["classify"] and tuned.exits is not None
    assert tuned.exits.report.mean_depth < 4
    assert tuned.predict("aaaab", exits=True).label == "early"


def test_what_cannot_be_combined_gets_one_sentence(litebert, model, table, tmp_path):
    code, _, err = litebert("finetune", model(), "--data", table(), "--exits", "--seeds", 2, "-o", tmp_path / "run")
    assert code == 2 and "cannot be combined" in err
    rows = [{"question": f"which {number}?", "options": ["a", "b"], "label": number % 2} for number in range(60)]
    with pytest.raises(library.InputError, match="leave together"):
        library.finetune(model(), rows, kind="choice", exits=True, out=tmp_path / "run", device="cpu")
