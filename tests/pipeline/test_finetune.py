"""Fine-tuning runs end to end on toy tasks: every kind learns, runs resume exactly, collapses are restarted."""

import json
import math
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import toy_tasks as toy
from typer.testing import CliRunner

from litebert.checkpoints.folder import load_model
from litebert.checkpoints.training import saved_states
from litebert.cli import app
from litebert.errors import InputError
from litebert.nn.encoder import Encoder
from litebert.tasks import finetune as finetuning
from litebert.tasks.examples import Answer, Example, Question
from litebert.tasks.finetune import finetune, finetune_seeds
from litebert.tasks.predicting import load_predictor
from litebert.tasks.score import compute_metrics
from litebert.train import precision
from litebert.train.callbacks import Callback
from litebert.train.metrics import read_metrics
from litebert.train.trainer import Trainer


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return toy.make_model(tmp_path_factory.mktemp("bert"))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_model(folder).network.state_dict()


def test_where_bf16_is_fast_a_cpu_trains_in_it_and_is_scored_in_fp32_in_the_end(model, tmp_path, monkeypatch):
    """Scores on the way choose the weights; the figures of the run are those that `litebert evaluate` gives."""
    states, used = Encoder._states, set()

    def noting(self, *words, **named):
        used.add((self.training, torch.is_autocast_enabled("cpu")))
        return states(self, *words, **named)

    monkeypatch.setattr(Encoder, "_states", noting)
    monkeypatch.setattr(precision, "has_bf16", lambda device: True)
    monkeypatch.setattr(precision, "LEAST_WIDTH", 1)
    data = toy.task("classify", 32)
    result = finetune(toy.settings(model, tmp_path / "run", epochs=1, scores=2), data)
    assert used == {(True, True), (False, True), (False, False)}
    used.clear()
    dev = data.dev["dev"]
    again = compute_metrics(data, dev, load_predictor(tmp_path / "run", device="cpu").predict(dev))
    assert again.items() <= result.figures.items() and result.score == again[data.metrics[0]]
    assert used == {(False, False)}
    used.clear()
    finetune(toy.settings(model, tmp_path / "one", epochs=1, scores=1), data)
    assert used == {(True, True), (False, False)}
    used.clear()
    said = replace(toy.settings(model, tmp_path / "said", epochs=1), precision="fp32")
    finetune(said, toy.task("classify", 32))
    assert used == {(True, False), (False, False)}


@pytest.mark.parametrize(
    ("kind", "count", "epochs", "least"),
    [
        ("classify", 256, 10, 0.95),
        ("multilabel", 512, 40, 0.9),
        ("regress", 256, 14, 0.9),
        ("choice", 128, 10, 0.9),
        ("span", 256, 10, 0.9),
        ("span2", 512, 25, 0.75),  # always answering would give 0.6
    ],
)
def test_every_kind_is_learnt_and_the_folder_predicts_what_was_scored(kind, count, epochs, least, model, tmp_path):
    data = toy.task(kind, count)
    how = toy.settings(model, tmp_path / "run", epochs=epochs, watched=kind == "classify")
    result = finetune(how, data)
    assert result.status == "finished" and result.score >= least, result
    dev = data.dev["dev"]
    found = load_predictor(tmp_path / "run").predict(dev)
    again = compute_metrics(data, dev, found)
    assert [one.key for one in found] == [item.key for item in dev]
    for name, value in again.items():
        assert math.isclose(value, result.figures[name], abs_tol=1e-6), name
    assert not (tmp_path / "run" / "checkpoints").exists()
    note = json.loads((tmp_path / "run" / "run.json").read_text())
    assert note["verb"] == "finetune" and note["status"] == "finished" and note["parents"][0]["folder"] == str(model)
    if kind == "classify":
        assert any(row.get("split") == "held_out" for row in read_metrics(tmp_path / "run"))


def test_albert_with_shared_layers_learns_too(tmp_path):
    model = toy.make_model(tmp_path / "albert", "albert", layers=3)
    result = finetune(toy.settings(model, tmp_path / "run", epochs=12), toy.task("classify"))
    assert result.score >= 0.95


def test_a_killed_run_goes_on_and_ends_the_same_bit_for_bit(tmp_path, monkeypatch):
    """With dropout, in the middle of an epoch, after the best score so far."""
    model, data = toy.make_model(tmp_path / "model", dropout=0.1), toy.task("classify")
    finetune(toy.settings(model, tmp_path / "whole", epochs=4, watched=True), data)

    class KilledError(Exception):
        pass

    advance, steps = finetuning.TaskBatches.advance, []

    def counted(self, position, count):
        steps.append(position)
        if len(steps) == 40:
            raise KilledError
        return advance(self, position, count)

    with monkeypatch.context() as patched:
        patched.setattr(finetuning.TaskBatches, "advance", counted)
        with pytest.raises(KilledError):
            finetune(toy.settings(model, tmp_path / "cut", epochs=4, save_steps=5, watched=True), data)
    step = saved_states(tmp_path / "cut")[-1].step
    assert 0 < step < 32 and step % 8  # no end of an epoch
    finetune(toy.settings(model, tmp_path / "cut", epochs=4, save_steps=5, resume=True, watched=True), data)
    whole, cut = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    assert all(torch.equal(whole[name], cut[name]) for name in whole)
    scores = [
        [(row["step"], row["accuracy"]) for row in read_metrics(tmp_path / name) if row.get("split") == "held_out"]
        for name in ("whole", "cut")
    ]
    assert scores[0] == scores[1]


def test_a_stopped_run_goes_on_and_ends_the_same(tmp_path, monkeypatch):
    """Asked to stop between two scores: no score out of turn may change which model is the best."""
    model, data = toy.make_model(tmp_path / "model", dropout=0.1), toy.task("classify")
    finetune(toy.settings(model, tmp_path / "whole", epochs=3), data)
    step = Trainer._step

    def stopping(self, *arguments):
        if self.state.step == 9:
            signal.raise_signal(signal.SIGTERM)
        return step(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_step", stopping)
        result = finetune(toy.settings(model, tmp_path / "cut", epochs=3), data)
    assert result.status == "stopped" and result.steps == 10
    finetune(toy.settings(model, tmp_path / "cut", epochs=3, resume=True), data)
    whole, cut = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def test_resume_refuses_other_settings_and_finished_runs(model, tmp_path):
    data = toy.task("classify", 64)
    finetune(toy.settings(model, tmp_path / "run", epochs=1), data)
    with pytest.raises(InputError, match="is finished"):
        finetune(toy.settings(model, tmp_path / "run", epochs=1, resume=True), data)
    with pytest.raises(InputError, match="not empty"):
        finetune(toy.settings(model, tmp_path / "run", epochs=1), data)
    with pytest.raises(InputError, match="no run in"):
        finetune(toy.settings(model, tmp_path / "none", resume=True), data)


def test_the_best_step_is_kept_and_patience_ends_a_run(model, tmp_path, monkeypatch):
    """Dev scores are made to rise and then fall: the weights of the best score must be those of the folder."""
    given = iter([0.2, 0.6, 0.9, 0.5, 0.4, 0.3, 0.2, 0.1])
    kept = {}
    on_score = finetuning.BestCheckpoint.on_score

    def scored(self, trainer, figures):
        self.main = lambda figures, value=next(given): value
        on_score(self, trainer, figures)
        kept[trainer.state.step] = {name: x.clone() for name, x in self.predictor.network.state_dict().items()}

    monkeypatch.setattr(finetuning.BestCheckpoint, "on_score", scored)
    result = finetune(toy.settings(model, tmp_path / "run", epochs=8, scores=8, patience=2), toy.task("classify"))
    assert result.best_step == sorted(kept)[2] and len(kept) == 5 and result.steps < 64
    assert "has not risen for 2 scores" in " ".join(result.notes)
    found = weights(tmp_path / "run")
    assert all(torch.equal(found[name], tensor) for name, tensor in kept[result.best_step].items())


def test_a_callback_of_ones_own_may_end_a_run(model, tmp_path):
    class Lowest(Callback):
        def on_figures(self, trainer, step, figures):
            if step == 5:
                trainer.stop(f"the loss is {figures['loss']:.3f} at step {step}")

    result = finetune(toy.settings(model, tmp_path / "run", epochs=2), toy.task("classify"), callbacks=[Lowest()])
    assert result.status == "finished" and result.steps < 16 and "at step 5" in result.notes[-1]


@pytest.fixture(scope="module")
def trained(model, tmp_path_factory) -> Path:
    """A model whose states differ from one text to the next, as those of a pretrained one do."""
    run = tmp_path_factory.mktemp("trained") / "run"
    finetune(toy.settings(model, run, epochs=10), toy.task("regress"))
    return run / "model"


def test_a_collapse_is_noticed_early_and_restarted_with_another_seed_and_a_lower_rate(trained, tmp_path, messages):
    """A rate that ruins the model at once, and a factor that brings it down to one that does not."""
    wild = toy.settings(trained, tmp_path / "run", rate=0.1, epochs=30, restart_factor=0.03, warmup=0.02)
    result = finetune(wild, toy.task("classify"))
    assert len(result.attempts) == 1, result.attempts
    first = result.attempts[0]
    assert first["seed"] == 0 and first["rate"] == 0.1 and "chance" in first["verdict"]
    assert first["step"] <= 0.1 * 30 * 8
    assert result.status == "finished" and result.score > 0.9
    assert json.loads((tmp_path / "run" / "run.json").read_text())["result"]["attempts"][0]["seed"] == 0
    assert any("starting again with seed 1000" in sentence for sentence in messages)


def test_a_run_that_always_collapses_says_so(trained, tmp_path, messages):
    wild = toy.settings(trained, tmp_path / "run", rate=0.1, epochs=30, restart_factor=1.0, restarts=1, warmup=0.02)
    result = finetune(wild, toy.task("classify"))
    assert result.status == "diverged" and len(result.attempts) == 1
    assert result.steps == 30 * 8 and any("no restarts left" in sentence for sentence in messages)


def test_learning_slowly_is_no_collapse(model, tmp_path):
    """A rate so low that nothing is learnt: the loss stays at chance, but the model still tells inputs apart."""
    result = finetune(toy.settings(model, tmp_path / "run", rate=1e-7, epochs=3), toy.task("classify"))
    assert result.attempts == () and result.status == "finished"


def test_several_seeds(model, tmp_path):
    data = toy.task("classify", 96)
    found, results = finetune_seeds(toy.settings(model, tmp_path / "run", epochs=2), data, 3)
    assert found.median == sorted(found.scores)[1] and len(set(found.scores)) > 1
    assert found.highest == max(found.scores) == results[found.best].score
    best = load_predictor(tmp_path / "run").predict(data.dev["dev"])
    assert compute_metrics(data, data.dev["dev"], best)["accuracy"] == found.highest
    assert json.loads((tmp_path / "run" / "seeds.json").read_text())["best"] == found.best


def test_swapping_the_two_texts_or_their_segments_changes_the_answer(model, tmp_path):
    """Pairs whose label is which text is first: only segments (or order) can tell."""
    draw = [(("cat", "dog"), 0), (("dog", "cat"), 1)] * 40
    pairs = tuple(Example(key=str(n), first=a, second=b, target=y) for n, ((a, b), y) in enumerate(draw))
    data = toy.task("classify", train=pairs, dev={"dev": pairs[:16]})
    finetune(toy.settings(model, tmp_path / "run", epochs=40), data)
    predictor = load_predictor(tmp_path / "run", device="cpu")
    right, swapped = predictor.predict([pairs[0], replace(pairs[0], first="dog", second="cat")])
    assert (right.label, swapped.label) == (0, 1)
    from litebert.tasks.kinds import KINDS

    inputs = KINDS["classify"].encode(pairs[:1], predictor.tokenizer, predictor.note.encoding())
    assert inputs.segments.tolist() == [0, 0, 0, 1, 1]
    flipped = replace(inputs, segments=1 - inputs.segments)
    torch.nn.init.normal_(predictor.network.encoder.embeddings.segment.weight)  # it may have learnt by positions alone
    before, after = (predictor.scores(one).scores for one in (inputs, flipped))
    assert abs(before - after).max() > 0.01


def test_an_answer_at_the_very_end_of_a_long_context_is_found(tmp_path):
    """Ten windows long; only the last holds the answer, as its last word."""
    model = toy.make_model(tmp_path / "model")
    data = toy.task("span", 512)
    finetune(toy.settings(model, tmp_path / "run", epochs=25, stride=8), data)
    filler = " ".join(["the a of was in and it then there so"] * 20)
    passage = f"{filler} key fox"
    last = Question(
        key="q",
        title="t",
        passage=passage,
        question="where is it",
        answers=(Answer(text="fox", start=passage.index("fox")),),
    )
    found = load_predictor(tmp_path / "run").predict([last])
    assert found[0].label == "fox"


def test_predict_streams_in_order_in_every_format(model, tmp_path):
    data = toy.task("classify")
    finetune(toy.settings(model, tmp_path / "run", epochs=10), data)
    run, lines = str(tmp_path / "run"), ["good it was", "", "the bad of", "so good"]
    runner = CliRunner()
    done = runner.invoke(app, ["predict", run], input="\n".join(lines) + "\n")
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["key"] for row in rows] == ["0", "1", "2", "3"]
    assert [rows[n]["label"] for n in (0, 2, 3)] == ["good", "bad", "good"]
    assert all(math.isclose(sum(row["probabilities"].values()), 1, abs_tol=1e-5) for row in rows)
    (tmp_path / "texts.csv").write_text('id,text\n7,"good, it was"\n9,the bad\n')
    done = runner.invoke(app, ["predict", run, str(tmp_path / "texts.csv"), "--format", "csv"])
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[0] == "key,label,bad,good"
    assert [line.split(",")[:2] for line in done.stdout.splitlines()[1:]] == [["7", "good"], ["9", "bad"]]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines[2:]))
    out = tmp_path / "found.tsv"
    done = runner.invoke(app, ["predict", run, str(tmp_path / "texts.jsonl"), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert [line.split("\t")[1] for line in out.read_text().splitlines()] == ["label", "bad", "good"]
    (tmp_path / "broken.csv").write_text('id,text\n1,"good\n2,bad\n')
    with pytest.raises(InputError, match=r"broken\.csv, line 2: a quote"):
        runner.invoke(app, ["predict", run, str(tmp_path / "broken.csv"), "-o", str(out)], catch_exceptions=False)
    assert out.read_text().startswith("key") and not list(tmp_path.glob(".found*"))
    with pytest.raises(InputError, match="depth is 3"):
        runner.invoke(app, ["predict", run, "--depth", "3"], catch_exceptions=False)


def test_depth_changes_the_answer(model, tmp_path):
    data = toy.task("classify")
    finetune(toy.settings(model, tmp_path / "run", epochs=6), data)
    dev = data.dev["dev"]
    full, same, one = (load_predictor(tmp_path / "run", depth=depth).predict(dev) for depth in (None, 2, 1))
    assert full == same and full != one


def test_own_csv_from_the_command_line(model, tmp_path):
    rows = [f"{item.first},{('poor', 'fine')[item.target]}" for item in toy.items("classify", 200, 5)]
    (tmp_path / "tickets.csv").write_text("body,queue\n" + "\n".join(rows) + "\n")
    words = ["optimiser.rate=0.003", "epochs=12", "length=32"]
    command = ["finetune", str(model), *words, "--data", str(tmp_path / "tickets.csv"), "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, [*command, "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert "finished after" in done.stdout and "accuracy" in done.stdout
    note = json.loads((tmp_path / "run" / "model" / "task.json").read_text())
    assert note["text"] == ["body"] and note["label"] == "queue" and note["labels"] == ["fine", "poor"]
    done = CliRunner().invoke(app, ["predict", str(tmp_path / "run")], input="it was good\n")
    assert json.loads(done.stdout)["label"] == "fine"


def test_a_model_fine_tuned_on_other_labels_gets_a_new_head(model, tmp_path):
    finetune(toy.settings(model, tmp_path / "first", epochs=1), toy.task("multilabel", 64))
    result = finetune(toy.settings(tmp_path / "first", tmp_path / "second", epochs=1), toy.task("classify", 64))
    assert result.status == "finished"
    assert load_model(tmp_path / "second").network.config.heads.labels == ("bad", "good")


def test_what_is_refused(model, tmp_path):
    with pytest.raises(InputError, match="no training data"):
        finetune(toy.settings(model, tmp_path / "run"), toy.task("classify", train=()))
    with pytest.raises(InputError, match="preset without weights"):
        finetune(toy.settings(Path("albert-tiny"), tmp_path / "run"), toy.task("classify", 8))
    with pytest.raises(InputError, match="no dev data"):
        finetune(toy.settings(model, tmp_path / "run"), toy.task("classify", 8, dev={}))
    assert not (tmp_path / "run").exists()
