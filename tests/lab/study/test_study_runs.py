"""Studies end to end on a small store: rows once, gone on with where they stopped, verdicts from their figures."""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import toy_work
from typer.testing import CliRunner

import litebert
from litebert.checkpoints.training import saved_states
from litebert.cluster import Placement, run_all
from litebert.errors import InputError
from litebert.pretraining.run import pretrain
from litebert.runs import read_run, standing
from litebert_lab.cli import app
from litebert_lab.study import run as study_run
from litebert_lab.study.catalogue import STUDIES
from litebert_lab.study.report import outcome_of
from litebert_lab.study.run import StudySettings, plan_study, row_folder, row_settings, run_study

WORDS = (
    *("num_layers=4", "width=16", "embedding_width=8", "num_heads=2", "feed_forward_width=32"),
    *("batches.tokens=[[0,512]]", "batches.micro_tokens=512", "batches.lengths=[[0,32]]"),
)


def settings(store: Path, out: Path, study: str, **changes) -> StudySettings:
    fields = {"preset": "albert-tiny", "corpus": store, "budget": None, "steps": 6, "words": WORDS, "device": "cpu"}
    return StudySettings(study=study, out=out, **{**fields, **changes})


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return litebert.load(folder, device="cpu").network.state_dict()


def test_finished_rows_are_not_run_again_and_more_seeds_add_rows(store, tmp_path, monkeypatch):
    first = settings(store, tmp_path / "study", "dropout")
    assert run_study(first).complete
    trained = []

    def counted(chosen):
        trained.append(chosen.out.name)
        return pretrain(chosen)

    monkeypatch.setattr(study_run, "pretrain", counted)
    assert run_study(first).complete and not trained
    assert not plan_study(replace(first, seeds=2)).complete
    done = run_study(replace(first, seeds=2))
    assert trained == ["with-seed1", "without-seed1"] and done.complete
    assert {line.seeds for line in outcome_of(done).lines} == {2}
    assert not list((tmp_path / "study").rglob("checkpoints"))
    with pytest.raises(InputError, match="holds a study with steps 6, not 7"):
        run_study(replace(first, steps=7))


def test_rows_of_the_same_arithmetic(store, tmp_path):
    """Half the layers take more steps for the same work, and a study of steps is another one."""
    chosen = settings(store, tmp_path / "study", "elastic", steps=None, flops=2e8)
    report = outcome_of(run_study(chosen))
    steps = {line.row.name: line.steps for line in report.lines}
    assert steps["depth-1"] > 1.5 * steps["depth-4"] and report.length == "in 2e+08 operations"
    with pytest.raises(InputError, match="holds a study with steps None, not 6"):
        run_study(replace(chosen, steps=6, flops=None))
    with pytest.raises(InputError, match="give one of --budget 5m, --steps 1000 and --flops 1e16"):
        replace(chosen, steps=6)


def test_a_row_that_was_killed_goes_on_and_ends_the_same(store, tmp_path):
    whole, killed = (settings(store, tmp_path / name, "dropout") for name in ("whole", "killed"))
    run_study(whole)
    study = plan_study(killed).study
    row = study.rows[0]
    (tmp_path / "killed").mkdir()
    study_run._note(killed, plan_study(killed))
    pretrain(replace(row_settings(killed, study, row, 0), save_steps=3))
    folder = row_folder(killed, row, 0)
    shutil.rmtree(saved_states(folder)[-1].folder)  # as if it had been killed after step 3
    shutil.rmtree(folder / "model")
    note = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**note, "status": "running"}))
    run_study(killed)
    ours = weights(row_folder(killed, row, 0))
    for name, tensor in weights(row_folder(whole, row, 0)).items():
        assert torch.equal(tensor, ours[name]), name


def test_rows_at_once_are_those_of_rows_in_turn(store, tmp_path, monkeypatch):
    """One of them is killed midway; rows begin after those that they start from."""
    turn, once = (settings(store, tmp_path / name, "dropout") for name in ("turn", "once"))
    expected = run_study(turn)
    killing = toy_work.kill_first(run_all, tmp_path / "killed", step=3)
    with monkeypatch.context() as patched:
        patched.setattr(study_run, "run_all", killing)
        found = run_study(once, Placement(at_once=2))
    assert (tmp_path / "killed").exists() and found.complete
    tables = [{row: seeds[0].table for row, seeds in done.scores.items()} for done in (expected, found)]
    assert tables[0] == tables[1]
    for row in found.study.rows:
        ours, theirs = (weights(row_folder(one, row, 0)) for one in (once, turn))
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    asked: dict[int, list[int]] = {}
    monkeypatch.setattr(study_run, "run_all", lambda jobs, *, needs, **_: asked.update(needs))
    run_study(settings(store, tmp_path / "depth", "depth", seeds=2))
    rows = plan_study(settings(store, tmp_path / "depth", "depth")).study.trained
    starts = {place: [row.name for row in rows].index(row.start) for place, row in enumerate(rows) if row.start}
    assert starts and asked == {
        seed * len(rows) + place: [seed * len(rows) + start] for place, start in starts.items() for seed in (0, 1)
    }


def test_a_study_that_is_asked_to_stop_says_how_to_resume(store, tmp_path, monkeypatch, caplog):
    from litebert.train.trainer import TrainResult

    monkeypatch.setattr(study_run, "pretrain", lambda *_: TrainResult("stopped", 1, {}, ()))
    with caplog.at_level(logging.INFO):
        done = run_study(settings(store, tmp_path / "study", "dropout"))
    assert "the same command resumes" in caplog.messages[-1] and not done.complete
    report = outcome_of(done)
    assert {found.verdict for _, found in report.verdicts} == {"too small to tell"}
    assert json.loads((tmp_path / "study" / "run.json").read_text())["status"] == "stopped"


def test_a_folder_with_something_else_in_it_is_refused(store, tmp_path):
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "notes.txt").touch()
    with pytest.raises(InputError, match="holds no study"):
        run_study(settings(store, tmp_path / "study", "dropout"))


def command(study: StudySettings) -> list[str]:
    words = ["study", study.study, *study.words, "--preset", study.preset, "--steps", str(study.steps)]
    return [*words, "--device", "cpu", "--corpus", str(study.corpus), "-o", str(study.out)]


def started(study: StudySettings) -> "subprocess.Popen[str]":
    """The command in a process of its own, with as many threads as here: sums must come out the same."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads()), "COLUMNS": "200"}
    line = [sys.executable, "-m", "litebert_lab", *command(study)]
    return subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_killed_study_resumes_with_the_same_models_and_report(store, tmp_path):
    words = ("num_layers=2", *WORDS[1:])
    whole, cut = (settings(store, tmp_path / name, "elastic", words=words) for name in ("whole", "cut"))
    assert CliRunner().invoke(app, command(whole)).exit_code == 0
    first = started(cut)
    begun = tmp_path / "cut" / "rows" / "depth-1-seed0" / "checkpoints"
    limit = time.monotonic() + 60
    while not (begun.is_dir() and any(begun.iterdir())):
        assert first.poll() is None and time.monotonic() < limit, first.communicate()[1]
        time.sleep(0.005)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    note = read_run(tmp_path / "cut")
    assert note is not None and standing(note) == "killed"
    again = started(cut)
    out, err = again.communicate(timeout=120)
    assert again.returncode == 0 and "loss against above" in out, err
    assert (tmp_path / "cut" / "study.json").read_text() == (tmp_path / "whole" / "study.json").read_text()
    assert read_run(tmp_path / "cut").status == "finished"
    for row in plan_study(cut).study.trained:
        for name, tensor in weights(row_folder(whole, row, 0)).items():
            assert torch.equal(tensor, weights(row_folder(cut, row, 0))[name]), (row.name, name)


def test_the_help_names_every_study():
    shown = CliRunner().invoke(app, ["study", "--help"], env={"COLUMNS": "200"}).stdout
    assert " ".join(STUDIES) in shown


def test_depths_start_from_the_next_shallower(store, tmp_path):
    done = run_study(settings(store, tmp_path / "study", "depth", steps=2))
    assert done.complete
    for row in done.study.rows:
        note = json.loads((row_folder(done.settings, row, 0) / "run.json").read_text())
        parents = {parent["role"]: parent["folder"] for parent in note["parents"]}
        assert ("start" in parents) == bool(row.start)
        if row.start:
            assert parents["start"].endswith(f"{row.start}-seed0")
        assert (
            litebert.load(row_folder(done.settings, row, 0), device="cpu").network.config.encoder.num_layers
            == row.place
        )


def test_the_order_study_asks_both_questions(store, tmp_path):
    done = run_study(settings(store, tmp_path / "study", "order"))
    lines = {line.row.name: line for line in outcome_of(done).lines}
    for name in ("nsp", "sop"):
        assert {"mlm_loss", "mlm_accuracy", "nsp_accuracy", "sop_accuracy"} == set(lines[name].figures)
    assert set(lines["none"].figures) == {"mlm_loss", "mlm_accuracy"}
    for kind in ("sop", "nsp"):  # the same questions for both, whatever they were trained on
        asked = [[row[2] for row in done.scores[name][0].table[kind]] for name in ("nsp", "sop")]
        assert asked[0] == asked[1] and sum(asked[0]) > 0


@pytest.mark.parametrize("name", ["mining", "objectives", "attention"])
def test_studies_of_our_own(name, store, tmp_path):
    """Rows of about the same arithmetic, scored on the same words; BLiMP can be asked for when they are finished."""
    words = (*WORDS, "max_positions=64")
    chosen = settings(store, tmp_path / "study", name, steps=None, flops=1e8, words=words)
    report = outcome_of(run_study(chosen))
    assert {line.remark.partition(" (")[0] for line in report.lines} <= {"", "still at the level of word frequencies"}
    scored = {line.row.name: plan_study(chosen).scores[line.row.name][0].table["mlm"] for line in report.lines}
    counts = {tuple(row[2] for row in table) for table in scored.values()}
    assert len(counts) == 1 and report.ranking.startswith(min(report.lines, key=loss_of).row.label)
    if name == "mining":
        plain, chosen_by_loss = (line.steps for line in report.lines[:2])
        assert chosen_by_loss < plain  # the pass that chooses is paid for
    blimp = tmp_path / "blimp"
    blimp.mkdir()
    pairs = [{"sentence_good": "the cat went home .", "sentence_bad": "the cat home went ."}] * 3
    for paradigm in ("order", "home"):
        (blimp / f"{paradigm}.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    trained = {row: scores[0].facts["seconds"] for row, scores in plan_study(chosen).scores.items()}
    asked = replace(chosen, blimp=blimp, pairs=2)
    done = run_study(asked)
    assert trained == {row: scores[0].facts["seconds"] for row, scores in done.scores.items()}  # no row ran again
    for scores in done.scores.values():
        assert [row[2] for row in scores[0].table["blimp"]] == [2.0, 2.0]
    found = outcome_of(done)
    assert all("blimp_accuracy" in line.figures for line in found.lines)
    assert len(found.verdicts) == 2 * len(report.verdicts)


def loss_of(line) -> float:
    return line.figures["mlm_loss"].value


COMMAND = ["study", "sharing", *WORDS, "--preset", "albert-tiny", "--device", "cpu", "--steps", "2"]


def test_the_verb(store, tmp_path):
    where = ["--corpus", str(store), "-o", str(tmp_path / "study")]
    shown = CliRunner().invoke(app, [*COMMAND, *where, "--dry-run", "--seeds", "3"])
    assert shown.exit_code == 0 and "12 runs of 2 steps" in shown.stdout and "share=ffn" in shown.stdout
    assert not (tmp_path / "study").exists()
    timed = [word for word in COMMAND if word not in ("--steps", "2")]
    told = CliRunner().invoke(app, [*timed, *where, "--dry-run", "--budget", "5m"])
    assert "4 runs of 5m: about 20 minutes" in told.stdout
    ran = CliRunner().invoke(app, [*COMMAND, *where, "--json"])
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout[ran.stdout.index("{") : ran.stdout.rindex("}") + 1])
    assert [row["name"] for row in found["rows"]] == ["none", "attention", "ffn", "all"]
    assert found["rows"][0]["parameters"] > found["rows"][3]["parameters"]
    assert {one["verdict"] for one in found["findings"]} <= {"reproduced", "not reproduced", "too small to tell"}
    assert json.loads((tmp_path / "study" / "study.json").read_text()) == found
    page = (tmp_path / "study" / "study.html").read_text()
    assert page.count("<svg") == 3 and "src=" not in page and "<link" not in page
    again = CliRunner().invoke(app, [*COMMAND, *where])
    assert "too small to tell" in again.stdout or "reproduced" in again.stdout
