"""Warnings before training: each where there is cause, none where there is none."""

from litebert.tasks.examples import Example, TaskData
from litebert.tasks.look import estimated_pieces, look_at


def task(train, dev=(), labels=("a", "b")):
    return TaskData(
        name="t", kind="classify", labels=labels, metrics=("accuracy",), train=tuple(train), dev={"dev": tuple(dev)}
    )


def example(n, text=None, target=None):
    return Example(key=str(n), first=text or f"text number {n}", target=n % 2 if target is None else target)


def test_good_data_is_passed_over_in_silence():
    assert look_at(task(map(example, range(100)), map(example, range(100, 120)))) == []


def only(sentences, words):
    assert len(sentences) == 1, sentences
    assert words in sentences[0]


def test_balance():
    uneven = [example(n, target=int(n < 10)) for n in range(100)]
    dev = [example(n) for n in range(100, 120)]
    only(look_at(task(uneven, dev)), "90% of the training rows are 'a'")
    rare = [example(n, target=int(n < 3)) for n in range(10)]
    only(look_at(task(rare, dev)), "few training rows of 'a' (7), 'b' (3)")
    only(look_at(task(map(example, range(100)), dev, labels=("a", "b", "c"))), "no training rows of 'c'")
    only(look_at(task(map(example, range(100)), [example(100)])), "no dev rows of 'b'")


def test_labels_that_are_spelled_in_two_ways():
    train = [example(n, target=n % 3) for n in range(99)]
    only(
        look_at(task(train, train[:0], labels=("Billing", "billing", "sales"))),
        "case or spaces: 'Billing' and 'billing'",
    )


def test_duplicates_and_contradictions():
    train = [example(n) for n in range(100)] + [example(2 * n + 200, text=f"Text  number {2 * n}") for n in range(10)]
    only(look_at(task(train)), "10 of 110 training rows repeat")
    train = [example(n) for n in range(200)] + [example(3, text="text number 2", target=1)]
    only(look_at(task(train)), "1 texts have more than one label, such as rows '2', '3'")


def test_a_leak_from_train_to_dev():
    dev = [example(n) for n in range(95, 115)]
    only(look_at(task(map(example, range(100)), dev)), "5 of 20 dev rows (25.0%) are in the training data, too")


def test_lengths():
    long = [example(n, text=f"{n} " + "word " * 600) if n < 30 else example(n) for n in range(100)]
    only(look_at(task(long)), "about 30% of the training rows are longer than 512 tokens")
    huge = [*map(example, range(100)), example(100, text="x" * 100_000)]
    only(look_at(task(huge)), "row '100' has 100,000 characters")


def test_estimated_lengths_count_characters_where_words_are_not_parted():
    assert 10 <= estimated_pieces(example(0, text="これは日本語の文です")) <= 18
    assert 10 <= estimated_pieces(example(0, text="seven words make this sentence, short enough")) <= 15
