"""``litebert evaluate``: a file of predictions, a small model at every depth, pages, mistakes told in a sentence."""

import json
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from litebert.checkpoints.folder import save_model
from litebert.cli import app
from litebert.errors import InputError
from litebert.nn.config import family_config
from litebert.nn.network import HeadsConfig, Network, NetworkConfig
from litebert.text.tokenizer_files import read_tokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "a", "the", "very", "not"]


def call(*words):
    """The verb's standard output; a mistake raises what the command line turns into a sentence."""
    result = CliRunner().invoke(app, ["evaluate", *map(str, words)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


@pytest.fixture
def reviews(tmp_path):
    path = tmp_path / "reviews.csv"
    rows = [f"{'good' if n % 2 else 'bad'} film {'very ' * (n % 5)},{('no', 'yes')[n % 2]}" for n in range(40)]
    path.write_text("text,label\n" + "\n".join(rows) + "\n")
    return path


@pytest.fixture
def model(tmp_path):
    (tmp_path / "words").mkdir()
    (tmp_path / "words/vocab.txt").write_text("\n".join(WORDS) + "\n")
    torch.manual_seed(0)
    sizes = {"vocab_size": len(WORDS), "width": 16, "num_layers": 3, "num_heads": 2, "feed_forward_width": 32}
    encoder = family_config({"family": "bert", "max_positions": 32, **sizes})
    network = Network(
        NetworkConfig(encoder=encoder, heads=HeadsConfig(names=("classify",), labels=("yes", "no")))
    ).eval()
    save_model(tmp_path / "model", network, read_tokenizer(tmp_path / "words", "bert"), verb="test")
    return tmp_path / "model"


def test_a_model_at_every_depth(model, reviews, tmp_path):
    found = json.loads(call(model, "--data", reviews, "--depths", "all", "--json", "--html", tmp_path / "page.html"))
    (part,) = found["parts"]
    assert part["count"] == 40
    assert part["labels"] == ["yes", "no"], "in the model's order, not in that of the file"
    assert [row["depth"] for row in found["depths"]] == [1, 2, 3]
    assert found["depths"][-1]["metrics"] == part["metrics"]
    assert sum(map(sum, part["confusion"])) == 40
    assert "<svg" in (tmp_path / "page.html").read_text()


def test_a_file_of_predictions_gives_the_same_as_the_model(model, reviews, tmp_path):
    from litebert.tasks.predicting import load_predictor
    from litebert.tasks.sources import read_task

    data = read_task(None, reviews, labels=["yes", "no"], whole=True)
    said = load_predictor(model).predict(data.dev["dev"])
    lines = [json.dumps({"key": one.key, "label": data.labels[one.label]}) + "\n" for one in said]
    (tmp_path / "p.jsonl").write_text("".join(lines))
    of_file = json.loads(call("--data", reviews, "--predictions", tmp_path / "p.jsonl", "--json"))
    of_model = json.loads(call(model, "--data", reviews, "--json"))
    assert of_file["parts"][0]["metrics"] == pytest.approx(of_model["parts"][0]["metrics"])


def test_progress_is_reported_batch_by_batch(model, reviews, monkeypatch):
    from litebert.tasks.predicting import BUDGET, load_predictor
    from litebert.tasks.sources import read_task

    items = read_task(None, reviews, labels=["yes", "no"], whole=True).dev["dev"]
    predictor = load_predictor(model, device="cpu")
    monkeypatch.setitem(BUDGET, "cpu", 64)  # tokens of a batch: about ten of these texts
    done: list[int] = []
    assert len(predictor.predict(items, done.append)) == 40
    assert len(done) > 3 and done == sorted(set(done)) and done[0] == 0 and done[-1] < 40


def test_nothing_to_predict_is_told(model, tmp_path):
    (tmp_path / "none.csv").write_text("text\n")
    result = CliRunner().invoke(app, ["predict", str(model), str(tmp_path / "none.csv")])
    assert result.exit_code == 0 and result.stdout == ""
    assert "nothing was predicted" in result.stderr and "none.csv holds no texts" in result.stderr


def test_a_model_that_has_the_labels_in_another_order_is_understood(model, tmp_path):
    """The task's files say not_entailment second; a model may have learnt it first."""
    from litebert.checkpoints.folder import load_model

    rows = "".join(f"{n}\tgood film\t{'bad ' * n}\t{('not_entailment', 'entailment')[n % 2]}\n" for n in range(12))
    (tmp_path / "dev.tsv").write_text(f"index\tsentence1\tsentence2\tlabel\n{rows}")
    loaded = load_model(model)
    results = []
    for labels in (["ENTAILMENT", "not_entailment"], ["not_entailment", "entailment"]):
        heads = HeadsConfig(names=("classify",), labels=tuple(labels))
        network = Network(NetworkConfig(encoder=loaded.network.config.encoder, heads=heads)).eval()
        network.load_state_dict(loaded.network.state_dict())
        if labels[0] == "not_entailment":
            with torch.no_grad():
                head = network.heads["classify"].linear
                head.weight.copy_(head.weight.flip(0))
                head.bias.copy_(head.bias.flip(0))
        save_model(tmp_path / labels[0], network, loaded.tokenizer, verb="test")
        results.append(json.loads(call(tmp_path / labels[0], "--task", "rte", "--data", tmp_path, "--json"))["parts"])
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "give either a model or predictions"),
        (["MODEL", "--predictions", "x"], "give either a model or predictions"),
        (["nowhere", "--data", "DATA"], "nowhere"),
        (["--predictions", "x", "--depths", "2"], "depths needs a model"),
        (["--predictions", "x"], "data is missing: name a task"),
        (["--predictions", "x", "--data", "none.csv"], r"no file or folder 'none\.csv'"),
        (["--predictions", "x", "--task", "sst-2", "--data", "."], "no task 'sst-2'; did you mean 'sst2'"),
        (["--predictions", "x", "--data", "DATA"], "there is no file 'x'"),
        (["--predictions", "x", "--task", "sst2", "--data", ".", "--text", "a"], "sst2 knows its own columns"),
        (["MODEL", "--data", "DATA", "--depths", "9"], "the model has depths 1 to 3"),
        (["MODEL", "--data", "DATA", "--depths", "two"], "must be numbers"),
        (["MODEL", "--data", "DATA", "--device", "gpu"], "device is 'gpu' but must be auto, cpu"),
        (["MODEL", "--data", "DATA", "--label", "lable"], "no column 'lable'; did you mean 'label'"),
        (["MODEL", "--data", "ODD"], "line 2: the label 'maybe' is not among"),
        (["MODEL", "--data", "DATA", "--html", "nowhere/page.html"], "there is no folder"),
    ],
)
def test_mistakes_are_told_and_nothing_is_written(words, expected, model, reviews, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.csv").write_text("text,label\nfilm,maybe\nfilm,yes\n")
    places = {"MODEL": model, "DATA": reviews, "ODD": tmp_path / "odd.csv"}
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=expected):
        call(*[places.get(word, word) for word in words], *([] if "--html" in words else ["--html", "page.html"]))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_model_of_another_kind_is_told(model, tmp_path):
    (tmp_path / "dev.tsv").write_text("index\tsentence1\tsentence2\tscore\n0\tA\tB\t1.0\n")
    with pytest.raises(InputError, match="was made for classification, but stsb is regression"):
        call(model, "--task", "stsb", "--data", tmp_path)


@pytest.mark.shared
def test_the_official_figures_from_the_command_line(real_data):
    squad = real_data / "squad"
    words = ["--task", "squad2", "--data", squad, "--predictions", squad / "predictions/bert-single-v2.0.json"]
    command = [sys.executable, "-m", "litebert", "evaluate", *map(str, words)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "81.78" in shown and "78.74" in shown
