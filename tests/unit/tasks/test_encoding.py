"""Items to inputs: what is cut, what is joined, where windows lie, and that answers are where they were."""

import numpy as np
import pytest
from toy_tasks import items as toy_items

from litebert.errors import InputError
from litebert.tasks.encoding import NULL
from litebert.tasks.examples import Answer, Choice, EncodingSettings, Example, Question
from litebert.tasks.kinds import KINDS
from litebert.tasks.kinds.span import windows
from litebert.text.tokenizer_files import read_tokenizer

WORDS = [*"abcdefghij", "who", "what", "is", "##x", "."]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    (folder / "vocab.txt").write_text("\n".join(SPECIAL + WORDS) + "\n")
    return read_tokenizer(folder, "bert")


def words(tokenizer, inputs, row: int) -> str:
    return " ".join(tokenizer.piece(int(i)) for i in inputs.ids[inputs.starts[row] : inputs.starts[row + 1]])


def segments(inputs, row: int) -> list[int]:
    return inputs.segments[inputs.starts[row] : inputs.starts[row + 1]].tolist()


def test_one_text_and_two_side_by_side(tokenizer):
    items = [Example(key="0", first="a b"), Example(key="1", first="a", second="b c"), Example(key="2", first="")]
    inputs = KINDS["classify"].encode(items, tokenizer, EncodingSettings(length=8))
    assert [words(tokenizer, inputs, row) for row in range(3)] == [
        "[CLS] a b [SEP]",
        "[CLS] a [SEP] b c [SEP]",
        "[CLS] [SEP]",
    ]
    assert segments(inputs, 1) == [0, 0, 0, 1, 1, 1]
    assert inputs.items.tolist() == [0, 1, 2] and inputs.of_items(3).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ("a b c d e f g", "h i", "[CLS] a b c [SEP] h i [SEP]"),
        ("a b", "c d e f g h i", "[CLS] a b [SEP] c d e [SEP]"),
        ("a b c d e f", "g h i j", "[CLS] a b c [SEP] g h [SEP]"),
    ],
)
def test_the_longer_side_is_cut_first(tokenizer, first, second, kept):
    inputs = KINDS["classify"].encode(
        [Example(key="0", first=first, second=second)], tokenizer, EncodingSettings(length=8)
    )
    assert words(tokenizer, inputs, 0) == kept


def test_a_hundred_thousand_characters_are_cut(tokenizer):
    inputs = KINDS["classify"].encode([Example(key="0", first="a " * 50_000)], tokenizer, EncodingSettings(length=16))
    assert inputs.lengths.tolist() == [16]


def test_options_are_inputs_of_one_item(tokenizer):
    items = [
        Choice(key="0", passage="a b", question="who", options=("c", "d")),
        Choice(key="1", passage="a b", question="what _ is", options=("c", "d", "e")),
        Choice(key="2", passage="", question="who is", options=("c", "d")),
    ]
    inputs = KINDS["choice"].encode(items, tokenizer, EncodingSettings(length=16))
    assert words(tokenizer, inputs, 1) == "[CLS] a b [SEP] who d [SEP]"
    assert words(tokenizer, inputs, 2) == "[CLS] a b [SEP] what c is [SEP]"
    assert words(tokenizer, inputs, 5) == "[CLS] who is [SEP] c [SEP]"
    assert inputs.of_items(3).tolist() == [0, 2, 5, 7]


def test_windows_overlap_and_reach_the_end():
    assert windows(10, 4, 2) == [(0, 4), (2, 6), (4, 8), (6, 10)]
    assert windows(4, 4, 2) == [(0, 4)] and windows(0, 4, 2) == [(0, 0)]
    assert windows(9, 4, 100) == [(0, 4), (4, 8), (8, 9)]  # a stride never leaves a gap
    with pytest.raises(InputError, match="no room"):
        windows(9, 0, 2)


def question(passage: str, answer: str, **changes) -> Question:
    answers = (Answer(text=answer, start=passage.rindex(answer)),) if answer else ()
    return Question(key="q", title="", passage=passage, question="who", answers=answers, **changes)


@pytest.mark.parametrize("answer", ["a b", "ax c", "j"])
def test_an_answer_is_found_again_in_some_window(tokenizer, answer):
    passage = "a b ax c. d e f g h i a c d e f g h i d j"
    item = question(passage, answer)
    inputs = KINDS["span"].encode([item], tokenizer, EncodingSettings(length=12, stride=4))
    targets = KINDS["span"].targets([item], inputs, 0)
    assert len(targets) == len(inputs) > 3 and 0 < targets.answered.sum() < len(inputs)
    for row in range(len(inputs)):
        places = inputs.characters[inputs.starts[row] : inputs.starts[row + 1]]
        start, end = targets.labels[row], targets.ends[row]
        if targets.answered[row]:
            assert passage[places[start, 0] : places[end, 1]] == answer
        else:
            assert places[start, 0] == places[end, 0] == NULL
    if answer == "j":  # the very end: the last window has it
        assert targets.answered[-1] == 1


def test_no_answer_points_at_the_null_token(tokenizer):
    item = question("a b c d", "", impossible=True)
    inputs = KINDS["span"].encode([item], tokenizer, EncodingSettings(length=16))
    targets = KINDS["span"].targets([item], inputs, 0)
    assert (targets.labels.tolist(), targets.ends.tolist(), targets.answered.tolist()) == ([0], [0], [0.0])


@pytest.mark.shared
@pytest.mark.parametrize(("file", "family"), [("albert-30k.model", "albert"), ("bert-uncased.txt", "bert")])
def test_characters_survive_real_tokenizers(shared_data, file, family, tmp_path):
    name = {"albert-30k.model": "spiece.model", "bert-uncased.txt": "vocab.txt"}[file]
    (tmp_path / name).write_bytes((shared_data / "vocab" / file).read_bytes())
    tokenizer = read_tokenizer(tmp_path, family)
    passage = ("The Café of Zürich — founded in 1,873 — sold naïve paintings. " * 12) + "Its owner was José Ñandú"
    item = question(passage, "José Ñandú")
    inputs = KINDS["span"].encode([item], tokenizer, EncodingSettings(length=64, stride=32))
    targets = KINDS["span"].targets([item], inputs, 0)
    row = len(inputs) - 1
    assert targets.answered[row] == 1
    places = inputs.characters[inputs.starts[row] : inputs.starts[row + 1]]
    assert passage[places[targets.labels[row], 0] : places[targets.ends[row], 1]] == "José Ñandú"


def test_labels_several_and_numbers(tokenizer):
    texts = [Example(key=str(n), first="a", target=target) for n, target in enumerate([(0, 2), (), (1,)])]
    inputs = KINDS["classify"].encode(texts, tokenizer, EncodingSettings())
    assert KINDS["multilabel"].targets(texts, inputs, 3).values.tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    numbers = [Example(key=str(n), first="a", target=float(n)) for n in range(3)]
    assert np.array_equal(KINDS["regress"].targets(numbers, inputs, 0).values, [0, 1, 2])
    with pytest.raises(InputError, match="'x' has no label"):
        KINDS["classify"].targets([Example(key="x", first="a")], inputs, 2)


@pytest.mark.parametrize("kind", ["classify", "choice", "span"])
def test_items_encoded_again_take_the_place_of_the_first_ones(kind, tokenizer):
    items = toy_items(kind, 12, seed=0)
    long, short = EncodingSettings(length=24, stride=4), EncodingSettings(length=10, stride=4)
    first, expected = (KINDS[kind].encode(items, tokenizer, settings) for settings in (long, short))
    numbers = np.unique(first.items[first.lengths > 10])
    assert len(numbers) > 0
    found = first.replaced(numbers, KINDS[kind].encode([items[number] for number in numbers], tokenizer, short))
    for name in ("ids", "segments", "starts", "items", "characters"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
