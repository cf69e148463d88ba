"""Scores of items: matched by key, tables that add up, lengths, the hardest first; every form of predictions."""

import json

import pytest

from litebert.errors import InputError
from litebert.report import print_report, to_html, to_json
from litebert.tasks.examples import Answer, Choice, Example, ItemPrediction, Question, TaskData
from litebert.tasks.report import evaluation_report
from litebert.tasks.score import choose_parts, evaluate_file, evaluate_model, read_predictions, score_items

ITEMS = tuple(Example(key=f"k{n}", first="x" * (n + 1), target=n % 3) for n in range(30))
CLASSES = TaskData(
    name="own",
    kind="classify",
    labels=("red", "<green>", "blue"),
    metrics=("accuracy", "macro_f1"),
    train=(),
    dev={"dev": ITEMS},
)


def say(wrong=(), probability=0.9):
    """Predictions that are right but for some."""
    found = []
    for n, item in enumerate(ITEMS):
        label = (item.target + 1) % 3 if n in wrong else item.target
        rest = (1 - probability) / 2
        shares = tuple(probability if index == label else rest for index in range(3))
        found.append(ItemPrediction(key=item.key, label=label, probabilities=shares))
    return found


def test_predictions_are_matched_by_key():
    right = score_items(CLASSES, ITEMS, list(reversed(say())))
    assert right.main == right.metrics["accuracy"] == 1.0
    assert right.hardest == ()
    with pytest.raises(InputError, match="1 of 30 items of dev have no prediction, first 'k7'"):
        score_items(CLASSES, ITEMS, [one for one in say() if one.key != "k7"])


def test_tables_add_up():
    scores = score_items(CLASSES, ITEMS, say(wrong=(0, 3, 4)))
    assert scores.confusion == ((8, 2, 0), (0, 9, 1), (0, 0, 10))
    red = scores.by_label[0]
    assert (red.precision, red.recall, red.count) == (1.0, 0.8, 10)
    assert sum(row.count for row in scores.by_length) == 30
    assert [row.count for row in scores.by_length] == [6] * 5
    assert [round(row.score, 3) for row in scores.by_length] == [0.5, 1, 1, 1, 1]
    assert (scores.by_length[0].shortest, scores.by_length[-1].longest) == (1, 30)


def test_the_hardest_come_first():
    found = say(wrong=(2, 5))
    found[5] = ItemPrediction(key="k5", label=0, probabilities=(0.99, 0.005, 0.005))
    hard = score_items(CLASSES, ITEMS, found).hardest
    assert [(one.key, one.expected, one.predicted) for one in hard] == [("k5", "blue", "red"), ("k2", "blue", "red")]
    assert hard[0].probability == 0.005


def test_equal_lengths_are_never_parted():
    items = tuple(Example(key=str(n), first="abc" if n < 50 else "abcde", target=0) for n in range(60))
    scores = score_items(CLASSES, items, [ItemPrediction(key=item.key, label=0) for item in items])
    assert [(row.shortest, row.count) for row in scores.by_length] == [(3, 50), (5, 10)]


def other_kinds():
    question = Question(
        key="q", title="", passage="He is in Rome.", question="Where?", answers=(Answer(text="Rome", start=9),)
    )
    nowhere = Question(key="n", title="", passage="He is.", question="Where?", impossible=True)
    choice = Choice(key="c", passage="", question="Which?", options=("this", "that"), target=1)
    tags = Example(key="m", first="t", target=(0, 2))
    number = Example(key="r", first="t", target=2.5)
    return [
        ("span", (question, nowhere), ("in Rome", "x"), {"f1": 1 / 3, "exact_match": 0.0}, "Rome"),
        ("choice", (choice, choice), (1, 0), {"accuracy": 0.5}, "(B) that"),
        ("multilabel", (tags, tags), ((0, 2), (1,)), {"micro_f1": 2 * 2 / (2 + 2 + 3)}, "red, blue"),
        ("regress", (number, number), (2.5, 4.0), {"mean_absolute_error": 0.75}, "2.5"),
    ]


@pytest.mark.parametrize(
    ("kind", "items", "labels", "expected", "shown"), other_kinds(), ids=lambda value: str(value)[:8]
)
def test_other_kinds(kind, items, labels, expected, shown):
    data = TaskData(
        name="t", kind=kind, labels=CLASSES.labels, metrics=tuple(expected), train=(), dev={"dev": items}, has_null=True
    )
    found = [ItemPrediction(key=item.key, label=label) for item, label in zip(items, labels, strict=True)]
    scores = score_items(data, items, found)
    assert {name: scores.metrics[name] for name in expected} == pytest.approx(expected)
    assert list(scores.metrics)[: len(expected)] == list(expected)
    assert shown in {one.expected for one in scores.hardest}


def test_what_has_no_answers_cannot_be_scored():
    data = TaskData(
        name="t",
        kind="classify",
        labels=("a", "b"),
        metrics=("accuracy",),
        train=(),
        dev={"one": ITEMS},
        test={"test": (Example(key="1", first="x"),)},
    )
    with pytest.raises(InputError, match="no labels to score against"):
        choose_parts(data, "test")
    with pytest.raises(InputError, match="there is no train data of t; there is dev, test"):
        choose_parts(data, "train")
    with pytest.raises(InputError, match="no split 'onne'; did you mean 'one'"):
        choose_parts(data, "onne")
    assert choose_parts(data, "one") == choose_parts(data, None) == {"one": ITEMS}


@pytest.mark.parametrize("form", ["tsv", "names", "indices", "object", "csv"])
def test_forms_of_predictions(form, tmp_path):
    found = list(reversed(say(wrong=(1,))))
    path = (
        tmp_path
        / f"p.{'tsv' if form == 'tsv' else 'csv' if form == 'csv' else 'json' if form == 'object' else 'jsonl'}"
    )
    names = [CLASSES.labels[one.label] for one in found]
    if form == "tsv":
        path.write_text(
            "index\tprediction\n" + "".join(f"{one.key}\t{n}\n" for one, n in zip(found, names, strict=True))
        )
    elif form == "csv":
        path.write_text("id,label\n" + "".join(f"{one.key},{one.label}\n" for one in found))
    elif form == "object":
        path.write_text(json.dumps({one.key: name for one, name in zip(found, names, strict=True)}))
    else:
        rows = [
            {
                "key": one.key,
                "label": one.label if form == "indices" else name,
                "probabilities": list(one.probabilities),
            }
            for one, name in zip(found, names, strict=True)
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = read_predictions(path, CLASSES, ITEMS)
    assert [(one.key, one.label) for one in read] == [(one.key, one.label) for one in say(wrong=(1,))]
    if form == "names":
        assert read[0].probabilities == say()[0].probabilities


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "index\tprediction\nk0\tpurple\n",
            "line 2: the prediction 'purple' is not among.* <green>, blue, red",
        ),
        ("index\tprediction\nk0\tred\nk0\tred\n", "line 3: 'k0' is predicted a second time"),
        ("index\tprediction\nk0\tred\n", "no prediction for 29 of 30 items, first 'k1'"),
        ("number\tprediction\nk0\tred\n", "needs a column key"),
    ],
)
def test_broken_predictions_are_said(text, expected, tmp_path):
    (tmp_path / "p.tsv").write_text(text)
    with pytest.raises(InputError, match=expected):
        read_predictions(tmp_path / "p.tsv", CLASSES, ITEMS)


def parts_of_two(keys_differ):
    second = tuple(Example(key=f"{'j' if keys_differ else 'k'}{n}", first="y", target=0) for n in range(10))
    return TaskData(
        name="two",
        kind="classify",
        labels=CLASSES.labels,
        metrics=("accuracy",),
        train=(),
        dev={"one": ITEMS, "two": second},
    )


def test_parts_are_scored_apart_and_together(tmp_path):
    data = parts_of_two(keys_differ=True)
    path = tmp_path / "p.jsonl"
    lines = [{"key": item.key, "label": "red"} for items in data.dev.values() for item in items]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = evaluate_file(data, path)
    assert [(scores.part, round(scores.main, 3)) for scores in found.parts] == [
        ("one", 0.333),
        ("two", 1.0),
        ("together", 0.5),
    ]
    with pytest.raises(InputError, match=r"choose the one that .* is for with split=one or two"):
        evaluate_file(parts_of_two(keys_differ=False), path)


def test_depths_are_scored_and_shown():
    found = evaluate_model(
        CLASSES, "a model", lambda items, depth: say(wrong=range(3 if depth is None else 20 // depth)), depths=[2, 4]
    )
    assert [(row.depth, row.metrics["accuracy"]) for row in found.depths] == [(2, 20 / 30), (4, 25 / 30)]
    assert found.parts[0].main == 27 / 30
    page = to_html(evaluation_report(found))
    assert "66.67" in page and "83.33" in page and "90.00" in page


def test_the_page_stands_alone_and_is_safe(capsys):
    found = evaluate_model(CLASSES, "<b>model", lambda items, depth: say(wrong=(1, 2)))
    page = to_html(evaluation_report(found))
    assert "<green>" not in page and "&lt;green&gt;" in page and "<b>model" not in page
    assert "src=" not in page and 'href="http' not in page.replace('xlink:href="#', "")
    assert "<svg" in page
    print_report(evaluation_report(found))
    assert "<green>" in capsys.readouterr().out
    assert json.loads(to_json(evaluation_report(found)))["parts"][0]["metrics"]["accuracy"] == 28 / 30
