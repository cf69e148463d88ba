"""The scripts that fine-tune litebert-en everywhere and that ship it: which runs there are, what is left, written."""

import json
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from PIL import Image

import litebert
from litebert import shipped_models
from litebert.checkpoints.folder import save_model
from litebert.cluster import Placement, run_all
from litebert.errors import InputError
from litebert.nn.config import family_config
from litebert.nn.network import HeadsConfig, Network, NetworkConfig, pretraining_network
from litebert.runs import write_run
from litebert_lab.litebert_en import results, ship


@pytest.fixture
def model(tmp_path, letter_tokenizer):
    tokenizer = letter_tokenizer("albert")
    sizes = {"vocab_size": tokenizer.vocab_size, "width": 16, "embedding_width": 8, "num_heads": 2, "num_layers": 4}
    network = pretraining_network(family_config({"feed_forward_width": 32, "max_positions": 64, **sizes}))
    save_model(tmp_path / "model", network, tokenizer, verb="test")
    return tmp_path / "model"


def asked(monkeypatch, *words: object):
    monkeypatch.setattr(sys, "argv", ["results.py", *map(str, words)])
    return results.read_words()


def test_every_task_with_data_at_every_depth(monkeypatch, tmp_path):
    (tmp_path / "squad").mkdir()
    (tmp_path / "squad" / "train.json").touch()
    words = ("m", "steps=3", "rte:rate=1", "--glue", "glue", "--squad", tmp_path / "squad", "-o", tmp_path, "--jobs", 2)
    jobs = results.make_jobs(asked(monkeypatch, *words), {4: "m", 2: "less"})
    assert len(jobs) == 12 and {job.depth for job in jobs} == {4, 2}
    found = {(job.task, job.depth): " ".join(job.words) for job in jobs}
    folder = tmp_path / "depth-2" / "rte"
    assert found["rte", 2] == f"finetune less steps=3 rate=1 --task rte --data glue --out {folder} --seeds 5"
    assert "rate=1" not in found["cola", 4]
    assert f"--data {tmp_path}/squad/train.json --dev {tmp_path}/squad/dev.json" in found["squad1", 4]
    assert "--seeds" not in found["squad1", 4]  # one is enough for what takes long, unless more are asked for
    only = results.make_jobs(asked(monkeypatch, *words, "--tasks", "mrpc", "--seeds", 2), {4: "m"})
    assert [job.task for job in only] == ["mrpc"] and only[0].words[-2:] == ("--seeds", "2")


def test_what_was_begun_goes_on_and_what_is_done_is_left(tmp_path):
    job = results.Job("rte", 4, tmp_path / "rte", ("finetune", "m"))
    assert not job.is_done() and "--resume" not in job.command()
    job.folder.mkdir()
    (job.folder / "lock").touch()
    assert "--resume" not in job.command()  # killed before there was anything
    write_run(job.folder, "finetune", {}, status="stopped")
    assert job.command()[-1] == "--resume" and not job.is_done()
    write_run(job.folder, "finetune", {}, status="finished")
    assert job.is_done()


def test_runs_have_processes_and_logs_of_their_own(tmp_path):
    jobs = [results.Job(name, 4, tmp_path / name, ("show", name)) for name in ("albert-tiny", "albert-nothing")]
    found = run_all([partial(results.run_job, job) for job in jobs], on=Placement(at_once=2, apart=True))
    assert found[0][0] and found[0][1].startswith("albert-tiny at depth 4: ")
    assert not found[1][0] and "albert-nothing at depth 4 failed: litebert: " in found[1][1]
    assert "vocab_size" in (tmp_path / "albert-tiny.log").read_text()


def test_what_is_done_is_gathered_without_running_anything(monkeypatch, tmp_path, model, capsys):
    (tmp_path / "out/depth-4/rte").mkdir(parents=True)
    write_run(
        tmp_path / "out/depth-4/rte", "finetune", {"task": "rte"}, result={"dev": {"accuracy": 0.75, "loss": 1.0}}
    )
    monkeypatch.setattr(results, "CLOZE", tmp_path / "list.jsonl")
    results.CLOZE.write_text('{"text": "a[MASK]", "accept": ["b"]}\n')
    monkeypatch.setattr(
        sys,
        "argv",
        ["results.py", str(model), "--glue", str(tmp_path / "glue"), "--tasks", "rte", "-o", str(tmp_path / "out")],
    )
    assert results.main() == 0
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert found["results"][0]["metrics"] == {"accuracy": {"median": 0.75, "lowest": 0.75, "highest": 0.75}}
    assert found["clozes"][0]["scores"]["all"]["items"] == 1
    assert str(tmp_path) not in found["commands"][0]  # no paths of this machine
    assert "| rte | accuracy | 4 | 75.00 | – | 1 |" in capsys.readouterr().out


def test_shipped_is_half_as_large_checked_and_with_its_card(monkeypatch, tmp_path, model):
    monkeypatch.setattr(shipped_models, "SHIPPED", tmp_path / "models")
    Image.new("RGB", (20, 20), "white").save(tmp_path / "loss.png")
    (tmp_path / "CARD.md").write_text("# little\n\nA card.\n\n![Loss](loss.png)\n")
    folder = ship.ship(str(model), "little-en", tmp_path / "CARD.md")
    assert {path.name for path in folder.iterdir()} >= {"README.md", "loss.png", "SHA256SUMS", "tokenizer.json"}
    sizes = [Path(place / "model.safetensors").stat().st_size for place in (folder, model)]
    assert sizes[0] < 0.75 * sizes[1]
    ours, whole = litebert.load("little-en", device="cpu"), litebert.load(model, device="cpu")
    assert ours.tokenizer.fingerprint == whole.tokenizer.fingerprint
    table = whole.network.encoder.embeddings.token.weight
    torch.testing.assert_close(ours.network.encoder.embeddings.token.weight, table, rtol=2**-8, atol=0)
    (folder / "README.md").write_text("another")
    with pytest.raises(InputError, match="damaged"):
        litebert.load("little-en", device="cpu")


def test_shipped_leaves_out_the_detection_head(monkeypatch, tmp_path, letter_tokenizer):
    monkeypatch.setattr(shipped_models, "SHIPPED", tmp_path / "models")
    tokenizer = letter_tokenizer("albert")
    sizes = {"vocab_size": tokenizer.vocab_size, "width": 16, "embedding_width": 8, "num_heads": 2, "num_layers": 2}
    encoder = family_config({"feed_forward_width": 32, "max_positions": 16, **sizes})
    heads = HeadsConfig(names=("masked_lm", "order", "replaced"))
    network = Network(NetworkConfig(encoder=encoder, heads=heads))
    save_model(tmp_path / "run", network, tokenizer, verb="test")
    ship.ship(str(tmp_path / "run"), "little-en", None)
    ours = litebert.load("little-en", device="cpu").network
    assert set(ours.heads) == {"masked_lm", "order"}
    kept, whole = (each.encoder.embeddings.token.weight for each in (ours, network))
    torch.testing.assert_close(kept, whole, rtol=2**-8, atol=1e-6)
