"""The model that comes with litebert: whole, small enough, an ordinary ALBERT, and as good as its card says."""

import re
from pathlib import Path

import pytest
import torch

import litebert as package
from litebert import shipped_models
from litebert.fill import read_clozes, score_clozes, shares

FOLDER = shipped_models.SHIPPED / "litebert-en"
NAMES = ("litebert-en", "litebert-en-2")
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def model():
    return package.load("litebert-en")


@pytest.mark.parametrize("name", NAMES)
def test_it_is_there_whole_and_small(name):
    folder = shipped_models.SHIPPED / name
    assert name in shipped_models.shipped_names()
    shipped_models.check_shipped(folder)
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 25_000_000


@pytest.mark.parametrize("name", NAMES)
def test_the_files_name_no_place_of_the_machine_that_made_them(name):
    for path in (shipped_models.SHIPPED / name).iterdir():
        if path.suffix in (".md", ".json") and path.name != "tokenizer.json":
            assert not re.search(r"/(tmp|home|root|work)/", path.read_text(encoding="utf-8")), path.name


def test_transformers_loads_it_and_computes_the_same(model):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AlbertForPreTraining.from_pretrained(FOLDER, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    text = "She [MASK] to the store, and Caf\u00e9 M\u00fcller was closed."
    inputs = tokenizer(text, return_tensors="pt")
    assert inputs["input_ids"][0].tolist() == list(model.tokenizer.encode(text).ids)
    with torch.no_grad():
        scores = theirs(**inputs).prediction_logits[0]
    place = inputs["input_ids"][0].tolist().index(tokenizer.mask_token_id)
    expected = scores[place].softmax(-1).topk(5)
    found = model.fill(text, top=5)
    assert [guess.id for guess in found] == expected.indices.tolist()
    assert [guess.probability for guess in found] == pytest.approx(expected.values.tolist(), abs=1e-4)


def test_gaps_are_filled_with_words_that_fit(model):
    verbs = {"went", "came", "walked", "returned", "hastened", "ran", "hurried", "drove", "rushed"}
    assert {guess.word for guess in model.fill("She [MASK] to the store.")} <= verbs
    card = (FOLDER / shipped_models.CARD).read_text(encoding="utf-8")
    filled = score_clozes(model, read_clozes(EXAMPLES / "cloze.jsonl"), top=5)
    for kind, share in shares(filled).items():
        row = f"| cloze.jsonl | {kind} | 12 | {share.items} | {100 * share.first:.1f} | {100 * share.top:.1f} |"
        assert row in card, row


def test_it_tells_which_text_comes_first(model):
    lines = (EXAMPLES / "order.tsv").read_text(encoding="utf-8").splitlines()
    pairs = [tuple(line.split("\t")) for line in lines]
    right = model.order(pairs)
    assert len(pairs) == 4 and all(share > 0.5 for share in right), right
    swapped = model.order([(second, first) for first, second in pairs])
    assert [1 - share for share in swapped] == pytest.approx(right, abs=1e-5)
