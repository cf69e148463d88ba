"""``litebert shrink --tolerance``: real fine-tuning runs of a tiny model on a tiny task."""

import json

from litebert.checkpoints.folder import load_model
from litebert.runs import read_run
from litebert.shrinking import tuning

WORDS = ["steps=4", "batch=8", "scores=1", "rate=1e-3", "--columns", "text", "--label", "kind", "--seeds", 2]


def test_a_search_writes_the_fine_tuned_model_it_reports(litebert, model_folder, table, tmp_path):
    model = model_folder(num_layers=4)
    words = [*WORDS, "--data", table, "--tolerance", "40%", "-o", tmp_path / "found", "--json"]
    code, out, err = litebert("shrink", model, *words)
    assert code == 0, err
    found = json.loads(out)
    assert found["metric"] == "accuracy" and found["layers"] == 4
    assert found["dropped"] and sorted([*found["dropped"], *found["kept"]]) == [1, 2, 3, 4]
    assert found["found"]["best"]["seeds"] == 2 and "seed" in err
    before, after = found["before"], found["after"]
    assert (before["layers"], after["layers"]) == (4, len(found["kept"])) and before["milliseconds"] > 0
    assert before["parameters"] > after["parameters"] and len(before["scores"]) == len(after["scores"]) == 2
    page = (tmp_path / "found" / "found.html").read_text()
    assert "before" in page and f"{after['parameters']:,}" in page and page.count("<svg") == 2 and "src=" not in page
    network = load_model(tmp_path / "found" / "model").network
    assert network.config.encoder.num_layers == len(found["kept"]) and "classify" in network.heads
    assert (tmp_path / "found" / "model" / "task.json").is_file() and not (tmp_path / "found" / "trials").exists()
    note = read_run(tmp_path / "found")
    assert (note.verb, note.status, note.parents[0].folder) == ("shrink", "finished", str(model))
    assert note.result["kept"] == found["kept"]
    # A fine-tuned model can lose layers, too, and still answers.
    assert litebert("shrink", tmp_path / "found", "--keep", "1", "-o", tmp_path / "one")[0] == 0
    assert (tmp_path / "one" / "task.json").is_file()
    code, _, err = litebert("shrink", model, *words)
    assert code == 2 and "is not empty; pass resume" in err


def test_a_stopped_search_resumes_where_it_was(litebert, model_folder, table, tmp_path, monkeypatch):
    model = model_folder(num_layers=4)
    words = [*WORDS, "--data", table, "--tolerance", "40%", "--json"]
    whole = json.loads(litebert("shrink", model, *words, "-o", tmp_path / "whole")[1])
    real, calls = tuning.finetune, []

    def dies(*arguments):
        calls.append(arguments[0].out.name)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(tuning, "finetune", dies)
    assert litebert("shrink", model, *words, "-o", tmp_path / "found")[0] != 0
    assert len(calls) == 4
    calls.clear()
    calls.extend(["", "", "", "", ""])  # lives on
    code, out, err = litebert("shrink", model, *words, "-o", tmp_path / "found", "--resume")
    assert code == 0, err
    again = json.loads(out)
    assert again["kept"] == whole["kept"] and again["found"]["best"] == whole["found"]["best"]
    trials = (tmp_path / "found" / "trials.jsonl").read_text().splitlines()
    assert len(trials) == len((tmp_path / "whole" / "trials.jsonl").read_text().splitlines())
    assert len(calls) - 5 == len(trials) - 3  # three were known
    code, _, err = litebert("shrink", model, *words, "-o", tmp_path / "found", "--resume")
    assert code == 2 and "is finished" in err


def test_shared_layers_are_searched_by_number_alone(litebert, model_folder, table, tmp_path):
    model = model_folder("albert", num_layers=4)
    words = [*WORDS, "--data", table, "--tolerance", "99%", "-o", tmp_path / "found", "--json"]
    found = json.loads(litebert("shrink", model, *words)[1])
    assert {verdict["strategy"] for verdict in found["found"]["verdicts"]} == {"top"}
    assert found["kept"] == [1]
    assert found["before"]["parameters"] == found["after"]["parameters"]


def test_errors_are_one_line(litebert, model_folder, table, tmp_path):
    model = model_folder()
    for words, said in (
        (["--tolerance", "1%", "--data", table], "out is missing"),
        (["--tolerance", "1%", "--drop", 2, "-o", tmp_path / "x"], "combined with drop"),
        (["--tolerance", "lots", "--data", table, "-o", tmp_path / "x"], "must be a share such as 1%"),
        (["--tolerance", "100%", "--data", table, "-o", tmp_path / "x"], "below 100%"),
        (["--tolerance", "1%", "-o", tmp_path / "x"], "data is missing"),
        (["--tolerance", "1%", "--data", table, "--seeds", 0, "-o", tmp_path / "x"], "--seeds is 0"),
        (["--drop", 2, "--data", table, "-o", tmp_path / "x"], "need a tolerance"),
    ):
        code, _, err = litebert("shrink", model, *words)
        assert code == 2 and said in err and len(err.strip().splitlines()) == 1, (words, err)
    assert not (tmp_path / "x").exists()
