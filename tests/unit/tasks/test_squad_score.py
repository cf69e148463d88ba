"""SQuAD's scores: its normalisation, several answers, no answer, and the official figures on real predictions."""

import json
import random

import pytest

from litebert.tasks.examples import Answer, Question
from litebert.tasks.metrics import best_threshold, normalise, score_answer, score_answers
from litebert.tasks.passages import read_squad


def question(key, *answers):
    found = tuple(Answer(text=text, start=0) for text in answers)
    return Question(key=key, title="", passage="p", question="q", answers=found, impossible=not answers)


def test_normalisation_drops_case_articles_punctuation_and_spaces():
    assert normalise("  The  Cat's—tail, (an old one)! ") == "cats—tail old one"
    assert normalise("A B. a") == "b"


@pytest.mark.parametrize(
    ("answers", "found", "exact", "f1"),
    [
        (("the Denver Broncos",), "Denver Broncos!", 1.0, 1.0),
        (("a b c d",), "c d e", 0.0, 2 * (2 / 3) * (2 / 3) / (4 / 3)),  # "a" is an article
        (("x", "one two"), "two", 0.0, 2 / 3),
        (("x x y",), "x x x", 0.0, 2 / 3),
        (("yes",), "", 0.0, 0.0),
        ((), "", 1.0, 1.0),
        ((), "something", 0.0, 0.0),
    ],
)
def test_one_answer(answers, found, exact, f1):
    score = score_answer(question("k", *answers), found)
    assert (score.exact, score.f1) == (exact, pytest.approx(f1, abs=1e-15))


def test_questions_without_an_answer_are_also_scored_apart():
    questions = [question("1", "red"), question("2"), question("3")]
    scores = score_answers(questions, {"1": "red car", "2": "", "3": "blue"})
    assert scores["exact_match"] == pytest.approx(1 / 3)
    assert scores["f1"] == pytest.approx((2 / 3 + 1) / 3)
    assert scores["answerable_f1"] == pytest.approx(2 / 3)
    assert scores["unanswerable_accuracy"] == 0.5


@pytest.mark.parametrize("metric", ["f1", "exact_match"])
def test_the_threshold_is_the_best_there_is(metric):
    source = random.Random(3)
    for _ in range(50):
        questions = [question(str(n), *(["a b"] if source.random() < 0.6 else [])) for n in range(12)]
        found = {one.key: source.choice(["b", "b x", "no"]) for one in questions}
        odds = {one.key: float(source.randrange(6)) for one in questions}  # with ties
        best, score = best_threshold(questions, found, odds, metric=metric)

        def at(threshold, questions=questions, found=found, odds=odds):
            said = {key: "" if odds[key] > threshold else text for key, text in found.items()}
            return score_answers(questions, said)[metric]

        assert at(best) == pytest.approx(score)
        assert score == pytest.approx(max(at(threshold) for threshold in range(-2, 7)))


@pytest.mark.shared
def test_real_predictions_get_the_official_figures(real_data):
    data = read_squad("squad2", real_data / "squad")
    found = json.loads((real_data / "squad/predictions/bert-single-v2.0.json").read_text())
    scores = score_answers(data.dev["dev"], found)
    assert round(100 * scores["exact_match"], 2) == 78.74
    assert round(100 * scores["f1"], 2) == 81.78


@pytest.mark.shared
def test_scores_agree_with_an_evaluator_written_another_way(real_data):
    """SQuAD 1.1's real predictions, each scored by a slow re-telling of the rules: sorted lists instead of counters."""
    import re
    import string

    def words(text):
        kept = "".join(sign for sign in text.lower() if sign not in string.punctuation)
        return [word for word in re.split(r"\s+", kept) if word and word not in ("a", "an", "the")]

    def f1(one, other):
        rest, common = sorted(other), 0
        for word in one:
            if word in rest:
                rest.remove(word)
                common += 1
        return 2 * common / (len(one) + len(other)) if common else 0.0

    questions = read_squad("squad1", real_data / "squad").dev["dev"][::7]
    found = json.loads((real_data / "squad/predictions/bert-ensemble-v1.1.json").read_text())
    for one in questions:
        score = score_answer(one, found[one.key])
        assert score.f1 == pytest.approx(max(f1(words(a.text), words(found[one.key])) for a in one.answers))
        assert score.exact == any(words(a.text) == words(found[one.key]) for a in one.answers)
