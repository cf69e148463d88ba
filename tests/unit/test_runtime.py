"""Exported folders answer as the model they were made of: every kind of question, without torch, whatever else runs."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import litebert
from litebert.errors import InputError
from litebert.model import Model
from litebert.nn.config import family_config
from litebert.nn.network import HeadsConfig, Network, NetworkConfig, pretraining_network
from litebert.pooling import SentenceSettings
from litebert.tasks.examples import TaskSpec
from litebert.text.tokenizer_files import read_tokenizer

pytest.importorskip("onnxruntime", reason="litebert[runtime] is not installed")
onnx = pytest.importorskip("onnx", reason="litebert[export] is not installed")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "a", "mat", "and", "dog", "ran"]
WORDS += ["far", "away", ",", ".", "!"]
SIZES = {"vocab_size": len(WORDS), "width": 64, "num_layers": 3, "num_heads": 4, "feed_forward_width": 128}
TEXTS = ["the cat sat on a mat .", "dog", "a cat and a dog ran far away !", "the mat", ""]
LABELS = {"classify": ("no", "yes", "maybe"), "multilabel": ("animal", "place"), "regress": ("score",)}
ROWS = {
    "choice": [
        {"question": "the cat", "options": ["sat", "ran away"]},
        {"question": "a", "options": ["dog", "mat", "."]},
    ],
    "span": [{"question": "the cat", "context": "a dog ran far away and the cat sat on a mat . " * 3}],
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return read_tokenizer(folder, "bert")


def scrambled(network: Network) -> Network:
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.2)
    return network.eval()


def pretrained(tokenizer, family: str = "albert", **settings) -> Model:
    torch.manual_seed(0)
    network = pretraining_network(family_config({"family": family, "max_positions": 24, **SIZES}))
    return Model(scrambled(network), tokenizer, **settings)


def tuned(kind: str, tokenizer, *, answerable: bool = False, family: str = "albert", **spec) -> Model:
    torch.manual_seed(1)
    names = ({"choice": "choice", "span": "span"}.get(kind, "classify"),)
    heads = HeadsConfig(names=names, labels=LABELS.get(kind, ("0", "1")), answerable=answerable)
    encoder = family_config({"family": family, "max_positions": 24, **SIZES})
    labels = LABELS[kind] if kind in ("classify", "multilabel") else ()
    task = TaskSpec(task="toy", kind=kind, labels=labels, length=24, stride=8, **spec)
    return Model(scrambled(Network(NetworkConfig(encoder=encoder, heads=heads))), tokenizer, task=task)


@pytest.fixture(scope="module")
def model(tokenizer):
    return pretrained(tokenizer)


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory) -> Path:
    return model.export(tmp_path_factory.mktemp("exported") / "int8").folder


def reference(model: Model, folder: Path, **settings) -> litebert.Runtime:
    """The same model exported in fp32, which differs from torch by rounding alone."""
    return litebert.load(model.export(folder, bits=32, standard=False, **settings).folder)


def test_vectors_words_and_order_are_those_of_the_model(model, tmp_path):
    runtime = reference(model, tmp_path / "out")
    for depth in (None, 1, 3):
        for pooling in (None, "mean", "first", "pooler"):
            found = runtime.encode(TEXTS, pooling=pooling, depth=depth)
            np.testing.assert_allclose(found, model.encode(TEXTS, pooling=pooling, depth=depth), atol=1e-4)
        gap = ["the [MASK] sat", "a [MASK] and a [MASK]"]
        for ours, theirs in zip(runtime.fill(gap, 3, depth=depth), model.fill(gap, 3, depth=depth), strict=True):
            assert [[one.word for one in row] for row in ours] == [[one.word for one in row] for row in theirs]
            assert ours[0][0].probability == pytest.approx(theirs[0][0].probability, abs=1e-4)
        pairs = [("the cat", "sat on a mat"), ("dog", "ran")]
        assert runtime.order(pairs, depth=depth) == pytest.approx(model.order(pairs, depth=depth), abs=1e-4)
    vectors = runtime.encode(["the cat"], pairs=["a dog"], normalize=True)
    np.testing.assert_allclose(vectors, model.encode(["the cat"], pairs=["a dog"], normalize=True), atol=1e-4)
    assert runtime.encode("the cat").shape == (64,)


@pytest.mark.parametrize("kind", ["classify", "multilabel", "regress", "choice", "span"])
@pytest.mark.parametrize("family", ["albert", "bert"])
def test_predictions_are_those_of_the_model(kind, family, tokenizer, tmp_path):
    has_null = kind == "span"
    model = tuned(kind, tokenizer, answerable=has_null, family=family, has_null=has_null)
    runtime = reference(model, tmp_path / "out")
    rows = ROWS.get(kind, TEXTS)
    for ours, theirs in zip(runtime.predict(rows), model.predict(rows), strict=True):
        if kind == "regress":
            assert ours.label == pytest.approx(theirs.label, abs=1e-4)
        else:
            assert (ours.label, ours.start) == (theirs.label, theirs.start)
            assert ours.probabilities == pytest.approx(theirs.probabilities, abs=1e-4)
    assert runtime.labels == model.labels


def test_scores_are_those_of_the_model(tokenizer, tmp_path):
    model = tuned("classify", tokenizer)
    data = {"text": TEXTS[:4], "label": ["no", "yes", "maybe", "no"]}
    assert reference(model, tmp_path / "out").evaluate(data).scores == model.evaluate(data).scores


def test_integers_are_close_and_do_not_depend_on_other_texts(model, exported):
    runtime = litebert.load(exported, threads=3)
    found = runtime.encode(TEXTS * 4, pooling="mean")
    expected = model.encode(TEXTS * 4, pooling="mean")
    assert np.abs(found - expected).mean() < 0.05 * np.abs(expected).mean()
    for text, vector in zip(TEXTS, found, strict=False):
        assert (runtime.encode(text, pooling="mean") == vector).all()


def test_a_single_long_text_gets_all_threads_and_the_same_bits(tokenizer, tmp_path):
    torch.manual_seed(0)
    config = family_config({"family": "albert", "max_positions": 300, **SIZES})
    model = Model(scrambled(pretraining_network(config)), tokenizer)
    runtime = litebert.load(model.export(tmp_path / "out", standard=False).folder, threads=3)
    text = "the cat sat on a mat and a dog ran far away " * 20
    assert runtime._sessions._all is None
    alone = runtime.encode(text, pooling="mean")
    together = runtime._sessions._all.get_session_options()
    assert together.intra_op_num_threads == 3
    key = "session.intra_op.allow_spinning"
    assert runtime._sessions.one.get_session_options().get_session_config_entry(key) == "0"
    assert together.get_session_config_entry(key) == ("1" if runtime._sessions.awake else "0")
    if runtime._sessions.awake:  # for a moment only
        assert together.get_session_config_entry("session.intra_op.spin_duration_us") == "1000"
    assert (alone == runtime.encode([text, "a dog"], pooling="mean")[0]).all()
    with runtime._sessions._free:  # another text has the threads
        assert (alone == runtime.encode(text, pooling="mean")).all()


def test_threads_sleep_where_onnxruntime_cannot_bound_how_long_they_wait_awake(exported, monkeypatch):
    monkeypatch.setattr("litebert.runtime.SPIN_IS_BOUNDED", (99, 0))
    sessions = litebert.load(exported, threads=2)._sessions
    used = []
    for length in (24, 25):
        sessions.alone(used.append, length)
    assert used == [sessions.one, sessions._all] and not sessions.awake
    assert used[1].get_session_options().get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_the_standard_file_gives_a_row_the_same_bits_in_any_batch(exported, tokenizer):
    """Activations have a scale for each token; with one for the whole batch, rows would depend on each other."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(exported / "onnx" / "model_quantized.onnx"), options)
    rows = [tokenizer.encode(text).ids for text in ("the cat sat on", "a dog ran far", "the mat and a")]
    ids = np.array(rows)
    fed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    together = session.run(["last_hidden_state"], fed)[0]
    for row in range(len(rows)):
        alone = session.run(["last_hidden_state"], {name: cells[row : row + 1] for name, cells in fed.items()})[0]
        assert (alone[0] == together[row]).all()


def test_seven_bits_for_processors_that_overflow(model, exported, monkeypatch):
    eight, seven = litebert.Runtime(exported, activation_bits=8), litebert.Runtime(exported, activation_bits=7)
    expected = model.encode(TEXTS)
    assert (eight.encode(TEXTS) != seven.encode(TEXTS)).any()
    assert np.abs(seven.encode(TEXTS) - expected).mean() < 0.1 * np.abs(expected).mean()
    monkeypatch.setattr("litebert.runtime.has_wide_integer_sums", lambda: False)
    assert litebert.load(exported).activation_bits == 7


def test_four_bits_are_smaller_and_near(model, exported, tmp_path):
    made = model.export(tmp_path / "four", bits=4, standard=False)
    assert made.files["litebert.onnx"] < (exported / "litebert.onnx").stat().st_size
    expected = model.encode(TEXTS)
    assert np.abs(litebert.load(made.folder).encode(TEXTS) - expected).mean() < 0.5 * np.abs(expected).mean()


def test_one_scale_for_a_tensor_is_fused(model, tmp_path):
    """A new onnxruntime that no longer fuses these nodes would be several times slower without a word."""
    import onnxruntime

    folder = model.export(tmp_path / "out", per_tensor=True, standard=False).folder
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    onnxruntime.InferenceSession(str(folder / "litebert.onnx"), options, disabled_optimizers=["SkipLayerNormFusion"])
    kinds = [node.op_type for node in _nodes(onnx.load(tmp_path / "optimised.onnx").graph)]
    assert kinds.count("DynamicQuantizeMatMul") >= 4
    assert "MatMulInteger" not in kinds
    assert litebert.load(folder).encode("the cat").shape == (64,)


def test_products_of_the_int8_file_are_integers(exported, tmp_path):
    kinds = [node.op_type for node in _nodes(onnx.load(exported / "litebert.onnx").graph)]
    assert kinds.count("MatMulIntegerToFloat") == 8  # projection, four of the block, pooler, two of the vocabulary
    assert kinds.count("MatMul") == 3  # scores, what is seen, and the small order head


def _nodes(graph):
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


def test_depth(exported, tokenizer, tmp_path):
    runtime = litebert.load(exported, depth=2)
    whole = litebert.load(exported)
    assert (runtime.encode(TEXTS) == whole.encode(TEXTS, depth=2)).all()
    assert (whole.at_depth(2).encode(TEXTS) == runtime.encode(TEXTS)).all()
    assert (whole.encode(TEXTS) != runtime.encode(TEXTS)).any()
    with pytest.raises(InputError, match="4"):
        whole.encode(TEXTS, depth=4)
    layered = pretrained(tokenizer, "bert")
    folder = layered.at_depth(2).export(tmp_path / "bert", bits=32, standard=False).folder
    cut = litebert.load(folder)
    assert cut.num_layers == 2
    np.testing.assert_allclose(cut.encode(TEXTS), layered.encode(TEXTS, depth=2), atol=1e-4)
    with pytest.raises(InputError, match=r"depth is 1 .* export"):
        cut.encode(TEXTS, depth=1)


def test_a_folder_keeps_how_texts_become_vectors(tokenizer, tmp_path):
    model = pretrained(tokenizer, sentence=SentenceSettings(pooling="mean", normalize=True, max_length=5))
    runtime = reference(model, tmp_path / "out")
    found = runtime.encode(TEXTS)
    np.testing.assert_allclose(found, model.encode(TEXTS), atol=1e-4)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert (tmp_path / "out" / "1_Pooling" / "config.json").is_file()


def test_what_cannot_be_exported_says_why(tokenizer, tmp_path, caplog):
    made = pretrained(tokenizer, "xlnet").export(tmp_path / "out", standard=False)
    assert any("masked_lm" in note and "second stream" in note for note in made.notes)
    runtime = litebert.load(made.folder)
    assert runtime.encode(TEXTS).shape == (5, 64)
    with pytest.raises(InputError, match="masked-LM"):
        runtime.fill("the [MASK]")


def test_no_torch_is_needed(exported):
    script = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "numba", "typer", "matplotlib", "safetensors", "sentencepiece"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import litebert
model = litebert.load({str(exported)!r})
print(model.encode("the cat").shape, model.fill("the [MASK] sat", top=1)[0].word != "", model.order([("a", "dog")]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "(64,) True" in done.stdout


def test_commands_take_exported_folders(tokenizer, tmp_path, monkeypatch, capsys):
    from litebert.cli import main

    def run(*words: object) -> str:
        monkeypatch.setattr(sys, "argv", ["litebert", *map(str, words)])
        try:
            main()
        except SystemExit as ended:
            assert not ended.code, capsys.readouterr().err
        return capsys.readouterr().out

    pretrained(tokenizer).save(tmp_path / "model")
    tuned("classify", tokenizer).save(tmp_path / "tuned")
    shown = run("export", tmp_path / "model", "-o", tmp_path / "out", "--fp32")
    assert "litebert.onnx" in shown and "model_quantized.onnx" in shown
    assert run("fill", tmp_path / "out", "the [MASK] sat") == run("fill", tmp_path / "model", "the [MASK] sat")
    run("export", tmp_path / "tuned", "-o", tmp_path / "labels", "--fp32", "--no-standard")
    (tmp_path / "new.csv").write_text("text\nthe cat\na dog\n")
    for name in ("tuned", "labels"):
        run("predict", tmp_path / name, tmp_path / "new.csv", "-o", tmp_path / f"{name}.csv")
    rows = [(tmp_path / f"{name}.csv").read_text().splitlines() for name in ("tuned", "labels")]
    assert [row.split(",")[:2] for row in rows[0]] == [row.split(",")[:2] for row in rows[1]]
    (tmp_path / "dev.csv").write_text("text,label\nthe cat,no\na dog,yes\n")
    assert run("evaluate", tmp_path / "labels", "--data", tmp_path / "dev.csv")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "litebert.onnx").write_bytes(b"nothing"), "litebert.onnx cannot be loaded"),
        (lambda folder: (folder / "litebert.json").write_text("{"), "litebert.json cannot be used"),
        (lambda folder: (folder / "litebert.json").write_text("[]"), "litebert.json cannot be used"),
        (lambda folder: _change(folder, format=2), "format 2"),
    ],
)
def test_a_damaged_folder_gets_a_sentence(damage, words, model, tmp_path):
    folder = model.export(tmp_path / "out", standard=False).folder
    damage(folder)
    with pytest.raises(InputError, match=words):
        litebert.load(folder)


def _change(folder: Path, **fields: object) -> None:
    path = folder / "litebert.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_bad_requests_get_a_sentence(model, exported, tmp_path):
    with pytest.raises(InputError, match="exists"):
        model.export(exported)
    with pytest.raises(InputError, match="leave out device"):
        litebert.load(exported, device="cuda")
    with pytest.raises(InputError, match="threads"):
        model.save(tmp_path / "plain")
        litebert.load(tmp_path / "plain", threads=2)
    with pytest.raises(InputError, match="exported"):
        litebert.export(exported, out=tmp_path / "again")
    with pytest.raises(InputError, match="bits"):
        litebert.export(tmp_path / "plain", out=tmp_path / "again", bits=5)
    with pytest.raises(InputError, match="different"):
        litebert.export(tmp_path / "plain", out=tmp_path / "again", bits=4, fp32=True)
    assert not (tmp_path / "again").exists()
    with pytest.raises(InputError, match=r"texts\[1\] is None"):
        litebert.load(exported).encode(["a", None])


def test_the_tokenizer_says_what_other_programs_ask_for(tokenizer, tmp_path):
    """fastembed cuts texts at ``model_max_length`` and refuses a folder without it."""
    for name, sentence, length in (("a", None, 24), ("b", SentenceSettings(pooling="mean", max_length=5), 5)):
        folder = pretrained(tokenizer, sentence=sentence).export(tmp_path / name, standard=False).folder
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        assert settings["model_max_length"] == length
        assert json.loads((folder / "special_tokens_map.json").read_text())["pad_token"] == "[PAD]"
