"""``bench inference`` on a small model: every engine gets the same texts, and what cannot run says why."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from litebert.errors import InputError
from litebert.model import Model, load
from litebert.nn.config import family_config
from litebert.nn.network import pretraining_network
from litebert.report import to_markdown
from litebert.text.tokenizer_files import read_tokenizer
from litebert_lab.bench.inference import (
    InferenceSettings,
    bench_gpu,
    bench_inference,
    gpu_report,
    inference_report,
    packed_vectors,
    padded_vectors,
    parse_pythons,
    texts_of_lengths,
)
from litebert_lab.bench.theirs import their_model

pytest.importorskip("onnxruntime", reason="litebert[runtime] is not installed")
pytest.importorskip("onnx", reason="litebert[export] is not installed")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "a", "mat", "##s", "dog", "ran", "!"]
TEXTS = ["the cat sat on a mat !", "dog", "a dog ran !", "cats on the mat"]


def saved_model(folder: Path, family: str) -> Path:
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    torch.manual_seed(0)
    sizes = {"vocab_size": len(WORDS), "width": 64, "num_layers": 3, "num_heads": 4, "feed_forward_width": 128}
    network = pretraining_network(family_config({"family": family, "max_positions": 40, **sizes}))
    Model(network.eval(), read_tokenizer(folder, "bert")).save(folder / "model")
    return folder / "model"


@pytest.fixture(scope="module")
def albert(tmp_path_factory):
    return saved_model(tmp_path_factory.mktemp("albert"), "albert")


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return saved_model(tmp_path_factory.mktemp("bert"), "bert")


def test_texts_have_the_lengths_asked_for(albert):
    tokenizer = load(albert).tokenizer
    texts = texts_of_lengths(tokenizer, [4, 9, 40])
    assert [len(tokenizer.encode(text).ids) for text in texts] == [4, 9, 40]
    assert not {"[PAD]", "[MASK]", "##s"} & {word for text in texts for word in text.split()}
    assert texts == texts_of_lengths(tokenizer, [4, 9, 40])


def test_engines_compute_the_same_and_others_say_why_not(albert):
    engines = ("transformers", "transformers-sorted", "ort-fp32", "ort-int8", "ort-int8-stock", "ctranslate2", "torch")
    settings = InferenceSettings(
        count=5, depths=(12, 2), engines=(*engines, "runtime", "openvino"), rounds=2, pythons={"openvino": "/bin/false"}
    )
    result = bench_inference(str(albert), settings)
    rows = {(row.engine, row.depth): row for row in result.rows}
    assert set(rows) == {(name, 3) for name in (*engines, "runtime", "openvino")} | {("runtime", 2)}
    for engine in ("transformers", "transformers-sorted", "ort-fp32", "torch"):
        assert rows[engine, 3].worst_difference < 1e-4
    for key in (("ort-int8", 3), ("runtime", 3), ("runtime", 2)):
        assert 0 < rows[key].mean_difference < 0.05
    measured = [row for row in result.rows if not row.missing]
    for row in measured:
        figures = (row.texts_per_second, row.processor_ms, row.short_ms, row.long_ms, row.fixed_per_second, row.size)
        figures += (row.fixed_processor_ms,)
        assert min(figures) > 0 and row.resident > 1e7
    assert rows["transformers", 3].to_transformers == rows["ort-fp32", 3].to_ort_fp32 == 1
    assert "shared" in rows["ort-int8-stock", 3].missing  # ALBERT's layers are
    assert rows["ctranslate2", 3].missing  # is not installed, or has no ALBERT
    assert rows["openvino", 3].missing == "it ended without a word"
    shown = to_markdown(inference_report(result))
    assert "litebert runtime int8, depth 2" in shown and "Not measured" in shown


def test_layers_of_their_own_are_exported_at_each_depth_and_quantised_by_others(bert):
    settings = InferenceSettings(count=4, depths=(2,), engines=("ort-int8-stock", "runtime"), rounds=1)
    rows = bench_inference(str(bert), settings, TEXTS).rows
    assert [(row.engine, row.depth) for row in rows] == [("ort-int8-stock", 3), ("runtime", 3), ("runtime", 2)]
    assert all(0 < row.mean_difference < 0.05 and not row.missing for row in rows)
    assert rows[2].size < rows[1].size
    assert rows[0].to_transformers is None  # which was not asked


@torch.inference_mode()
def test_packed_and_padded_vectors_are_those_of_the_model(albert):
    model = load(albert, device="cpu")
    expected = model.encode(TEXTS, pooling="mean")
    rows = [one.ids for one in model.tokenizer.encode_batch(TEXTS)]
    theirs = their_model(model.network, "AutoModel").eval()
    np.testing.assert_allclose(packed_vectors(model, rows, 12), expected, atol=1e-5)
    for multiple in (1, 16):
        np.testing.assert_allclose(padded_vectors(theirs, rows, 3, "cpu", multiple), expected, atol=1e-5)


def test_what_runs_on_a_gpu_runs_here_too(albert):
    result = bench_gpu(str(albert), count=6, rounds=1, device="cpu", compiled=False)
    assert [row.name for row in result.rows] == ["transformers, sorted by length", "litebert, packed"]
    assert all(0 < row.worst_difference < 0.1 and row.from_ids >= row.texts_per_second > 0 for row in result.rows)
    assert "litebert, packed" in to_markdown(gpu_report(result))


@pytest.mark.gpu
def test_on_a_gpu(albert):
    rows = bench_gpu(str(albert), count=64, rounds=1).rows
    assert len(rows) == 4 and all(row.worst_difference < 0.1 for row in rows)


def test_the_command(albert, tmp_path, monkeypatch, capsys):
    from litebert_lab.cli import main

    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    words = ["bench", "inference", str(albert), "--texts", str(tmp_path / "texts.txt"), "--engines", "runtime"]
    monkeypatch.setattr(sys, "argv", ["litebert-lab", *words, "--depths", "1", "--rounds", "1", "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    found = json.loads(capsys.readouterr().out)
    assert found["texts"] == 4
    assert [row["depth"] for row in found["rows"]] == [3, 1]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"engines": ("onnx",)}, "no engine 'onnx'"),
        ({"rounds": 0}, "must be 1 or more"),
        ({"depths": (0,)}, "must be 1 or more"),
    ],
)
def test_bad_settings_get_a_sentence(albert, settings, words):
    with pytest.raises(InputError, match=words):
        bench_inference(str(albert), InferenceSettings(**settings))


def test_interpreters_by_engine():
    assert parse_pythons([f"torch={sys.executable}"]) == {"torch": sys.executable}
    for wrong, words in (("tort=python", "no engine 'tort'"), ("torch=/nowhere", "is not an interpreter")):
        with pytest.raises(InputError, match=words):
            parse_pythons([wrong])
