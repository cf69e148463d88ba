"""Warnings before training: each where there is cause, none where there is none."""

from litebert.tasks.checks import estimated_pieces, look_at
from litebert.tasks.examples import Example, TaskData


def task(train, dev=(), labels=("a", "b")):
    return TaskData(
        name="t", kind="classify", labels=labels, metrics=("accuracy",), train=tuple(train), dev={"dev": tuple(dev)}
    )


def example(n, text=None, target=None):
    return Example(key=str(n), first=text or f"text number {n}", target=n % 2 if target is None else target)


def test_good_data_is_passed_over_in_silence():
    assert look_at(task(map(example, range(100)), map(example, range(100, 120)))) == []


def only(data):
    """The one sentence that is said of it."""
    (sentence,) = look_at(data)
    return sentence


def test_balance():
    uneven = [example(n, target=int(n < 10)) for n in range(100)]
    dev = [example(n) for n in range(100, 120)]
    assert "90% of the training rows are 'a'" in only(task(uneven, dev))
    rare = [example(n, target=int(n < 3)) for n in range(10)]
    assert "few training rows of 'a' (7), 'b' (3)" in only(task(rare, dev))
    assert "no training rows of 'c'" in only(task(map(example, range(100)), dev, labels=("a", "b", "c")))
    assert "no dev rows of 'b'" in only(task(map(example, range(100)), [example(100)]))


def test_labels_that_are_spelled_in_two_ways():
    train = [example(n, target=n % 3) for n in range(99)]
    data = task(train, train[:0], labels=("Billing", "billing", "sales"))
    assert "case or spaces: 'Billing' and 'billing'" in only(data)


def test_duplicates_and_contradictions():
    train = [example(n) for n in range(100)] + [example(2 * n + 200, text=f"Text  number {2 * n}") for n in range(10)]
    assert "10 of 110 training rows repeat" in only(task(train))
    train = [example(n) for n in range(200)] + [example(3, text="text number 2", target=1)]
    assert "1 texts have more than one label, such as rows '2', '3'" in only(task(train))


def test_a_leak_from_train_to_dev():
    dev = [example(n) for n in range(95, 115)]
    assert "5 of 20 dev rows (25.0%) are in the training data, too" in only(task(map(example, range(100)), dev))


def test_lengths():
    long = [example(n, text=f"{n} " + "word " * 600) if n < 30 else example(n) for n in range(100)]
    assert "about 30% of the training rows are longer than 512 tokens" in only(task(long))
    huge = [*map(example, range(100)), example(100, text="x" * 100_000)]
    assert "row '100' has 100,000 characters" in only(task(huge))


def test_estimated_lengths_count_characters_where_words_are_not_parted():
    assert 10 <= estimated_pieces(example(0, text="これは日本語の文です")) <= 18
    assert 10 <= estimated_pieces(example(0, text="seven words make this sentence, short enough")) <= 15
