"""Korean and Japanese tasks with a tokenizer of their own: from text to a fine-tuned model, scored and asked."""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from litebert.cli import app

pytestmark = pytest.mark.shared
ROWS, SCORED = 2_500, 500
SMALL = ("num_layers=2", "width=64", "feed_forward_width=256")
FINETUNE = ("epochs=2", "rate=1e-3", "scores=2")


def said(*words: object) -> str:
    """What a command prints, once it has done its work."""
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    return done.stdout


def pretrained(texts: list[str], language: str, folder: Path) -> Path:
    """A tokenizer of these texts and a tiny model that has seen a little of them."""
    (folder / "texts.txt").write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    said("tokenizer", "train", folder / "texts.txt", "--vocab-size", 1500, "-o", folder / "words")
    store = folder / "store"
    how = ("--tokenizer", folder / "words", "--language", language, "--held-out", "5%", "--workers", 1)
    said("corpus", "build", folder / "texts.txt", *how, "-o", store)
    length = ("--steps", 3, "batch_tokens=[[0,1024]]")
    said("pretrain", "albert-tiny", *SMALL, "--corpus", store, "--out", folder / "pre", *length)
    return folder / "pre"


@pytest.fixture(scope="module")
def cjk(shared_data, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cjk")
    with tarfile.open(shared_data / "cjk.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def lines_of(path: Path, most: int) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:most]


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_korean_reviews(cjk, tmp_path):
    """An eighth of NSMC: clearly better than chance, which is 50%."""
    head, *rows = lines_of(cjk / "nsmc" / "train.tsv", ROWS + 1)
    train = write_lines(tmp_path / "train.tsv", [head, *rows])
    test = write_lines(tmp_path / "test.tsv", lines_of(cjk / "nsmc" / "test.tsv", SCORED + 1))
    model = pretrained([row.split("\t")[1] for row in rows], "ko", tmp_path)
    how = ("--data", train, "--text", "document", "--label", "label", "--dev", test, "--device", "cpu")
    said("finetune", model, *how, "--out", tmp_path / "run", *FINETUNE)
    found = json.loads(said("evaluate", tmp_path / "run", "--data", test, "--json"))["parts"][0]
    assert found["count"] == SCORED and found["metrics"]["accuracy"] > 0.6
    answers = map(json.loads, said("predict", tmp_path / "run", test).splitlines())
    labels = [line.split("\t")[2] for line in lines_of(test, SCORED + 1)[1:]]
    right = sum(answer["label"] == label for answer, label in zip(answers, labels, strict=True))
    assert right / SCORED == pytest.approx(found["metrics"]["accuracy"], abs=0.005)


def test_japanese_pairs(cjk, tmp_path):
    """A fifth of JSTS: so small a model learns the level of the scores; what is said and what is scored agree."""
    folder = cjk / "jglue" / "jsts-v1.3"
    rows = lines_of(folder / "train-v1.3.json", ROWS)
    train = write_lines(tmp_path / "train.json", rows)
    test = write_lines(tmp_path / "test.json", lines_of(folder / "valid-v1.3.json", SCORED))
    pairs = map(json.loads, rows)
    model = pretrained([f"{pair['sentence1']}\n{pair['sentence2']}" for pair in pairs], "ja", tmp_path)
    how = ("--data", train, "--dev", test, "--device", "cpu", "--out", tmp_path / "run")
    said("finetune", model, *how, *FINETUNE)
    found = json.loads(said("evaluate", tmp_path / "run", "--data", test, "--json"))["parts"][0]
    answers = [float(json.loads(line)["label"]) for line in said("predict", tmp_path / "run", test).splitlines()]
    labels = [json.loads(line)["label"] for line in lines_of(test, SCORED)]
    assert abs(np.mean(answers) - np.mean(labels)) < 0.5 < np.mean(labels)
    assert found["count"] == len(answers) == SCORED
    assert np.corrcoef(answers, labels)[0, 1] == pytest.approx(found["metrics"]["pearson"], abs=0.005)
