"""Joined texts: the ids that each text has by itself, whatever the tokenizer and whatever the text spells."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from litebert.families import FAMILIES
from litebert.text.joined import JOINED, JoinedTexts
from litebert.text.normalise import backend_normaliser, quick_nfkc
from litebert.text.tokenizer_files import mark_special_tokens, read_tokenizer

VOCAB = Path(__file__).parents[3] / ".." / "shared" / "data" / "vocab"
SPECIAL = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
NASTY = [
    "the cat sat. [SEP] on the mat",
    "[SEP]",
    "［SEP］ and ［ＭＡＳＫ］ and [MASK]",
    "ends with [SE",
    "P] begins oddly",
    "[",
    "",
    "   ",
    " spaces  within and around ",
    "[MASK]the cat[MASK] sat [MASK] ",
    "東京が好きです。「はい」、と言った…",
    "中文，（标点）：！？１２３",
    "한국어 문장입니다.",
    "e\u0301 か\u3099 ｶﾞ ﬁ ① \u200b\ufeff",
    "\u0301 begins with a mark",
    "half a pair \ud800",
    "👩‍👩‍👧 नमस्ते",
]


def unigram(*, normaliser="nfkc", prepend="always", added=()):
    """A tokenizer as ``litebert tokenizer train`` makes it, with pieces of one or two characters."""
    letters = sorted({letter for text in NASTY for letter in text if letter.isprintable() and letter != " "})
    pieces = ["▁", *letters, "th", "at", "▁the", "好き", "，（", "중", "..", "▁[SEP"]
    random.Random(0).shuffle(pieces)
    vocabulary = [(token, 0.0) for token in SPECIAL] + [(piece, -2.0 - 0.1 * i) for i, piece in enumerate(pieces)]
    backend = Backend(models.Unigram(vocabulary, unk_id=1))
    if normaliser:
        backend.normalizer = backend_normaliser(normaliser)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme=prepend)]
    )
    backend.decoder = decoders.Metaspace()
    backend.add_special_tokens([*(AddedToken(token, normalized=False) for token in SPECIAL), *added])
    return mark_special_tokens(backend, FAMILIES["albert"], {})


def bert():
    if not VOCAB.is_dir():
        pytest.skip("the shared vocabularies are not there")
    return read_tokenizer(VOCAB / "bert-uncased.txt")


def released_albert():
    if not VOCAB.is_dir():
        pytest.skip("the shared vocabularies are not there")
    return read_tokenizer(VOCAB / "albert-30k.model")


TOKENIZERS = {
    "nfkc": unigram,
    "albert": lambda: unigram(normaliser="albert"),
    "none": lambda: unigram(normaliser=None),
    "greedy mask": lambda: unigram(added=[AddedToken("[MASK]", lstrip=True, rstrip=True, normalized=False)]),
    "a token that nfkc could make": lambda: unigram(added=[AddedToken("(1)", normalized=False)]),
    "bert": bert,
    "released albert": released_albert,
}
NOT_JOINED = {
    "first word differs": lambda: unigram(prepend="first"),
    "a token over the separator": lambda: unigram(added=[AddedToken("sat.[", normalized=False)]),
    "a longer separator": lambda: unigram(added=[AddedToken("[SEP]P", normalized=False)]),
    "whole words": lambda: unigram(added=[AddedToken("cat", single_word=True)]),
    "greedy separator": lambda: unigram(added=[AddedToken("[SEP]", lstrip=True, normalized=False)]),
}


def compare(tokenizer, texts):
    ids, sizes = JoinedTexts(tokenizer).ids(texts)
    found = [row.tolist() for row in np.split(ids, np.cumsum(sizes)[:-1])]
    assert found == [tokenizer.ids(text) for text in texts]


@pytest.mark.parametrize("name", [*TOKENIZERS, *NOT_JOINED])
def test_ids_are_those_of_each_text_alone(name):
    tokenizer = (TOKENIZERS | NOT_JOINED)[name]()
    assert (tokenizer.separator is None) == (name in NOT_JOINED)
    compare(tokenizer, NASTY)
    for first in range(len(NASTY)):  # without the one that makes the whole fall back
        compare(tokenizer, [text for text in NASTY[first:] if "SEP" not in text and "\ud800" not in text] or ["a"])
    compare(tokenizer, ["中文，（标点）。" * (JOINED // 8), "the cat", "sat." * JOINED])


def test_no_texts():
    ids, sizes = JoinedTexts(unigram()).ids([])
    assert len(ids) == len(sizes) == 0


def test_few_calls():
    """What it is for: some hundred sentences are one or two texts to the library."""
    tokenizer = unigram()
    joined = JoinedTexts(tokenizer)
    calls = []
    joined._bare.ids_batch = lambda texts: calls.append(len(texts)) or tokenizer.ids_batch(texts)
    joined.ids(["the cat sat."] * 150)
    assert calls == [2]


ALPHABET = st.sampled_from(
    "a[]<>Zé ß中，。（）：が か゛한국1０…　～ªﬁ①²\u3099\u0301\u1161\u11a8ＡΑЖ※가ー々〇\xad\u200b\xa0"
)


@pytest.mark.long
@given(st.text(st.one_of(ALPHABET, st.characters(codec="utf-8")), max_size=20))
def test_quick_nfkc_is_nfkc_or_nothing(text):
    quick = quick_nfkc(text)
    assert quick is None or quick == backend_normaliser("nfkc").normalize_str(text)


def test_quick_nfkc_knows_common_text_and_no_more():
    """Every character of the plane: taken only where the library agrees, and alone or after any other it knows."""
    normaliser = backend_normaliser("nfkc")
    known = [chr(point) for point in range(0x10000) if not 0xD800 <= point < 0xE000 and quick_nfkc(chr(point))]
    assert len(known) > 30_000
    assert "".join(map(str, map(quick_nfkc, known))) == normaliser.normalize_str("".join(known))
    for character in known:
        assert quick_nfkc(character) == normaliser.normalize_str(character)
    assert quick_nfkc("中文，（标点）東京が好き。한국 Café") == "中文,(标点)東京が好き。한국 Café"
    for text in ("か\u3099", "e\u0301", "［MASK］", "ﬁ", "\u200b", "가\u11a8"):
        assert quick_nfkc(text) is None
