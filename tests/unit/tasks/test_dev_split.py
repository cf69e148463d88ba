"""A dev split that is made: its share, its classes, duplicates on one side, the same for a seed."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litebert.errors import InputError
from litebert.tasks.examples import Choice, Example, Question, text_key
from litebert.tasks.sources import split_dev


def examples(count, num_labels=2):
    return [Example(key=str(n), first=f"text {n}", target=n % num_labels) for n in range(count)]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3)), min_size=40, max_size=200),
    st.floats(0.1, 0.5),
    st.integers(0, 5),
)
def test_nothing_is_lost_and_no_text_is_on_both_sides(rows, share, seed):
    items = [Example(key=str(n), first=f" Text {word}", target=label) for n, (word, label) in enumerate(rows)]
    items += [Example(key=f"x{n}", first=f"own {n}", target=n % 4) for n in range(100)]
    train, dev = split_dev(items, share=share, seed=seed)
    assert sorted(map(id, items)) == sorted(map(id, (*train, *dev)))
    assert not {text_key(item) for item in train} & {text_key(item) for item in dev}
    assert [item.key for item in dev] == [item.key for item in items if item in dev], "the order is kept"
    assert abs(len(dev) - share * len(items)) <= 0.05 * len(items) + 4


def test_classes_have_their_share():
    items = [Example(key=str(n), first=f"t {n}", target=0 if n < 900 else 1) for n in range(1000)]
    _, dev = split_dev(items, share=0.1)
    assert Counter(item.target for item in dev) == {0: 90, 1: 10}


def test_case_and_space_do_not_make_another_text():
    items = [Example(key=str(n), first=f"Some  Text {n // 2}" if n % 2 else f"some text {n // 2} ") for n in range(100)]
    _, dev = split_dev(items)
    assert all(count == 2 for count in Counter(text_key(item) for item in dev).values())


def test_numbers_of_all_sizes_are_on_both_sides():
    items = [Example(key=str(n), first=f"t {n}", target=float(n)) for n in range(1000)]
    _, dev = split_dev(items, share=0.1)
    assert Counter(int(item.target // 100) for item in dev) == dict.fromkeys(range(10), 10)


def test_the_seed_decides():
    items = examples(200)
    assert split_dev(items, seed=1) == split_dev(items, seed=1)
    assert split_dev(items, seed=1) != split_dev(items, seed=2)


def test_questions_stay_with_their_article_and_passage():
    questions = [Question(key=str(n), title=f"t{n // 10}", passage=f"p{n // 5}", question=f"q{n}") for n in range(200)]
    train, dev = split_dev(questions, share=0.25)
    assert dev and not {item.title for item in train} & {item.title for item in dev}
    choices = [
        Choice(key=str(n), passage=f"p{n // 4}", question=f"q{n}", options=("a", "b"), target=0) for n in range(200)
    ]
    train, dev = split_dev(choices, share=0.25)
    assert dev and not {item.passage for item in train} & {item.passage for item in dev}


def test_a_class_of_one_stays_in_train():
    items = [*examples(100), Example(key="rare", first="rare", target=2)]
    for seed in range(10):
        assert "rare" in {item.key for item in split_dev(items, share=0.6, seed=seed)[0]}


@pytest.mark.parametrize("items", [examples(1), [Example(key=str(n), first="same") for n in range(50)]])
def test_too_few_is_said(items):
    with pytest.raises(InputError, match="too few to set some apart"):
        split_dev(items)
