"""Sentences: real cases in four languages, paragraphs, windows over long ones, and languages by file."""

import time
from pathlib import Path

import pytest

from litebert.corpus.sentences import LONGEST_SENTENCE, WINDOW, Languages, sentence_splitter, split_document
from litebert.errors import InputError

pytest.importorskip("sentencex", reason="needs litebert[corpus]")

SEGMENT = sentence_splitter()


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "Dr. Smith paid 3.50 dollars. Why? He had to!", ["Dr. Smith paid 3.50 dollars.", "Why?", "He had to!"]),
        ("en", "No end\nsecond line. Third", ["No end", "second line.", "Third"]),
        ("en", '"It is so." He left. "Why?" she asked.', ['"It is so."', "He left.", '"Why?" she asked.']),
        ("ja", "東京は大きい。「そうだ」と言った。高い！", ["東京は大きい。", "「そうだ」と言った。", "高い！"]),
        ("ko", "서울은 크다. 사람이 많다. 왜 그런가?", ["서울은 크다.", "사람이 많다.", "왜 그런가?"]),
        ("zh", "北京很大。人很多！为什么？", ["北京很大。", "人很多！", "为什么？"]),
        ("de", "Das ist z. B. gut. Der 3. Oktober ist frei.", ["Das ist z. B. gut.", "Der 3. Oktober ist frei."]),
        ("en", " \n\n\t\n", []),
    ],
)
def test_languages(language: str, text: str, expected: list[str]) -> None:
    assert split_document(text, language, SEGMENT) == expected


def test_closing_punctuation_is_joined_to_its_sentence() -> None:
    # The library gives the closing bracket as a sentence of its own.
    text = "It is late. (The same report also gives tables, for the other scales.)"
    assert all(any(map(str.isalnum, sentence)) for sentence in split_document(text, "en", SEGMENT))


def test_windows_give_the_same_sentences() -> None:
    text = "".join(f"これは第{number}の文です。" for number in range(2000))
    assert len(text) > 4 * WINDOW
    sentences = split_document(text, "ja", SEGMENT)
    assert sentences == [f"これは第{number}の文です。" for number in range(2000)]


def test_long_paragraphs_take_linear_time() -> None:
    # By itself the library takes some seconds for 100,000 characters and four minutes for a million.
    start = time.monotonic()
    sentences = split_document("あいう。" * 50_000, "ja", SEGMENT)
    assert len(sentences) == 50_000
    assert time.monotonic() - start < 5


def test_text_without_sentence_ends_is_cut_at_spaces() -> None:
    sentences = split_document("word " * 10_000, "en", SEGMENT)
    assert max(map(len, sentences)) <= LONGEST_SENTENCE
    assert " ".join(sentences).split() == ["word"] * 10_000
    sentences = split_document("x" * 50_000, "en", SEGMENT)
    assert max(map(len, sentences)) == LONGEST_SENTENCE
    assert "".join(sentences) == "x" * 50_000


def test_language_by_file() -> None:
    languages = Languages(["*ja-*=ja", "zh/*=zh", "de"])
    assert [languages.of(name) for name in ("data/ja-a.txt", "zh/b.txt", "c.txt")] == ["ja", "zh", "de"]
    assert languages.listed() == ["*ja-*=ja", "zh/*=zh", "de"]
    assert Languages([]).of("x") == "en"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["jp"], "did you mean 'ja'"),
        (["english"], "not a two-letter language code"),
        (["*=xx"], "not a two-letter language code"),
        (["en", "ja"], "more than one language"),
    ],
)
def test_wrong_languages(words: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Languages(words)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "language", "ends", "lengths"),
    [
        ("en-wiki", "en", ".!?\"')”’]:…", (60, 180)),
        ("ja-aozora", "ja", "。！？」』）…―", (20, 60)),
        ("ko-wiki", "ko", ".!?\"')”’]…", (40, 90)),
        ("zh-wiki", "zh", "。！？」』）；：”…", (25, 70)),
    ],
)
def test_real_text(name: str, language: str, ends: str, lengths: tuple[int, int]) -> None:
    """Most sentences inside a paragraph end as sentences do, and their usual length is that of the language."""
    import lzma

    path = Path(__file__).parents[3].parent / "shared/data/corpus" / f"{name}.txt.xz"
    if not path.is_file():
        pytest.skip("needs ../shared/data")
    with lzma.open(path, "rt", encoding="utf-8") as file:
        text = file.read(1_000_000)
    inner, count = [], []
    for paragraph in text.splitlines():
        sentences = split_document(paragraph, language, SEGMENT)
        assert "".join("".join(sentences).split()) == "".join(paragraph.split())  # nothing is lost
        inner += sentences[:-1]
        count += map(len, sentences)
    assert len(inner) > 3000
    assert sum(sentence[-1] in ends for sentence in inner) > 0.97 * len(inner)
    median = sorted(count)[len(count) // 2]
    assert lengths[0] < median < lengths[1]
