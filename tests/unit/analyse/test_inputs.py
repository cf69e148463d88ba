"""Text is read as it is needed, in batches of a bounded size, and every text once."""

from itertools import count

import pytest

from litebert.analyse.inputs import BATCH_TOKENS, WINDOW, batches, first_tokens, text_lines
from litebert.errors import InputError
from litebert.nn.config import EncoderConfig
from litebert.text.tokenizer_files import pattern_tokenizer

CONFIG = EncoderConfig(vocab_size=40, width=8, embedding_width=8, num_heads=2, feed_forward_width=8, max_positions=64)


@pytest.fixture
def letters(tmp_path):
    """A tokenizer whose tokens are single letters."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    return pattern_tokenizer(tmp_path / "vocab.txt", r".")


def test_no_more_is_read_than_is_needed(letters):
    read = 0

    def endless():
        nonlocal read
        for number in count():
            read += 1
            yield "abc" * (1 + number % 30)

    found = batches(endless(), letters, CONFIG)
    for _ in range(50):
        next(found)
    assert read <= 6 * WINDOW


def test_every_text_comes_once_and_batches_are_bounded(letters):
    lengths = [1 + (7 * number) % 60 for number in range(3 * WINDOW + 5)]
    found = list(batches(iter("a" * length for length in lengths), letters, CONFIG))
    assert sorted(length for one in found for length in one.layout.lengths.tolist()) == sorted(n + 2 for n in lengths)
    assert all(one.layout.num_sequences * one.layout.longest <= BATCH_TOKENS for one in found)


def test_long_texts_are_cut_to_the_positions(letters):
    (inputs,) = batches(iter(["abc" * 100]), letters, CONFIG)
    assert inputs.layout.lengths.tolist() == [64] and inputs.ids[-1] == letters.sep_id


def test_lines_are_texts_and_blank_ones_are_not(tmp_path):
    (tmp_path / "text.txt").write_text("one\ntwo\n\n  \nthree\n")
    assert list(text_lines([str(tmp_path / "text.txt")])) == ["one", "two", "three"]
    assert list(text_lines([str(tmp_path / "text.txt")], 2)) == ["one", "two"]


def test_a_sample_stops_when_it_has_enough(letters):
    assert list(first_tokens(iter(["abcd"] * 100), letters, 9)) == ["abcd"] * 3


def test_a_tokenizer_of_another_model_is_an_error(letters):
    small = EncoderConfig(vocab_size=10, width=8, embedding_width=8, num_heads=2, feed_forward_width=8)
    with pytest.raises(InputError, match="set tokenizer to the model's own"):
        list(batches(iter(["xyz"]), letters, small))
