"""Rows that a model was trained on are noticed when they are scored, whatever file they are in."""

from litebert.tasks.checks import REMEMBERED, fingerprint, remember, seen_warning
from litebert.tasks.examples import Choice, Example, Question

ROWS = [Example(key=str(number), first=f"text {number}", target=0) for number in range(1000)]


def test_training_rows_among_the_scored_ones_are_told():
    seen = remember(ROWS[:900])
    assert len(seen) == REMEMBERED
    told = seen_warning(seen, ROWS)
    assert told is not None and told.startswith(f"{REMEMBERED} of {REMEMBERED} training rows")
    assert seen_warning(seen, ROWS[900:]) is None
    assert seen_warning((), ROWS) is None


def test_few_rows_are_all_remembered():
    assert remember(ROWS[:5]) == tuple(fingerprint(row) for row in ROWS[:5])
    assert remember([]) == ()


def test_a_print_is_of_what_is_read_and_not_of_the_answer():
    assert fingerprint(Example(key="1", first="a", target=1)) == fingerprint(Example(key="2", first="a", target=0))
    assert fingerprint(Example(key="1", first="a", second="b")) != fingerprint(Example(key="1", first="b", second="a"))
    one, other = (Choice(key="1", passage="p", question="q", options=("x", word), target=0) for word in "yz")
    assert fingerprint(one) != fingerprint(other)
    questions = [Question(key="1", title="", passage="p", question=word, answers=()) for word in "ab"]
    assert fingerprint(questions[0]) != fingerprint(questions[1])
