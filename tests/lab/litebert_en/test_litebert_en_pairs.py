"""Texts and pairs for sentence vectors: what becomes a line, what is left out, and a teacher carried in 8 bits."""

import csv
import io
import json
import lzma
import random
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file
from toy_models import pretrained_model, word_tokenizer

import litebert
from litebert_lab.litebert_en import carry, pairs

PROSE = "It was the custom of the house that nobody spoke before the soup had been carried out of the room again."
ARTICLE = f"""<doc id="1" url="x" title="Soup &amp; houses">
Soup &amp; houses

{PROSE} The people of that house were known for it in the whole of the town and in the country.
Early customs.
There were customs before that one which nobody could remember when the house was sold to the mayor.
</doc>
"""
POST = (
    "I have been looking for a way to cook this soup at home and there is no recipe that works for me, so please help."
)


def posts(*rows):
    file = io.StringIO()
    names = ["title", "selftext", "over_18"]
    writer = csv.DictWriter(file, names)
    writer.writeheader()
    writer.writerows(dict(zip(names, row, strict=True)) for row in rows)
    return file.getvalue()


def test_articles_become_beginnings_headings_neighbours_and_sentences():
    found = list(pairs.wikipedia_lines(ARTICLE, random.Random(0)))
    by_kind = dict(found)
    assert by_kind["wiki beginning"][0] == "Soup & houses" and by_kind["wiki beginning"][1].startswith(
        "It was the custom"
    )
    assert by_kind["wiki heading"] == (
        "Soup & houses: Early customs",
        "There were customs before that one which nobody could remember when the house was sold to the mayor.",
    )
    assert len(by_kind["wiki neighbours"]) == 2 and len(by_kind["wiki sentence"]) == 1


def test_posts_become_titles_or_titles_with_their_text():
    text = posts(
        ("[Help] How do I cook **this** soup?", f"{POST}\n\n> quoted\nEDIT: thanks", "False"),
        ("A soup that is only a [link](http://x.org) away", "", "False"),
        ("Short", "", "False"),
        ("Not for the eyes of everybody here", "", "True"),
    )
    found = list(pairs.reddit_lines(text))
    assert found == [
        ("reddit post", ("How do I cook this soup?", POST)),
        ("reddit title", ("A soup that is only a link away",)),
    ]


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ((PROSE,), None),
        (("Write to me at someone@example.org about the soup",), "private"),
        (("The soup of u/somebody was the best of them all",), "private"),
        (("Call 030 123 456 78 for the best soup in the town",), "private"),
        (("Suppe, die gut ist?", "Suppe die gut ist"), "twice the same"),
        (("Soup", "12345678 90 1234 5678 123 45678 9012"), "digits"),
    ],
)
def test_why_a_line_is_left_out(texts, reason):
    found = pairs.reason_against(texts, "reddit post")
    assert found == reason or (reason == "digits" and found in ("digits", "private"))


def test_texts_are_cut_at_the_end_of_a_sentence():
    assert pairs.cut("short") == "short"
    cut = pairs.cut(" ".join([PROSE] * 5))
    assert cut == f"{PROSE} {PROSE}" and len(cut) <= pairs.LONGEST
    assert pairs.cut("word " * 100) == ("word " * 48).strip()


def test_the_file_has_no_test_data_no_copies_and_few_of_one_template(tmp_path, monkeypatch):
    clone = tmp_path / "clone"
    (clone / "data").mkdir(parents=True)
    rows = [(f"{name} was a village in the north of that country", "", "False") for name in "ABCDEFGHIJ"]
    rows += [("The man plays the guitar", "", "False"), (PROSE, "", "False"), (PROSE.upper().title(), "", "False")]
    (clone / "data" / "a.csv").write_text(posts(*rows))
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "x"]):
        subprocess.run(["git", "-C", str(clone), *words], check=True)
    head = subprocess.run(["git", "-C", str(clone), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    source = pairs.Source("reddit", pairs.REDDIT.repository, head.stdout.strip(), pairs.REDDIT.files, licence="")
    monkeypatch.setattr(pairs, "REDDIT", source)
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "STS.input.txt").write_text("a man sings\tthe man plays the guitar.\n")
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["x", "--reddit", str(clone), "--without", str(tmp_path / "test"), "-o", str(out)])
    pairs.main()
    lines = lzma.decompress((out / "pairs.txt.xz").read_bytes()).decode().splitlines()
    assert len(lines) == pairs.MOST_ALIKE + 1 and PROSE in lines
    counts = json.loads((out / "counts.json").read_text())
    assert counts["left out"] == {"template": 5, "test data": 1, "duplicate": 1}
    assert counts["kept"]["reddit title"]["kept"] == 6


def test_a_model_is_carried_in_8_bits(tmp_path):
    pretrained_model(word_tokenizer(tmp_path / "words")).save(tmp_path / "model")
    carry.pack(tmp_path / "model", tmp_path / "model.tar.xz")
    carry.unpack(tmp_path / "model.tar.xz", tmp_path / "back")
    whole, back = (load_file(tmp_path / name / "model.safetensors") for name in ("model", "back"))
    assert whole.keys() == back.keys()
    assert all(torch.allclose(whole[name], back[name], atol=0.02 * float(whole[name].abs().max())) for name in whole)
    one, other = (
        litebert.load(tmp_path / name, device="cpu").encode("the cat sat", normalize=True) for name in ("model", "back")
    )
    assert float(one @ other) > 0.995
    size = sum(tensor.numel() for tensor in whole.values())
    assert (tmp_path / "model.tar.xz").stat().st_size < 1.1 * size + 20_000
