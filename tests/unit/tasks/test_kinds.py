"""The six kinds of task: every one answers everything that the rest of the code asks of it."""

import subprocess
import sys
from typing import get_args

import pytest
import torch
import toy_tasks as toy

from litebert.checkpoints.folder import load_model
from litebert.errors import InputError
from litebert.nn.network import HeadName
from litebert.tasks.examples import EncodingSettings, Kind, TaskSpec
from litebert.tasks.kinds import KINDS
from litebert.tasks.metrics import IN_UNITS
from litebert.tasks.objective import SOFT_LOSSES
from litebert.tasks.predicting import Predictor, spec_of_heads
from litebert.tasks.prepare import start_network, task_heads
from litebert.tasks.recipes import FinetuneRecipe

NAMES = list(get_args(Kind))


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return load_model(toy.make_model(tmp_path_factory.mktemp("bert")))


def test_there_is_one_object_for_each_name():
    assert list(KINDS) == NAMES and all(kind.name == name for name, kind in KINDS.items())
    assert all(kind.head in get_args(HeadName) for kind in KINDS.values() if kind.name != "embed")
    assert len({kind.described for kind in KINDS.values()}) == 6


@pytest.mark.parametrize("name", NAMES)
def test_from_items_to_scores_and_back_to_words(name, source):
    kind, data = KINDS[name], toy.task(name, 12)
    heads = task_heads(data, answerable=False)
    network, _ = start_network(source.network, heads, FinetuneRecipe(), 0)
    spec = TaskSpec(kind=name, labels=data.labels, length=32)
    assert spec_of_heads(network.config) is None if name == "embed" else spec_of_heads(network.config).kind == name
    predictor = Predictor(network, source.tokenizer, spec, torch.device("cpu"))
    items = data.train
    found = predictor.predict(items)
    assert [one.key for one in found] == [item.key for item in items]
    scores = kind.evaluate(kind.default_metrics, items, found, len(data.labels))
    assert list(scores)[: len(kind.default_metrics)] == list(kind.default_metrics)
    assert all(-1 <= value <= 1 for metric, value in scores.items() if metric not in IN_UNITS)
    each = [kind.item_score(item, one) for item, one in zip(items, found, strict=True)]
    assert all(value >= 0 if kind.in_units else 0 <= value <= 1 for value in each)
    for item, one in zip(items, found, strict=True):
        assert kind.label_text(one.label, item, data.labels) and kind.target_text(item, data.labels)
        shown = kind.present(item, one, spec)
        assert shown.probability is None or 0 <= shown.probability <= 1
    inputs = kind.encode(items, source.tokenizer, EncodingSettings(length=32))
    assert kind.chance_loss(items, inputs, len(items) if kind.compares else len(data.labels)) > 0
    spread, _ = kind.spread(predictor.scores(inputs), inputs)
    assert spread > 0
    confusion, by_label = kind.breakdown(data.labels, items, found)
    assert len(confusion) == (len(data.labels) if kind.single_label else 0)
    assert len(by_label) == (len(data.labels) if kind.has_classes else 0)


@pytest.mark.parametrize("name", SOFT_LOSSES)
def test_what_can_be_distilled_has_a_loss_that_is_least_at_the_teacher(name):
    torch.manual_seed(0)
    taught = torch.randn(6, 1 if name == "regress" else 3)
    tensors = {"labels": torch.zeros(6, dtype=torch.long), "values": torch.zeros(6, taught.shape[1])}
    if name == "regress":
        tensors["values"] = torch.zeros(6)
    soft = SOFT_LOSSES[name]
    same, other = (soft(found, taught, tensors, 2.0) for found in (taught, taught + torch.randn(6, 1).sign()))
    further = soft(taught * -1, taught, tensors, 2.0)
    assert same <= further and same <= other + 1e-5


def test_rows_that_lack_something_are_told_what_they_need():
    for name, row, words in (
        ("span", {"question": "who"}, "needs a question and a context"),
        ("span", "who", "is a str"),
        ("choice", {"question": "who", "options": "abc"}, "must be a list of two or more"),
        ("choice", {}, "has no columns"),
    ):
        with pytest.raises(InputError, match=words):
            KINDS[name].item_of(row, "0", TaskSpec(kind=name))


def test_decoding_needs_no_torch():
    names = "litebert.tasks.kinds, litebert.tasks.examples, litebert.text.tokenizer"
    code = f"import sys, {names}; print('torch' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"
