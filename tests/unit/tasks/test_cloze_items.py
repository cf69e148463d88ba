"""The cloze items that ship as a quick check of a masked model: one gap each, answers any English vocabulary has."""

import json
from collections import Counter
from pathlib import Path

import pytest
import sentencepiece

FILE = Path(__file__).parents[3] / "examples" / "cloze.jsonl"


@pytest.fixture(scope="module")
def items() -> list[dict]:
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def test_enough_items_of_both_kinds_and_none_twice(items):
    kinds = Counter(item["kind"] for item in items)
    assert set(kinds) == {"grammar", "knowledge"}
    assert kinds["grammar"] >= 25
    assert len(items) >= 50
    assert len({item["text"] for item in items}) == len(items)


def test_an_item_has_one_gap_and_plain_lower_case_answers(items):
    for item in items:
        assert set(item) == {"text", "accept", "kind"}
        assert item["text"].count("[MASK]") == 1
        assert item["accept"] and len(set(item["accept"])) == len(item["accept"])
        assert all(word.isascii() and word.isalpha() and word.islower() for word in item["accept"])


@pytest.mark.shared
def test_every_answer_is_one_piece_of_the_released_albert_vocabulary(items, shared_data):
    pieces = sentencepiece.SentencePieceProcessor(str(shared_data / "vocab" / "albert-30k.model"))
    split = [word for item in items for word in item["accept"] if len(pieces.encode(word, out_type=str)) != 1]
    assert split == []
