"""The model that comes with litebert: whole, small enough, an ordinary ALBERT, and as good as its card says."""

import re
import tarfile
from pathlib import Path

import pytest
import torch

import litebert as package
from litebert import shipped_models
from litebert.fill import read_clozes, score_clozes, shares
from litebert.tasks.metrics import spearman

FOLDER = shipped_models.SHIPPED / "litebert-en"
NAMES = ("litebert-en", "litebert-en-2", "litebert-en-embed")
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def model():
    return package.load("litebert-en")


@pytest.mark.parametrize("name", NAMES)
def test_it_is_there_whole_and_small(name):
    folder = shipped_models.SHIPPED / name
    assert name in shipped_models.shipped_names()
    shipped_models.check_shipped(folder)
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) <= 25_000_000


@pytest.mark.parametrize("name", NAMES)
def test_the_files_name_no_place_of_the_machine_that_made_them(name):
    for path in (shipped_models.SHIPPED / name).rglob("*"):
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


@pytest.mark.shared
def test_vectors_say_how_near_two_texts_are(shared_data):
    """STS-B dev, every tenth pair: correlation with people's ratings without training, far above litebert-en's."""
    with tarfile.open(shared_data / "glue.tar.xz") as archive:
        file = archive.extractfile("glue/STS-B/dev.tsv")
        assert file is not None
        rows = [line.split("\t") for line in file.read().decode("utf-8").splitlines()[1::10]]
    ratings = [float(row[-1]) for row in rows]

    def agreement(name):
        firsts, seconds = (package.load(name).encode([row[side] for row in rows], normalize=True) for side in (-3, -2))
        return spearman(ratings, (firsts * seconds).sum(-1).tolist())

    assert agreement("litebert-en-embed") > max(0.75, agreement("litebert-en-2") + 0.1)
