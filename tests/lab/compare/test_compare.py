"""``litebert-lab compare``: real fine-tuning runs of a tiny model, and what follows from planted scores."""

import json
import signal

import pytest
import torch

from litebert.checkpoints.folder import load_model
from litebert.report import to_html
from litebert.shrinking import tuning
from litebert.shrinking.strategies import drop_fixed, kept_of
from litebert.shrinking.tuning import DropSchedule
from litebert.tasks.predicting import load_predictor
from litebert.tasks.sources import read_task
from litebert.train.trainer import Trainer
from litebert_lab.compare import Cell, Comparison, Cost, TaskTable, _needs, comparison_report, tolerance_rows

WORDS = ["steps=4", "batch=8", "scores=1", "rate=1e-3", "--columns", "text", "--label", "kind", "--seeds", 2]


def test_every_strategy_by_every_number_and_a_stopped_comparison_goes_on(
    litebert_lab, model_folder, table, tmp_path, monkeypatch
):
    model = model_folder(num_layers=4)
    words = [*WORDS, "--drop", "2,1", "--strategy", "top,bottom,contribution", "--data", table, "--json"]
    code, out, err = litebert_lab("compare", model, *words, "-o", tmp_path / "whole")
    assert code == 0, err
    found = json.loads(out)
    (one,) = found["tasks"]
    assert set(one["cells"]) == {"top", "bottom", "contribution"} and "left for this task" in err
    assert one["cells"]["top"]["2"]["kept"] == [1, 2] and one["cells"]["bottom"]["1"]["kept"] == [2, 3, 4]
    assert all(len(cell["scores"]) == 2 for row in one["cells"].values() for cell in row.values())
    parameters = [cost["parameters"] for cost in one["costs"]]
    assert (
        parameters[0] > parameters[1] > parameters[2] and parameters[0] - parameters[1] == parameters[1] - parameters[2]
    )
    assert json.loads((tmp_path / "whole" / "comparison.json").read_text()) == found
    page = (tmp_path / "whole" / "comparison.html").read_text()
    assert page.count("<svg") == 2 and "src=" not in page and "contribution" in page
    assert not (tmp_path / "whole" / "table" / "trials").exists()

    real, calls = tuning.finetune, []

    def dies(*arguments):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(tuning, "finetune", dies)
    assert litebert_lab("compare", model, *words, "-o", tmp_path / "cut")[0] != 0
    step = Trainer._step

    def asked_to_stop(self, *arguments):
        if self.state.step == 3:  # the last one: the run ends by itself, and no other may begin
            signal.raise_signal(signal.SIGTERM)
        return step(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_step", asked_to_stop)
        code, _, err = litebert_lab("compare", model, *words, "-o", tmp_path / "cut", "--resume")
    assert code == 2 and "stopped; run the same command again with resume to continue" in err
    assert len((tmp_path / "cut" / "table" / "trials.jsonl").read_text().splitlines()) == len(calls) - 1 == 5
    code, out, err = litebert_lab("compare", model, *words, "-o", tmp_path / "cut", "--resume")
    assert code == 0, err
    again = json.loads(out)["tasks"][0]
    assert again["cells"] == one["cells"] and again["whole"] == one["whole"]
    trials = (tmp_path / "cut" / "table" / "trials.jsonl").read_text().splitlines()
    assert len(calls) == len(trials) + 1  # the one that was cut was done again, none of the others
    code, _, err = litebert_lab("compare", model, "steps=5", *words[1:], "-o", tmp_path / "cut", "--resume")
    assert code == 2 and "another recipe" in err


def test_dropped_after_fine_tuning_is_the_fine_tuned_model_without_those_layers(
    litebert, litebert_lab, model_folder, table, tmp_path
):
    model = model_folder(num_layers=4)
    words = [*WORDS, "--drop", "2", "--strategy", "top", "--data", table, "--json", "--seeds", 1]
    code, out, err = litebert_lab("compare", model, *words, "--when", "after", "-o", tmp_path / "after")
    assert code == 0, err
    one = json.loads(out)["tasks"][0]
    assert any("after fine-tuning" in note for note in one["notes"])
    tuned = ["steps=4", "batch=8", "scores=1", "rate=1e-3", "patience=0", "--text", "text", "--label", "kind"]
    assert litebert("finetune", model, *tuned, "--data", table, "--out", tmp_path / "tuned", "--device", "cpu")[0] == 0
    assert litebert("shrink", tmp_path / "tuned", "--drop", 2, "-o", tmp_path / "small")[0] == 0
    dev = read_task(None, table, text="text", label="kind").dev["dev"]
    for folder, scores in (("tuned", one["whole"]["scores"]), ("small", one["cells"]["top"]["2"]["scores"])):
        said = load_predictor(tmp_path / folder, device="cpu").predict(dev)
        right = [item.target == found.label for item, found in zip(dev, said, strict=True)]
        assert scores == [pytest.approx(sum(right) / len(dev))]


def test_in_steps_some_layers_go_what_is_left_is_fine_tuned_and_more_go(
    litebert, litebert_lab, model_folder, table, tmp_path, monkeypatch
):
    model = model_folder()
    words = [*WORDS, "--drop", "2,3", "--strategy", "symmetric", "--data", table, "--json", "--seeds", 1]
    real, begun = tuning.finetune, {}

    def watched(settings, data, prepared=None):
        begun[settings.out.name] = {name: one.clone() for name, one in prepared.source.network.state_dict().items()}
        return real(settings, data, prepared)

    monkeypatch.setattr(tuning, "finetune", watched)
    code, out, err = litebert_lab("compare", model, *words, "--when", "steps", "-o", tmp_path / "steps")
    assert code == 0, err
    cells = json.loads(out)["tasks"][0]["cells"]["symmetric"]
    assert [cells[count]["kept"] for count in ("2", "3")] == [[1, 2, 5, 6], [1, 2, 6]]
    assert [*begun] == [f"{kept}-seed-0" for kept in ("1-2-3-4-5-6", "1-2-5-6", "1-2-3-4-6", "1-2-6")]
    assert not (tmp_path / "steps" / "table" / "trials").exists()
    assert "in steps" in (tmp_path / "steps" / "comparison.html").read_text()
    tuned = ["steps=4", "batch=8", "scores=1", "rate=1e-3", "patience=0", "--text", "text", "--label", "kind"]
    tuned += ["--data", table, "--device", "cpu"]
    folder = model
    for name, keep in (("whole", "1-4,6"), ("five", "1,2,5")):
        assert litebert("finetune", folder, *tuned, "--out", tmp_path / name)[0] == 0
        folder = tmp_path / f"{name}-without"
        assert litebert("shrink", tmp_path / name, "--keep", keep, "-o", folder)[0] == 0
    by_hand, found = load_model(folder).network.state_dict(), begun["1-2-6-seed-0"]
    assert by_hand.keys() == found.keys() and all(torch.equal(by_hand[name], found[name]) for name in found)


def test_recovering_learns_from_the_whole_model_and_leaves_nothing_behind(
    litebert, model_folder, table, tmp_path, monkeypatch
):
    model = model_folder(num_layers=4)
    real, taught = tuning.finetune, {}

    def watched(settings, data, prepared=None):
        teacher = prepared.teaching and prepared.teaching.network.config.encoder.num_layers
        taught[prepared.source.network.config.encoder.num_layers] = teacher
        return real(settings, data, prepared)

    monkeypatch.setattr(tuning, "finetune", watched)
    words = [*WORDS, "--data", table, "--tolerance", "99%", "--strategy", "top", "--recover", "--json"]
    code, out, err = litebert("shrink", model, *words, "-o", tmp_path / "found")
    assert code == 0, err
    assert json.loads(out)["kept"] == [1]
    assert taught == {4: None, 2: 4, 1: 4}
    assert (tmp_path / "found" / "model" / "task.json").is_file() and not (tmp_path / "found" / "trials").exists()
    code, _, err = litebert("shrink", model, *words[:-2], "-o", tmp_path / "found", "--resume")
    assert code == 2


def planted() -> Comparison:
    def cells(name: str, means: tuple[float, float]):
        return {
            count: Cell(kept=kept_of(4, drop_fixed(name, 4, count)), scores=(mean - 0.001, mean + 0.001))
            for count, mean in zip((1, 2), means, strict=True)
        }

    table = TaskTable(
        task="planted",
        metric="accuracy",
        layers=4,
        steps=10,
        whole=Cell(kept=(1, 2, 3, 4), scores=(0.899, 0.901)),
        cells={"top": cells("top", (0.895, 0.875)), "bottom": cells("bottom", (0.885, 0.80))},
        costs=[
            Cost(
                dropped=count,
                parameters=100 - 20 * count,
                finetune_seconds=8 - 2 * count,
                inference_milliseconds=4 - count,
            )
            for count in (0, 1, 2)
        ],
        notes=[],
    )
    return Comparison(model="m", device="cpu", way={"when": "before", "recover": None}, tasks=[table])


def test_what_follows_from_the_scores():
    found = planted()
    (table,) = found.tasks
    assert [table.most(tolerance) for tolerance in (0.01, 0.02, 0.03)] == [(1, "top"), (1, "top"), (2, "top")]
    assert table.most(0.001) == (0, "")
    assert table.noise() == pytest.approx(2 * 0.0014142, rel=1e-3)
    assert tolerance_rows(found)[1][:4] == ["planted", "1 (top)", "1 (top)", "2 (top)"]
    sentences = " ".join(found.findings())
    assert "2 dropped: best top (87.50), worst bottom (80.00)" in sentences
    assert "fine-tuning takes 50% of the time, inference 50%, and 60% of the parameters" in sentences
    assert "within 3%" in to_html(comparison_report(found))


def test_mistakes_of_a_comparison_get_one_sentence(litebert, litebert_lab, model_folder, table, tmp_path):
    model = model_folder(num_layers=4)
    for words, said in (
        (["--data", table], "-o FOLDER"),
        (["--drop", "2,x", "--data", table, "-o", tmp_path / "x"], "numbers such as 2,4,6"),
        (["--drop", "2", "--strategy", "tpo", "--data", table, "-o", tmp_path / "x"], "did you mean 'top'"),
        (
            ["--drop", "2", "--when", "never", "--data", table, "-o", tmp_path / "x"],
            "before or after (fine-tuning), or steps",
        ),
    ):
        code, _, err = litebert_lab("compare", model, *words)
        assert code == 2 and said in err and len(err.strip().splitlines()) == 1, (words, err)
    for words, named in ((["--drop", "2,4"], "'2,4'"), (["--drop", "2,4", "--compare"], "litebert-lab compare")):
        code, _, err = litebert("shrink", model, *words, "-o", tmp_path / "x")
        assert code == 2 and named in err and len(err.strip().splitlines()) == 1, (words, err)
    assert not (tmp_path / "x").exists()
    code, _, err = litebert_lab("compare", model, *WORDS, "--drop", "4", "--data", table, "-o", tmp_path / "y")
    assert code == 2 and "leaves nothing" in err


def test_a_finished_comparison_is_read_and_not_run_again(litebert_lab, model_folder, table, tmp_path, monkeypatch):
    model = model_folder(num_layers=4)
    words = [*WORDS, "--drop", "1", "--data", table, "--strategy", "top", "--json", "-o", tmp_path / "out"]
    code, first, err = litebert_lab("compare", model, *words)
    assert code == 0, err
    monkeypatch.setattr(tuning, "finetune", None)
    code, again, err = litebert_lab("compare", model, *words, "--resume")
    assert code == 0 and json.loads(again)["tasks"][0]["cells"] == json.loads(first)["tasks"][0]["cells"], err


def test_runs_wait_for_those_that_they_begin_with():
    everything, fewer, fewest = (1, 2, 3), (1, 2), (1,)
    work = [(kept, seed) for kept in (everything, fewer, fewest) for seed in (0, 1)]
    assert _needs(work, everything, DropSchedule()) == {}
    assert _needs(work, everything, DropSchedule(when="after")) == {2: [0], 3: [1], 4: [0], 5: [1]}
    assert _needs(work, everything, DropSchedule(when="steps")) == {2: [0], 3: [1], 4: [2], 5: [3]}
