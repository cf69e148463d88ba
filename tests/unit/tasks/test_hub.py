"""Tasks through the ``datasets`` library, with a library that has its interface but needs no network."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from litebert.errors import InputError
from litebert.tasks.sources import TASKS, hub_name, read_task


class Rows(list):
    """What ``datasets.Dataset`` offers of a list of rows."""

    def __init__(self, rows, names=None):
        super().__init__(rows)
        self.column_names = list(rows[0])
        self.features = {name: SimpleNamespace() for name in rows[0]}
        if names:
            self.features["label"] = SimpleNamespace(names=names)


@pytest.fixture
def library(monkeypatch):
    """A ``datasets`` library that holds what a test puts in ``sets``."""
    module = ModuleType("datasets")
    module.sets = {}

    def load_dataset(name, configuration=None):
        if (name, configuration) not in module.sets:
            raise FileNotFoundError(f"{name} is not there\nand more")
        return module.sets[name, configuration]

    module.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    return module.sets


def test_every_task_has_a_place():
    assert {hub_name(task)[0] for task in TASKS} == {
        "nyu-mll/glue",
        "rajpurkar/squad",
        "rajpurkar/squad_v2",
        "ehovy/race",
    }


def test_mnli_has_its_parts_and_hidden_labels(library):
    def rows(*labels):
        found = [{"premise": f"p{n}", "hypothesis": "h", "label": label, "idx": n} for n, label in enumerate(labels)]
        return Rows(found, ["entailment", "neutral", "contradiction"])

    library["nyu-mll/glue", "mnli"] = {
        "train": rows(0, 1, 2),
        "validation_matched": rows(2),
        "validation_mismatched": rows(1),
        "test_matched": rows(-1),
    }
    data = read_task("mnli", from_hub=True)
    assert [item.target for item in data.train] == [0, 1, 2]
    assert {part: items[0].target for part, items in data.dev.items()} == {"matched": 2, "mismatched": 1}
    assert data.test["matched"][0].target is None


def test_labels_are_matched_by_name_where_the_order_differs(library):
    rows = Rows([{"sentence1": "a", "sentence2": "b", "label": 0, "idx": 7}], ["not_entailment", "entailment"])
    library["nyu-mll/glue", "rte"] = {"validation": rows}
    (item,) = read_task("rte", from_hub=True).dev["dev"]
    assert (item.key, item.first, item.second, item.target) == ("7", "a", "b", 1)


def test_scores_stay_numbers(library):
    library["nyu-mll/glue", "stsb"] = {
        "validation": Rows([{"sentence1": "a", "sentence2": "b", "label": 3.8, "idx": 0}]),
        "test": Rows([{"sentence1": "a", "sentence2": "b", "label": -1.0, "idx": 0}]),
    }
    data = read_task("stsb", from_hub=True)
    assert data.dev["dev"][0].target == 3.8
    assert data.test["test"][0].target is None


def test_squad_and_race(library):
    answers = {"text": ["Rome"], "answer_start": [6]}
    row = {"id": "x", "title": "t", "context": "He is Rome", "question": "q", "answers": answers}
    library["rajpurkar/squad_v2", None] = {
        "validation": Rows([row, row | {"id": "y", "answers": {"text": [], "answer_start": []}}])
    }
    one, other = read_task("squad2", from_hub=True).dev["dev"]
    assert (one.answers[0].start, one.impossible, other.impossible) == (6, False, True)

    def race(identity, answer):
        return {
            "example_id": identity,
            "article": "p",
            "question": "q",
            "options": ["1", "2", "3", "4"],
            "answer": answer,
        }

    rows = Rows([race("high1.txt", "B"), race("high1.txt", "D"), race("middle2.txt", "A")])
    library["ehovy/race", "all"] = {"train": rows, "validation": rows, "test": rows}
    data = read_task("race", from_hub=True)
    assert [(item.key, item.target) for item in data.dev["high"]] == [("high1.txt-0", 1), ("high1.txt-1", 3)]
    assert [item.key for item in data.dev["middle"]] == ["middle2.txt-0"]


def test_any_set_as_a_table(library):
    rows = Rows([{"text": f"text {n}", "label": n % 2} for n in range(40)], ["neg", "pos"])
    library["owner/reviews", "small"] = {"train": rows}
    data = read_task(None, "owner/reviews:small", from_hub=True)
    assert (data.labels, len(data.train), len(data.dev["dev"])) == (("neg", "pos"), 36, 4)


def test_what_goes_wrong_is_said(library, monkeypatch):
    with pytest.raises(InputError, match=r"owner/none could not be loaded from the Hub \(owner/none is not there\)"):
        read_task(None, "owner/none", from_hub=True)
    with pytest.raises(InputError, match="needs task, or a data set's name"):
        read_task(from_hub=True)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=r"pip install 'litebert\[hub\]'"):
        read_task("sst2", from_hub=True)
