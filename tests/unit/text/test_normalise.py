"""Normalisation by name: ALBERT's rules exactly, a default that leaves CJK whole, and the same from the backend."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litebert.errors import InputError
from litebert.text.normalise import backend_normaliser, normalise


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("  Two   spaces\tand\na line ", "two spaces and a line"),
        ("``Quoted'' and ''twice''", '"quoted" and "twice"'),
        ("Café naïve Ångström", "cafe naive angstrom"),
        ("ﬁne ½ ①", "fine 1⁄2 1"),
        ("が", "か"),  # why these rules are for English only
        ("it's `so'", "it's `so'"),
    ],
)
def test_albert_rules(line, expected):
    assert normalise(line, "albert") == expected


@pytest.mark.parametrize(
    "text", ["が", "東京が好きです。", "한국어 문장입니다.", "中文维基百科，自由", "Café naïve", "👩‍👩‍👧", "नमस्ते"]
)
def test_default_leaves_scripts_whole(text):
    # Full-width punctuation is the one thing that becomes plain.
    expected = text.replace("，", ",")
    assert normalise(text) == expected
    assert backend_normaliser().normalize_str(text) == expected


def test_default_composes_and_cleans():
    assert normalise("か\u3099 ｶﾞ Ａ１ e\u0301") == "が ガ A1 é"
    assert normalise("a\u200bb\ufeff\x00c\u00ad\u202e d\u00a0\u3000e") == "abc d e"
    assert normalise("Straße İ", lowercase=True) == "straße i̇"
    assert normalise("A  b", "none") == "A  b"


# Old characters only: the two libraries know different editions of Unicode.
OLD = st.characters(exclude_categories=("Cs",)).filter(lambda c: unicodedata.ucd_3_2_0.category(c) != "Cn")


@given(st.text(OLD, max_size=60))
def test_backend_agrees_with_python(text):
    # White space is split the same way by the tokenizer; what remains must be equal.
    assert backend_normaliser("nfkc").normalize_str(text).split() == normalise(text, "nfkc").split()


def test_unknown_rules():
    with pytest.raises(InputError, match="did you mean 'nfkc'"):
        normalise("a", "nfc")  # type: ignore[arg-type]
