"""What is learnt in the same time, at toy size: pieces, limits, what is kept, and rows as plain code makes them."""

import json
import subprocess

import pytest
import torch
from toy_pretraining import RECIPE, WORDS
from toy_stories import ANIMALS, PLACES, build_stories
from toy_trainer import make
from typer.testing import CliRunner

from litebert.corpus.store import Store
from litebert.errors import InputError
from litebert.train.settings import Bound
from litebert_lab.bench import learning
from litebert_lab.bench.commands import app
from litebert_lab.bench.plain_pretraining import PlainSettings, Rows, row_starts

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return build_stories(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def tests_of_language(tmp_path_factory):
    """A BLiMP and a GLUE about the animals."""
    folder = tmp_path_factory.mktemp("tests")
    (folder / "blimp").mkdir()
    pair = {"sentence_good": "first the cat woke up .", "sentence_bad": "cat the first woke up ."}
    (folder / "blimp" / "one.jsonl").write_text(json.dumps(pair) + "\n")
    (folder / "glue" / "CoLA").mkdir(parents=True)
    lines = [f"x\t{n % 2}\t\tthe {a} went to the {PLACES[a if n % 2 else 'cow']} ." for n in range(24) for a in ANIMALS]
    for split in ("train", "dev"):
        (folder / "glue" / "CoLA" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def invoke(store, tests, out, *more):
    words = ["learning", "--corpus", store, "--budget", "2s", "--seeds", 1, "--device", "cpu"]
    words += ["--preset", "albert-tiny", "--compiling", "outside"]
    words += ["--row", f"ours={' '.join([*WORDS, *RECIPE, 'averaging.kind=ema'])}", "--finetune", "steps=6"]
    words += ["--plain", json.dumps({"model": SIZES, "length": 32, "rows": 8})]
    words += ["--blimp", tests / "blimp", "--glue", tests / "glue", "--task", "cola", "--out", out, *more]
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def test_both_are_trained_and_measured_alike_and_no_piece_twice(store, tests_of_language, tmp_path, monkeypatch):
    ran = []

    def here(words):
        ran.append((words[5], words[7]))
        learning.run_piece(*words[3:])
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(learning.subprocess, "run", here)
    out = tmp_path / "out"
    invoke(store, tests_of_language, out, "--limit", "1s")
    assert not ran and json.loads((out / "learning.json").read_text())["finished"] == 0
    done = invoke(store, tests_of_language, out, "--json")
    assert done.exit_code == 0
    found = json.loads((out / "learning.json").read_text())
    pieces = ["train", "held_out", "blimp", "cola"]
    assert ran == [(engine, piece) for engine in ("transformers", "ours") for piece in pieces]
    assert found["finished"] == found["of"] == 8
    for engine in ("transformers", "ours"):
        figures = found["figures"][engine]
        assert set(figures) == {"seconds", "ready after", "Mtokens", "held-out loss", "masked words %", "order %",
                                "BLiMP", "cola matthews"}  # fmt: skip
        assert all(len(values) == 1 for values in figures.values()) and figures["Mtokens"][0] > 0
        assert figures["seconds"][0] > 1 and figures["held-out loss"][0] < 5
        assert not (learning.piece_folder(out, engine, 0) / "model").exists()
    invoke(store, tests_of_language, out)
    assert len(ran) == 8
    with pytest.raises(InputError, match="was begun with other compiling"):
        invoke(store, tests_of_language, out, "--compiling", "inside")


def test_compiling_outside_counts_from_the_first_step():
    trainer = make(learning.CompilingOutside(100.0), steps=6)
    steps = iter(trainer)
    next(steps)
    assert trainer.state.lead > 0 and trainer.settings.bound == Bound(seconds=100.0 + trainer.state.lead)
    assert trainer.progress() < 0.1
    steps.close()


def test_rows_of_plain_code(store):
    opened, settings = Store.open(store), PlainSettings(model=SIZES, length=33, rows=64)
    tokens, starts = row_starts(opened, 30)
    assert len(tokens) == opened.split("train").num_tokens and starts.max() + 30 <= len(tokens)
    batch = Rows(opened, settings, torch.device("cpu"), 0).batch()
    ids, labels, special = batch["input_ids"], batch["labels"], opened.special_ids
    assert ids.shape == (64, 33) and (ids[:, 0] == special["cls"]).all() and (ids[:, -1] == special["sep"]).all()
    masked = labels != -100
    assert 0.08 < masked.float().mean() < 0.2 and (ids[masked] == special["mask"]).float().mean() > 0.6
    assert (ids[~masked] != special["mask"]).all()
    text = torch.where(masked, labels, ids)
    rows = {tuple(tokens[start : start + 30].tolist()) for start in starts}
    for row, swapped in zip(text, batch["next_sentence_label"], strict=True):
        first, second = row[1:16].tolist(), row[17:32].tolist()
        assert tuple(second + first if swapped else first + second) in rows
    again = Rows(opened, settings, torch.device("cpu"), 0).batch()
    assert torch.equal(again["input_ids"], ids)
