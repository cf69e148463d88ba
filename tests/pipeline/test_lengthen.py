"""A model lengthened and trained on long documents, exactly resumed, fine-tuned on long texts; and windows instead."""

import json
import random
import shutil

import numpy as np
import pytest
import torch
from toy_pretraining import settings, weights

from litebert import api
from litebert.errors import InputError
from litebert.pretraining.run import pretrain
from litebert.train.metrics import read_metrics

SHORT, LONG = 64, 192  # positions
TOLD = ("batches.tokens=[[0,768]]", "optimiser.rate=0.001")


@pytest.fixture(scope="module")
def short(store, tmp_path_factory):
    run = tmp_path_factory.mktemp("short") / "run"
    pretrain(settings(store, run, words=(f"max_positions={SHORT}",)))
    return run / "model"


@pytest.fixture(scope="module")
def longer(short, store, tmp_path_factory):
    out = tmp_path_factory.mktemp("long") / "run"
    found = api.lengthen(
        short, to=LONG, attention="local(16)+global", corpus=store, steps=6, settings=TOLD, out=out, device="cpu"
    )
    assert found.status == "finished" and found.steps == 6
    return out


def test_a_lengthened_model_has_trained_on_long_inputs(short, longer):
    model = api.load(longer, device="cpu")
    assert model.max_length == LONG and model.config.attention == "local(16)+global"
    assert set(model.heads) >= {"masked_lm", "order", "pooler"}
    rows = [row for row in read_metrics(longer) if row.get("split") == "held_out"]
    assert all(np.isfinite(row["mlm_loss"]) for row in rows)
    note = json.loads((longer / "run.json").read_text())
    assert note["settings"]["encoder"]["max_positions"] == LONG
    assert [parent["role"] for parent in note["parents"]] == ["corpus", "start"]
    assert not torch.equal(
        weights(longer)["encoder.attention.0.qkv.weight"], weights(short)["encoder.attention.0.qkv.weight"]
    )


def test_a_lengthening_run_resumes_exactly(short, longer, store, tmp_path):
    def lengthen(**more):
        return api.lengthen(
            short,
            to=LONG,
            attention="local(16)+global",
            corpus=store,
            settings=TOLD,
            out=tmp_path / "run",
            device="cpu",
            steps=6,
            save_every="3",
            **more,
        )

    lengthen()
    states = sorted((tmp_path / "run" / "checkpoints").iterdir())
    shutil.rmtree(states[-1])
    assert lengthen(resume=True).steps == 6
    for name, tensor in weights(longer).items():
        assert torch.equal(tensor, weights(tmp_path / "run")[name]), name


def test_a_model_is_lengthened_without_training(short, tmp_path, litebert):
    words = ("--to", "128", "--attention", "block(32)+global")
    assert litebert("lengthen", short, *words, "-o", tmp_path / "long")[0] == 0
    model, old = api.load(tmp_path / "long", device="cpu"), api.load(short, device="cpu")
    assert model.max_length == 128 and len(model.encode("the cat sat " * 60)) == len(old.encode("the cat"))
    with pytest.raises(InputError, match="a corpus to train on"):
        api.lengthen(short, to=128, budget="1m", out=tmp_path / "other")
    with pytest.raises(InputError, match="not empty"):
        api.lengthen(short, to=128, out=tmp_path / "long")


def test_a_store_without_long_documents_is_refused(short, store, tmp_path):
    with pytest.raises(InputError, match="documents of 100,000 tokens or more are too few"):
        api.lengthen(
            short,
            to=LONG,
            corpus=store,
            steps=2,
            settings=[*TOLD, "batches.min_document=100000"],
            out=tmp_path / "run",
            device="cpu",
        )


def test_an_exported_long_model_reads_long_texts(longer, tmp_path):
    pytest.importorskip("onnxruntime", reason="litebert[runtime] is not installed")
    pytest.importorskip("onnx", reason="litebert[export] is not installed")
    model = api.load(longer, device="cpu")
    model.export(tmp_path / "small", bits=32, standard=False)
    exported = api.load(tmp_path / "small")
    text = "first the cat woke up . it sat in the barn all day . " * 12
    assert exported.max_length == LONG and SHORT < len(model.tokenizer.encode(text).ids) < LONG
    np.testing.assert_allclose(exported.encode(text), model.encode(text), atol=1e-4)


@pytest.fixture(scope="module")
def rows():
    """Texts whose label is in their last word, most of them longer than the short model reads."""
    draw = random.Random(0)
    words = ["first the horse woke up .", "it sat in the barn all day .", "last the fish went home ."]
    return [
        {"text": " ".join([*draw.choices(words, k=draw.randint(1, 24)), animal]), "label": animal}
        for animal in ["cat", "dog"] * 24
    ]


def test_fine_tuning_reads_long_texts_by_default(longer, short, rows, tmp_path, caplog):
    with caplog.at_level("INFO"):
        run = api.finetune(longer / "model", rows, epochs=1, out=tmp_path / "long", device="cpu")
    longest = max(len(one.ids) for one in run.model.tokenizer.encode_batch([row["text"] for row in rows]))
    assert longest > SHORT and SHORT < run.model.task.length <= LONG
    api.load(short, device="cpu").lengthened(600, attention="local(16)+global").save(tmp_path / "all")
    whole = api.finetune(tmp_path / "all", rows, epochs=1, out=tmp_path / "whole", device="cpu")
    assert whole.model.task.length == 600  # whatever the longest text of the data is
    with caplog.at_level("INFO"):
        cut = api.finetune(short, rows, epochs=1, out=tmp_path / "short", device="cpu")
    assert cut.model.task.length == SHORT
    assert any("training texts are longer than 64 tokens and are cut" in record.message for record in caplog.records)


def test_windows_on_the_command_line(short, rows, tmp_path, litebert):
    api.finetune(short, rows, epochs=1, out=tmp_path / "run", device="cpu")
    (tmp_path / "new.jsonl").write_text("".join(json.dumps({"text": row["text"]}) + "\n" for row in rows))
    found = {}
    for name, more in (("cut", ()), ("windows", ("--windows",))):
        out = tmp_path / f"{name}.jsonl"
        code, _, err = litebert(
            "predict", tmp_path / "run", tmp_path / "new.jsonl", "-o", out, "--device", "cpu", *more
        )
        assert code == 0 and "texts are longer than 64 tokens" in err
        found[name] = [json.loads(line) for line in out.read_text().splitlines()]
    model = api.load(tmp_path / "run", device="cpu")
    sizes = [len(one.ids) for one in model.tokenizer.encode_batch([row["text"] for row in rows])]
    too_long = [size > SHORT for size in sizes]
    assert [one.get("cut", False) for one in found["cut"]] == too_long
    assert [one.get("windows", 1) > 1 for one in found["windows"]] == too_long and True in too_long
    assert not any("cut" in one for one in found["windows"])
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    _, out, _ = litebert("evaluate", tmp_path / "run", "--data", tmp_path / "all.jsonl", "--windows", "--json")
    scores = json.loads(out)
    assert scores["in_windows"] == sum(too_long) and scores["cut"] == 0
