"""Fine-tuned folders in transformers: the class with the head loads, the logits and losses are the same."""

import json

import numpy as np
import pytest
import torch
import toy_tasks as toy
import transformers

from litebert.tasks.encoding import TaskBatches
from litebert.tasks.finetune import finetune
from litebert.tasks.kinds import KINDS
from litebert.tasks.objective import TaskObjective
from litebert.tasks.predicting import load_predictor

CLOSE = 1e-5
CLASSES = {
    "classify": transformers.AutoModelForSequenceClassification,
    "multilabel": transformers.AutoModelForSequenceClassification,
    "regress": transformers.AutoModelForSequenceClassification,
    "choice": transformers.AutoModelForMultipleChoice,
    "span": transformers.AutoModelForQuestionAnswering,
}
PROBLEMS = {
    "classify": "single_label_classification",
    "multilabel": "multi_label_classification",
    "regress": "regression",
}


def padded(inputs, rows):
    """Inputs as transformers takes them."""
    parts = [slice(inputs.starts[row], inputs.starts[row + 1]) for row in rows]
    return {
        name: torch.nn.utils.rnn.pad_sequence(
            [torch.from_numpy(array[part]).long() for part in parts], batch_first=True
        )
        for name, array in (
            ("input_ids", inputs.ids),
            ("token_type_ids", inputs.segments),
            ("attention_mask", np.ones_like(inputs.ids)),
        )
    }


@pytest.mark.parametrize("family", ["bert", "albert"])
@pytest.mark.parametrize("kind", list(CLASSES))
def test_a_folder_loads_with_its_head_and_gives_the_same_logits_and_loss(kind, family, tmp_path):
    data = toy.task(kind, 64)
    model = toy.make_model(tmp_path / "start", family)
    finetune(toy.settings(model, tmp_path / "run", epochs=2, classifier_dropout=0.0), data)
    folder = tmp_path / "run" / "model"
    theirs, report = CLASSES[kind].from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"] and not report["mismatched_keys"]
    config = json.loads((folder / "config.json").read_text())
    assert config.get("problem_type") == PROBLEMS.get(kind)
    if data.labels:
        assert list(theirs.config.id2label.values()) == list(data.labels)
    predictor = load_predictor(folder, device="cpu")
    items = data.dev["dev"][:8]
    inputs = KINDS[kind].encode(items, predictor.tokenizer, predictor.note.encoding())
    ours = predictor.scores(inputs)
    batch = padded(inputs, range(len(inputs)))
    batch |= their_targets(kind, data, items, inputs)
    if kind == "choice":
        batch = {name: x.view(len(items), -1, *x.shape[1:]) if name != "labels" else x for name, x in batch.items()}
    with torch.no_grad():
        out = theirs.eval()(**batch)
    if kind == "span":
        for found, wanted in ((ours.scores, out.start_logits), (ours.ends, out.end_logits)):
            for row in range(len(inputs)):
                part = found[inputs.starts[row] : inputs.starts[row + 1]]
                assert np.abs(part - wanted[row, : len(part)].numpy()).max() < CLOSE
    else:
        assert np.abs(ours.scores.reshape(out.logits.shape) - out.logits.numpy()).max() < CLOSE
    targets = KINDS[kind].targets(items, inputs, len(data.labels))
    source = TaskBatches(inputs, targets, batch=len(items), choosing=kind == "choice")
    made = source.batch(0, 0)
    objective = TaskObjective(kind, inputs.longest, options=source.options)
    with torch.no_grad():
        part = objective.parts(predictor.network, objective.tensors(made, torch.device("cpu")))["task"]
    if kind != "span":  # theirs also looks for answers in the padding
        assert abs(float(part.loss) / objective.counts(made)["task"] - float(out.loss)) < CLOSE


def their_targets(kind, data, items, inputs) -> dict[str, torch.Tensor]:
    targets = KINDS[kind].targets(items, inputs, len(data.labels))
    if kind == "span":
        return {}
    return {"labels": torch.from_numpy(targets.labels if len(targets.labels) else targets.values)}


def test_the_loss_of_spans_is_theirs_without_padding(tmp_path):
    data = toy.task("span", 64)
    model = toy.make_model(tmp_path / "start")
    finetune(toy.settings(model, tmp_path / "run", epochs=1), data)
    predictor = load_predictor(tmp_path / "run", device="cpu")
    theirs = transformers.AutoModelForQuestionAnswering.from_pretrained(tmp_path / "run" / "model").eval()
    for item in data.dev["dev"][:4]:
        inputs = KINDS["span"].encode([item], predictor.tokenizer, predictor.note.encoding())
        targets = KINDS["span"].targets([item], inputs, 0)
        made = TaskBatches(inputs, targets, batch=len(targets)).batch(0, 0)
        objective = TaskObjective("span", inputs.longest)
        places = {"start_positions": torch.from_numpy(targets.labels), "end_positions": torch.from_numpy(targets.ends)}
        with torch.no_grad():
            ours = objective.parts(predictor.network, objective.tensors(made, torch.device("cpu")))["task"].loss
            wanted = theirs(**padded(inputs, range(len(inputs))), **places).loss
        assert abs(float(ours) / len(targets) - float(wanted)) < CLOSE
