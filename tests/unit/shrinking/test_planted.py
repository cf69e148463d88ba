"""The tolerance search on a planted case, with real fine-tuning: a trained model into which idle layers were put."""

import json
import random

import pytest

from litebert.analyse.layer_statistics import contribution
from litebert.checkpoints.folder import load_model, save_model
from litebert.nn.config import family_config
from litebert.nn.network import HeadsConfig, Network, NetworkConfig
from litebert.shrinking.tuning import packed
from litebert.tasks.kinds import KINDS
from litebert.tasks.predicting import TASK_FILE, load_predictor
from litebert.tasks.sources import read_task

SHAPE = {"width": 32, "num_heads": 4, "feed_forward_width": 64, "num_layers": 2, "max_positions": 32}
COMMON = ["batch=64", "patience=0", "--label", "kind"]


@pytest.fixture
def order_table(tmp_path):
    """Which of the first and the last letter of a text is the earlier one: a model must look at both."""
    draw = random.Random(0)
    words = {"".join(draw.choice("abcdef") for _ in range(draw.randint(4, 7))) for _ in range(1000)}
    kinds = {-1: "rises", 0: "same", 1: "falls"}
    rows = [f"{word},{kinds[(word[0] > word[-1]) - (word[0] < word[-1])]}" for word in sorted(words)]
    draw.shuffle(rows)
    (tmp_path / "order.csv").write_text("\n".join(["text,kind", *rows]) + "\n")
    return tmp_path / "order.csv"


def test_the_search_finds_the_planted_layers_and_no_others(litebert, letter_tokenizer, order_table, plant, tmp_path):
    config = family_config({"family": "bert", "vocab_size": 33, "dropout": 0.0, "attention_dropout": 0.0, **SHAPE})
    network, tokenizer = Network(NetworkConfig(encoder=config, heads=HeadsConfig())), letter_tokenizer()
    save_model(tmp_path / "new", network, tokenizer, verb="test")
    data = ["--data", order_table, *COMMON]
    words = ["steps=400", "rate=3e-3", "scores=4", "--text", "text", "--device", "cpu", "--out", tmp_path / "tuned"]
    assert litebert("finetune", tmp_path / "new", *words, *data)[0] == 0
    tuned = load_predictor(tmp_path / "tuned", device="cpu")
    dev = read_task(None, order_table, text="text", label="kind").dev["dev"]
    batches = list(packed(KINDS["classify"].encode(dev, tokenizer, tuned.note.encoding()), "cpu"))
    planted = plant(tuned.network, (2, 4), batches)
    cosines = contribution(planted.encoder, batches)
    assert min(cosines[1], cosines[3]) > 0.999 > max(cosines[0], cosines[2])
    note = {TASK_FILE: tuned.note.text_of_file()}
    save_model(tmp_path / "planted", planted, tokenizer, verb="test", files=note)
    words = ["steps=30", "rate=3e-4", "scores=1", "--columns", "text", "--strategy", "contribution,top", "--json"]
    for when in ("before", "steps"):
        out = tmp_path / when
        code, said, err = litebert(
            "shrink", tmp_path / "planted", *words, *data, "--tolerance", "2%", "--when", when, "-o", out
        )
        assert code == 0, err
        found = json.loads(said)
        assert found["dropped"] == [2, 4] and found["found"]["best"]["strategy"] == "contribution"
        assert found["found"]["whole"] > 0.9
        assert load_model(out / "model").network.config.encoder.num_layers == 2
