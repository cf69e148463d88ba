"""``litebert exits`` on a task that the letters of a text decide: low heads know it, the model's own head does not."""

import json
import random
from pathlib import Path

import pytest
import torch

from litebert.checkpoints.folder import load_model, save_model
from litebert.early_exits.run import features_of
from litebert.nn.config import family_config
from litebert.nn.layout import Layout
from litebert.nn.network import HeadsConfig, Network, NetworkConfig
from litebert.runs import read_run
from litebert.tasks.examples import EncodingSettings, Example, TaskSpec
from litebert.tasks.kinds import KINDS
from litebert.tasks.predicting import TASK_FILE, load_predictor
from litebert.tasks.sources import read_task


@pytest.fixture
def model(tmp_path, letter_tokenizer):
    def make(kind: str = "classify", family: str = "bert") -> Path:
        torch.manual_seed(0)
        shape = {"vocab_size": 33, "width": 16, "num_heads": 2, "feed_forward_width": 24, "num_layers": 3}
        config = family_config({"family": family, "embedding_width": 16, "max_positions": 32, **shape})
        labels = ("early", "late") if kind == "classify" else ("score",)
        network = Network(NetworkConfig(encoder=config, heads=HeadsConfig(names=("classify",), labels=labels))).eval()
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                if "norm" not in name:
                    parameter.normal_(std=1.0 if "token" in name else 0.2)
        known = labels if kind == "classify" else ()
        note = TaskSpec(kind=kind, labels=known, metrics=("accuracy",), length=16, text=("text",), label="kind")
        save_model(
            tmp_path / kind, network, letter_tokenizer(family), verb="test", files={TASK_FILE: note.text_of_file()}
        )
        return tmp_path / kind

    return make


@pytest.fixture
def table(tmp_path):
    """Whether a text has more of a than of b, or by how much."""

    def make(kind: str = "classify") -> Path:
        draw = random.Random(0)
        rows = ["text,kind"]
        while len(rows) < 301:
            text = "".join(draw.choice("abcd") for _ in range(draw.randint(4, 10)))
            more = text.count("a") - text.count("b")
            if more:
                rows.append(f"{text},{('early' if more > 0 else 'late') if kind == 'classify' else more / len(text)}")
        (tmp_path / f"{kind}.csv").write_text("\n".join(rows) + "\n")
        return tmp_path / f"{kind}.csv"

    return make


def test_low_heads_know_what_letters_decide_and_the_last_depth_is_the_model_itself(litebert, model, table, tmp_path):
    folder, data = model(), table()
    code, out, err = litebert("exits", folder, "--data", data, "-o", tmp_path / "out", "--json", "--device", "cpu")
    assert code == 0, err
    report = json.loads(out)
    assert report == json.loads((tmp_path / "out" / "exits.json").read_text())
    by_depth = [point["metrics"]["accuracy"] for point in report["points"] if point["rule"] == "depth"]
    assert len(by_depth) == 3 and by_depth[0] > 0.9
    dev = read_task(None, data, text="text", label="kind").dev["dev"]
    said = load_predictor(folder, device="cpu").predict(dev)
    own = sum(item.target == one.label for item, one in zip(dev, said, strict=True)) / len(dev)
    assert by_depth[-1] == pytest.approx(own) and own < 0.9
    patient = next(one for one in report["points"] if one["rule"] == "patience" and one["value"] == 2)
    assert 2 <= patient["mean_depth"] < 3 and patient["metrics"]["accuracy"] > own
    page = (tmp_path / "out" / "exits.html").read_text()
    assert page.count("<svg") == 1 and "src=" not in page and "By confidence" in page
    note = read_run(tmp_path / "out")
    assert note.verb == "exits" and note.parents[0].folder == str(folder)
    code, out, _ = litebert("exits", folder, "--data", data, "-o", tmp_path / "out", "--device", "cpu")
    assert code == 0 and "heads that agree" in out and "of 3 layers on average" in out


def test_numbers_leave_by_patience_alone(litebert, model, table, tmp_path):
    words = ["--data", table("regress"), "-o", tmp_path / "out", "--json", "--device", "cpu"]
    code, out, err = litebert("exits", model("regress"), *words)
    assert code == 0, err
    report = json.loads(out)
    assert report["metric"] == "pearson" and {one["rule"] for one in report["points"]} == {"depth", "patience"}
    assert report["points"][0]["metrics"]["pearson"] > 0.9


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_heads_see_the_pooled_token_and_the_mean_of_all(model, family):
    folder = model(family=family)
    loaded = load_model(folder)
    items = [Example(key=text, first=text) for text in ("abc", "d", "abcdefgh")]
    inputs = KINDS["classify"].encode(items, loaded.tokenizer, EncodingSettings(length=16))
    found = features_of(loaded.network, inputs, "cpu", lambda done: None)
    assert found.shape == (3, 3, 32)
    for number in range(3):
        begin, end = inputs.starts[number], inputs.starts[number + 1]
        ids, segments = (torch.from_numpy(part[begin:end]).long() for part in (inputs.ids, inputs.segments))
        with torch.no_grad():
            states = loaded.network.encoder.states(ids, Layout.of([len(ids)]), segments)[1:]
        expected = torch.stack([torch.cat([one[0], one.mean(0)]) for one in states])
        torch.testing.assert_close(found[:, number], expected, atol=1e-4, rtol=1e-4)


def test_mistakes_of_exits_get_one_sentence(litebert, model, table, tmp_path):
    folder, data = model(), table()
    for words, said in (
        ([folder, "--data", data], "--out is missing"),
        ([folder, "--data", data, "-o", data], "a file; name a folder"),
        ([folder, "--data", data, "--items", 1, "-o", tmp_path / "x"], "--items is 1"),
        ([tmp_path / "none", "--data", data, "-o", tmp_path / "x"], "there is no folder"),
        ([folder, "-o", tmp_path / "x"], "data is missing"),
        ([model("regress"), "--data", data, "-o", tmp_path / "x"], "not a number"),
    ):
        code, _, err = litebert("exits", *words, "--device", "cpu")
        assert code == 2 and said in err and len(err.strip().splitlines()) == 1, (words, err)
    assert not (tmp_path / "x").exists()
