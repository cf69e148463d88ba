"""Word starts in every script and mixture, from pieces as tokenizers make them."""

import numpy as np
import pytest

from litebert.corpus.tokenise import piece_features, word_starts


def words(pieces: str, marking="metaspace", sentences: tuple[int, ...] = (0,)) -> str:
    """``pieces`` parted by spaces, shown again with a bar before each that begins a word."""
    parts = pieces.split(" ")
    features = np.array([piece_features(part, marking) for part in parts], np.uint8)
    starts = word_starts(np.arange(len(parts)), np.array(sentences), features)
    return "".join(("|" if start else " ") + part for part, start in zip(parts, starts, strict=True))


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ("▁the ▁cat s . ▁don ' t", "|▁the|▁cat s .|▁don ' t"),
        ("▁ s . ▁a", "|▁ s .|▁a"),  # a bare mark belongs to what follows
        ("▁東京 タワー は 、 高い 。", "|▁東京|タワー|は|、|高い|。"),
        ("▁ 東京 は", "|▁ 東京|は"),
        ("東京 To ky o は", "|東京|To ky o|は"),  # Latin right after a Japanese word is one of its own
        ("▁Go ogle 健身 （ G F it ） 是", "|▁Go ogle|健身|（|G F it|）|是"),
        ("▁한국 ( 韓 國 ) 은 ▁나 라", "|▁한국 ( 韓 國 ) 은|▁나 라"),  # Korean words by spaces only
        ("▁한국 은 ▁韓 國 ▁漢 字", "|▁한국 은|▁韓|國|▁漢|字"),  # no Hangul between the spaces: not Korean
        ("▁Tokyo ( 東京 , 日本 ) x", "|▁Tokyo (|東京|,|日本|) x"),
        ("▁ไทย แลนด์ x", "|▁ไทย|แลนด์|x"),
        ("▁a <0xE3> <0x81> <0x8C> <0xE3> <0x81> <0x8C>", "|▁a|<0xE3> <0x81> <0x8C>|<0xE3> <0x81> <0x8C>"),
        ("▁a <0xF0> <0x9F> <0x98> <0x80>", "|▁a <0xF0> <0x9F> <0x98> <0x80>"),
    ],
)
def test_metaspace(pieces: str, expected: str) -> None:
    assert words(pieces) == expected


def test_sentence_begins_a_word() -> None:
    assert words("▁a b c", sentences=(0, 2)) == "|▁a b|c"
    assert words("b c ▁d") == "|b c|▁d"


def test_wordpiece() -> None:
    assert words("un ##aff ##able ! 東 京 は ##が", "wordpiece") == "|un ##aff ##able|!|東|京|は|##が"
    assert words("한 ##국 ##은 ##", "wordpiece") == "|한 ##국 ##은|##"


def test_byte_level() -> None:
    ga = "".join({0xE3: "ã", 0x81: "ģ", 0x8C: "Į"}[byte] for byte in "が".encode())
    assert words(f"Hello Ġworld ! Ġ{ga} {ga} {ga[0]} {ga[1:]} x", "byte-level") == (
        f"|Hello|Ġworld !|Ġ{ga}|{ga}|{ga[0]} {ga[1:]} x"
    )


def test_empty() -> None:
    assert word_starts(np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(5, np.uint8)).tolist() == []
