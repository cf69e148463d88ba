"""RACE in its two forms, SQuAD in its two versions, and what is wrong with a file of them."""

import json

import pytest

from litebert.errors import InputError
from litebert.tasks.examples import Answer
from litebert.tasks.passages import read_questions
from litebert.tasks.sources import read_task, split_dev

PASSAGE = {
    "answers": ["A", "D"],
    "options": [["1", "2", "3", "4"], ["5", "6", "7", "8"]],
    "questions": ["It is _ .", "What?"],
    "article": "Text.",
    "id": "middle7.txt",
}


def squad(*entries, context="Paris is in France. Paris is big.", title="T"):
    return {"version": "x", "data": [{"title": title, "paragraphs": [{"context": context, "qas": list(entries)}]}]}


def entry(key="1", answers=(("Paris", 20),), **more):
    found = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": key, "question": "What is big?", "answers": found, **more}


def test_both_forms_of_race_read_the_same(tmp_path):
    for split in ("train", "dev", "test"):
        (tmp_path / "official/RACE" / split / "middle").mkdir(parents=True)
        (tmp_path / "official/RACE" / split / "middle/7.txt").write_text(json.dumps(PASSAGE))
        (tmp_path / "lines" / split).mkdir(parents=True)
        (tmp_path / "lines" / split / "middle.jsonl").write_text(json.dumps(PASSAGE) + "\n")
    one, other = read_task("race", tmp_path / "official"), read_task("race-middle", tmp_path / "lines")
    assert one.train == other.train
    assert one.dev == other.dev == {"middle": one.train}
    assert [(item.key, item.target, item.options[item.target]) for item in one.train] == [
        ("middle7.txt-0", 0, "1"),
        ("middle7.txt-1", 3, "8"),
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"answers": ["A", "E"]}, "answer to question 2 is 'E'"),
        ({"answers": ["A"]}, "is not a passage of RACE"),
        ({"article": None, "questions": 3}, "is not a passage of RACE"),
    ],
)
def test_a_broken_passage_is_said(change, expected, tmp_path):
    (tmp_path / "train").mkdir()
    (tmp_path / "train/middle.jsonl").write_text(json.dumps(PASSAGE) + "\n" + json.dumps(PASSAGE | change) + "\n")
    with pytest.raises(InputError, match=f"line 2.*{expected}"):
        read_task("race-middle", tmp_path)


def test_squad_of_two_versions(tmp_path):
    content = squad(entry(), entry("2", (), is_impossible=True, plausible_answers=[{"text": "France"}]))
    (tmp_path / "dev-v2.0.json").write_text(json.dumps(content))
    (tmp_path / "train-v1.1.json").write_text(json.dumps(squad(entry())))
    two, one = read_task("squad2", tmp_path), read_task("squad1", tmp_path / "train-v1.1.json", whole=True)
    assert two.has_null and not one.has_null
    assert [(q.key, q.impossible, len(q.answers)) for q in two.dev["dev"]] == [("1", False, 1), ("2", True, 0)]
    assert one.dev["dev"][0].answers[0].start == 20


def test_an_answer_is_found_near_where_it_should_be(tmp_path):
    passage = "Paris is in France. Paris is big."
    for text, start, found in (("Paris", 20, 20), ("Paris", 17, 20), ("Paris", 4, 0), ("London", 4, -1)):
        assert Answer.located(passage, text, start) == Answer(text=text, start=found)
    (tmp_path / "a.json").write_text(json.dumps(squad(entry(answers=(("Paris", 18), ("London", 0))))))
    notes = []
    (question,) = read_questions(tmp_path / "a.json", notes)
    assert [answer.start for answer in question.answers] == [20, -1]
    assert len(notes) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "not JSON"),
        ("[]", "not in SQuAD form"),
        (json.dumps(squad()), "no questions"),
        (json.dumps(squad({"id": 1})), r"question 1 cannot be read \('question' is missing\)"),
        (json.dumps(squad(entry(), context=" ")), "empty passage"),
        (json.dumps({"data": [{"title": "x"}]}), "no list of paragraphs"),
    ],
)
def test_a_broken_file_is_said(text, expected, tmp_path):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputError, match=expected):
        read_task("squad1", tmp_path / "a.json")


@pytest.mark.shared
def test_real_race(real_data):
    data = read_task("race", real_data / "race")
    assert {part: len(items) for part, items in data.dev.items()} == {"middle": 1436, "high": 3451}
    assert {part: len(items) for part, items in data.test.items()} == {"middle": 1436, "high": 3498}
    assert len(read_task("race-middle", real_data / "race").train) == 25421
    assert all(len(item.options) == 4 for item in data.train)


@pytest.mark.shared
def test_real_squad_is_split_by_article(real_data):
    train, dev = split_dev(read_task("squad1", real_data / "squad/dev-v1.1.json", whole=True).dev["dev"], share=1 / 3)
    assert len(train) + len(dev) == 10570
    assert 0.28 < len(dev) / 10570 < 0.38
    assert not {item.title for item in train} & {item.title for item in dev}
    for item in dev:
        for answer in item.answers:
            assert item.passage[answer.start : answer.start + len(answer.text)] == answer.text or answer.start == -1
