"""Training tokenizers: special ids, fallbacks, rules, the sample, the same result twice, mistakes in one sentence."""

import json
import random
import statistics
import sys
from pathlib import Path

import pytest

from litebert.cli import main
from litebert.text.documents import LONGEST_LINE, is_held_out, lines_of, sample_lines
from litebert.text.tokenizer_files import read_tokenizer
from litebert.text.train import (
    FEW_COPIES,
    SPECIAL,
    TrainSettings,
    _less_repetitive,
    measure_fertility,
    train_tokenizer,
)

ROOT = Path(__file__).parents[3]
SHARED = ROOT / ".." / "shared" / "data"


def made_up_text(seed: int = 0, documents: int = 60) -> list[str]:
    """Documents of made-up words with a natural skew, some Japanese and Korean, and a few rare characters."""
    draw = random.Random(seed)
    syllables = [first + second for first in "bdfgklmnprst" for second in ("a", "e", "i", "o", "u", "an", "er")]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(600)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    japanese = ["東京が好きです。", "がぎぐげご、学校へ行きます。", "日本語の文章。"]
    korean = ["한국어 문장입니다.", "학교에 갑니다."]
    texts = []
    for _ in range(documents):
        lines = [" ".join(draw.choices(words, weights, k=40)).capitalize() + "." for _ in range(6)]
        texts.append("\n".join([*lines, draw.choice(japanese), draw.choice(korean)]))
    texts[0] += "\nrare: ☃ ♞"
    return texts


TEXTS = made_up_text()


@pytest.fixture(scope="module")
def unigram():
    return train_tokenizer(TEXTS, TrainSettings(vocab_size=400))


@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
@pytest.mark.parametrize("lowercase", [False, True])
def test_special_ids_and_size(kind, lowercase):
    tokenizer = train_tokenizer(TEXTS, TrainSettings(vocab_size=400, kind=kind, lowercase=lowercase))
    assert tokenizer.vocab_size == 400
    assert [tokenizer.piece(index) for index in range(5)] == list(SPECIAL)
    assert [tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id] == [
        0,
        1,
        2,
        3,
        4,
    ]
    assert tokenizer.encode("bada", "bada").ids.count(3) == 2
    assert tokenizer.encode("[MASK]").ids[-2] == 4
    assert (tokenizer.ids("Bada") == tokenizer.ids("bada")) is lowercase
    [result] = measure_fertility([tokenizer], made_up_text(seed=0))
    assert 1 < result.per_word < 3
    assert result.unknown_share < 0.001


def test_default_keeps_marks(unigram):
    ids = unigram.ids("がぎぐげご")
    assert unigram.unk_id not in ids
    assert unigram.decode(ids) == "がぎぐげご"
    assert unigram.ids("か\u3099") == unigram.ids("が") != unigram.ids("か")
    assert unigram.decode(unigram.ids("한국어 문장입니다.")) == "한국어 문장입니다."


def test_fallbacks(unigram):
    assert unigram.unk_id in unigram.ids("♞")
    characters = train_tokenizer(TEXTS, TrainSettings(vocab_size=400, fallback="character"))
    assert characters.unk_id not in characters.ids("♞")
    assert characters.unk_id in characters.ids("♛")
    as_bytes = train_tokenizer(TEXTS, TrainSettings(vocab_size=600, fallback="byte"))
    for text in ("♞", "never seen: ♛ 𝔘 ß", "written <0x41> out"):
        ids = as_bytes.ids(text)
        assert as_bytes.unk_id not in ids
        assert as_bytes.decode(ids) == text.replace("𝔘", "U")
    pieces = train_tokenizer(TEXTS, TrainSettings(vocab_size=400, kind="wordpiece", fallback="character"))
    assert pieces.unk_id not in pieces.ids("☃")


def test_albert_rules_strip_and_lower():
    tokenizer = train_tokenizer(TEXTS, TrainSettings(vocab_size=400, rules="albert"))
    assert tokenizer.ids("Bàdá ''x''") == tokenizer.ids('bada "x"')
    assert tokenizer.ids("が") == tokenizer.ids("か")


def test_word_starts_of_a_trained_vocabulary(unigram):
    ids = unigram.ids("Bada bada")
    starts = [bool(unigram.starts_word[index]) for index in ids]
    assert starts.count(True) == 2
    assert starts[0]


@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
def test_same_seed_same_vocabulary(kind):
    settings = TrainSettings(vocab_size=300, kind=kind, sample_bytes=60_000)
    prints = {train_tokenizer(TEXTS, settings).fingerprint for _ in range(2)}
    assert len(prints) == 1
    other = TrainSettings(vocab_size=300, kind=kind, sample_bytes=60_000, seed=1)
    assert train_tokenizer(TEXTS, other).fingerprint not in prints


def test_text_that_only_repeats_itself_is_trained_on_at_once():
    """Six minutes for these 200 equal lines and another, if the library gets them as they are."""
    line = " ".join(["x" * 17] * 50)
    found = train_tokenizer([f"{line}\n" * 200 + "x" * 17], TrainSettings(vocab_size=20))
    assert found.vocab_size == 20


def test_only_repetitive_lines_are_mixed_and_left_out():
    lines = [line for text in TEXTS for line in text.splitlines()]
    assert _less_repetitive(lines) == lines
    assert _less_repetitive(["a", *["b"] * 20]).count("b") == FEW_COPIES
    assert _less_repetitive(["a"] * 30 + ["b"] * 40).count("b") == 30
    document = [f"line {number}" for number in range(50)]
    mixed = _less_repetitive(document * 20)
    assert sorted(mixed) == sorted(document * 20) and mixed[:50] != mixed[50:100]


def test_saved_folder_gives_the_same_ids_in_transformers(unigram, tmp_path):
    from transformers import AutoTokenizer

    as_bytes = train_tokenizer(TEXTS, TrainSettings(vocab_size=600, fallback="byte", lowercase=True))
    wordpiece = train_tokenizer(TEXTS, TrainSettings(vocab_size=400, kind="wordpiece"))
    for name, tokenizer in [("unigram", unigram), ("bytes", as_bytes), ("wordpiece", wordpiece)]:
        tokenizer.save(tmp_path / name)
        (tmp_path / name / "config.json").write_text('{"model_type": "albert"}')
        reference = AutoTokenizer.from_pretrained(str(tmp_path / name))
        assert read_tokenizer(tmp_path / name, "albert").fingerprint == tokenizer.fingerprint
        for text in ["Bada (bada), か\u3099 ♞ [MASK] ``x''", "", "한국어 Ａ１\u200b"]:
            encoded = tokenizer.encode(text, "bada")
            expected = reference(text, "bada")
            assert (encoded.ids, encoded.segments) == (expected["input_ids"], expected["token_type_ids"])


def test_sample_is_fair_bounded_and_seeded():
    texts = [f"{number:06d} " + "x" * 93 for number in range(20_000)]
    everything = sample_lines(texts, 10_000_000, seed=0)
    assert everything == texts
    sample = sample_lines(iter(texts), 100_000, seed=0)
    assert 70_000 < sum(map(len, sample)) <= 100_000
    assert sample == sample_lines(texts, 100_000, seed=0) != sample_lines(texts, 100_000, seed=1)
    places = [int(line[:6]) for line in sample]
    assert places == sorted(places)
    # The mean place of a fair sample of n lines is 10,000 with a deviation of 5,774 / sqrt(n).
    assert abs(statistics.mean(places) - 10_000) < 4 * 5774 / len(places) ** 0.5


def test_lines_are_cut_at_spaces():
    text = ("word " * 700).strip() + "\n\n  short\tline \n" + "字" * 2500
    lines = list(lines_of(text))
    assert max(map(len, lines)) <= LONGEST_LINE
    assert "".join(lines).replace(" ", "") == text.replace(" ", "").replace("\n", "").replace("\t", "")
    assert {word for line in lines[:4] for word in line.split()} == {"word"}
    assert "short line" in lines


def test_held_out_share():
    texts = [f"document {number}" for number in range(4000)]
    held = [text for text in texts if is_held_out(text, 0.1)]
    assert 320 < len(held) < 480
    assert set(held) <= {text for text in texts if is_held_out(text, 0.2)}
    assert not any(is_held_out(text, 0.0) for text in texts)


def command(monkeypatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["litebert", "tokenizer", *map(str, words)])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


def test_commands(tmp_path, monkeypatch, capsys):
    (tmp_path / "a.txt").write_text("\n\n".join(TEXTS), encoding="utf-8")
    corpus, folder = tmp_path / "a.txt", tmp_path / "new" / "tokenizer"
    arguments = ["train", corpus, "--vocab-size", 300, "--held-out", 0.2, "-o", folder]
    assert command(monkeypatch, *arguments) == 0
    output = capsys.readouterr()
    assert "300 pieces" in output.out
    assert "held-out documents" in output.err
    assert "candidate pieces" in output.err
    assert sorted(path.name for path in folder.iterdir()) == ["run.json", "tokenizer.json", "tokenizer_config.json"]
    assert [path.name for path in folder.parent.iterdir()] == ["tokenizer"]
    assert json.loads((folder / "run.json").read_text())["verb"] == "tokenizer train"

    assert command(monkeypatch, *arguments) == 2
    assert "exists; choose another folder" in capsys.readouterr().err
    assert command(monkeypatch, *arguments, "--overwrite") == 0
    assert command(monkeypatch, "train", corpus, "--vocab-size", 300, "-o", tmp_path, "--overwrite") == 2
    assert "was not written by this command" in capsys.readouterr().err

    assert command(monkeypatch, "try", folder, "Bada", "--pair", "bada", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ids"][0] == 2
    assert answer["ids"][-1] == 3
    assert answer["pieces"].count("[SEP]") == 2
    assert sorted(set(answer["segments"])) == [0, 1]
    assert command(monkeypatch, "try", folder, "bada ♞") == 0
    assert "1 unknown" in capsys.readouterr().out

    assert command(monkeypatch, "fertility", folder, folder, "--on", corpus, "--held-out", 0.2, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[0]["relative"] == 1.0
    assert 1 < rows[0]["tokens_per_word"] < 4


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.txt", b"na\xefve\n", [], "a.txt, line 1 is not UTF-8"),
        ("a.txt", b"\n \n", [], "the corpus is empty"),
        ("a.txt", b"one two\n", [], "the corpus is too small for a vocabulary of 30,000 pieces"),
        ("a.txt", "\n\n".join(TEXTS).encode(), ["--vocab-size", "12"], "is too small: single characters"),
        ("a.txt", "\n\n".join(TEXTS).encode(), ["--vocab-size", "20", "--kind", "wordpiece"], "is too small: single"),
        ("a.txt", b"one two\n", ["--kind", "wordpiece"], "the corpus is too small"),
        ("a.txt", b"one two\n", ["--vocab-size", "3"], "--vocab-size is 3 but must be a whole number from 6"),
        ("a.txt", b"one two\n", ["--kind", "bpe"], "--kind is 'bpe' but must be one of unigram, wordpiece"),
        ("a.txt", b"one two\n", ["--rules", "nfk"], "--rules is 'nfk' but must be one of nfkc, albert, none"),
        ("a.txt", b"one two\n", ["--kind", "wordpiece", "--fallback", "byte"], "wordpiece has no byte fallback"),
        ("a.txt", b"one two\n", ["--errors", "ignore"], "must be one of strict, replace"),
        ("a.jsonl", b'{"body": "x"}\n', [], "has no field 'text'; it has body"),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(tmp_path, monkeypatch, capsys, name, content, options, message):
    (tmp_path / name).write_bytes(content)
    assert command(monkeypatch, "train", tmp_path / name, "-o", tmp_path / "out", *options) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("litebert: ")
    assert message in error
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.slow
@pytest.mark.shared
def test_fertility_on_held_out_english(tmp_path, monkeypatch, capsys):
    """At most 2% more tokens per word than the released ALBERT vocabulary, which is lower case and ours is not."""
    if not (SHARED / "corpus" / "en-wiki.txt.xz").is_file():
        pytest.skip("../shared/data is not beside the checkout")
    corpus = SHARED / "corpus" / "en-*.txt.xz"
    assert command(monkeypatch, "train", corpus, "--vocab-size", 30_000, "--held-out", 0.05, "-o", tmp_path / "en") == 0
    capsys.readouterr()
    released = SHARED / "vocab" / "albert-30k.model"
    measured = ["fertility", tmp_path / "en", released, "--on", corpus, "--held-out", 0.05, "--json"]
    assert command(monkeypatch, *measured) == 0
    ours, theirs = json.loads(capsys.readouterr().out)
    assert ours["documents"] > 100
    assert ours["tokens_per_word"] <= 1.02 * theirs["tokens_per_word"]
