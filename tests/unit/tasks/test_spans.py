"""From scores of tokens to answers: the best stretch over all windows, and whether there is one."""

import numpy as np
import pytest

from litebert.tasks.examples import EncodingSettings, Question, TaskSpec
from litebert.tasks.kinds import KINDS, HeadScores
from litebert.tasks.kinds.span import best_answers, decide
from litebert.text.tokenizer_files import read_tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PASSAGE = "a b c d e f g h i j"
NONE = np.zeros(0, np.float32)


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """A question over several windows, encoded, with scores that are all low."""
    folder = tmp_path_factory.mktemp("words")
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *"abcdefghij", "who"]) + "\n")
    item = Question(key="q", title="", passage=PASSAGE, question="who")
    inputs = KINDS["span"].encode([item], read_tokenizer(folder, "bert"), EncodingSettings(length=9, stride=2))
    assert len(inputs) > 2
    return item, inputs


def scored(inputs, **words) -> tuple[np.ndarray, np.ndarray]:
    """Start and end scores: ``f=(3, 1)`` gives the token f these wherever a window has it."""
    starts, ends = (np.full(len(inputs.ids), -5, np.float32) for _ in range(2))
    for word, (start, end) in words.items():
        at = PASSAGE.index(word)
        here = inputs.characters[:, 0] == at
        starts[here], ends[here] = start, end
    return starts, ends


def test_the_best_stretch_over_all_windows(asked):
    item, inputs = asked
    (found,) = best_answers([item], inputs, HeadScores(*scored(inputs, i=(4, 0), j=(1, 5), b=(3, 3)), NONE))
    assert found.texts[0] == "i j" and found.scores[0] == 9
    assert "j" in found.texts and "b" in found.texts and len(set(found.texts)) == len(found.texts)
    prediction = decide(found, TaskSpec(kind="span"))
    assert (
        prediction.label == "i j"
        and (prediction.start, prediction.end) == (16, 19)
        and 0.5 < prediction.probabilities[0] < 1
    )


def test_an_end_before_its_start_is_no_answer(asked):
    item, inputs = asked
    (found,) = best_answers([item], inputs, HeadScores(*scored(inputs, c=(-5, 9), g=(9, -5)), NONE))
    assert found.scores[0] == 4 and found.texts[0].endswith("c")  # 18 would be from g back to c
    assert all(PASSAGE.index(text[0]) <= PASSAGE.index(text[-1]) for text in found.texts)


def test_no_answer_by_the_null_token_and_by_the_head(asked):
    item, inputs = asked
    starts, ends = scored(inputs, d=(2, 2))
    null = inputs.starts[:-1]
    starts[null] = ends[null] = 4
    note = TaskSpec(kind="span", has_null=True)
    (found,) = best_answers([item], inputs, HeadScores(starts, ends, NONE))
    assert found.odds == 4 and decide(found, note).label == ""
    assert decide(found, TaskSpec(kind="span", has_null=True, null_threshold=4.5)).label == "d"
    assert decide(found, TaskSpec(kind="span")).label == "d"
    sure = np.full(len(inputs), -3, np.float32)
    sure[1] = 6  # one window is sure that it has the answer
    (found,) = best_answers([item], inputs, HeadScores(starts, ends, sure))
    assert found.odds == -2 and decide(found, note).label == "d"


def test_one_window_without_a_null_is_enough_for_an_answer(asked):
    item, inputs = asked
    starts, ends = scored(inputs, d=(2, 2))
    starts[inputs.starts[0]] = ends[inputs.starts[0]] = 50  # the first window is sure of none; the others are not
    (found,) = best_answers([item], inputs, HeadScores(starts, ends, NONE))
    assert found.odds < 0
