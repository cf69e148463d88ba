"""Distilling a planted teacher: a student gets nearer to it than by labels alone, and the teacher stays what it was."""

import hashlib
import random

import numpy as np
import pytest
import torch

from litebert.checkpoints.folder import load_model
from litebert.runs import read_run
from litebert.tasks.examples import Example
from litebert.tasks.predicting import load_predictor
from litebert.train.metrics import read_metrics
from litebert.train.trainer import Trainer

WORDS = [
    "batch=32",
    "scores=1",
    "optimiser.rate=3e-3",
    "patience=0",
    "restarts=0",
    "--device",
    "cpu",
    "--label",
    "kind",
]


def scores(folder) -> np.ndarray:
    """A model's answers to texts that nobody was trained on."""
    draw = random.Random(9)
    lines = ["".join(draw.choice("abcdefgh") for _ in range(draw.randint(4, 9))) for _ in range(300)]
    said = load_predictor(folder, device="cpu").predict([Example(key=line, first=line) for line in lines])
    return np.asarray([one.probabilities or (one.label,) for one in said])


def digest(folder) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.parametrize("kind", ["classify", "regress"])
def test_a_student_gets_nearer_to_its_teacher_than_by_the_labels_alone(litebert, save, table, tmp_path, kind):
    teacher, start = save("teacher", kind), tmp_path / "start"
    assert litebert("shrink", teacher, "--drop", 1, "-o", start)[0] == 0
    before, data = digest(teacher), table(teacher, kind)
    words = ["steps=100", *WORDS, "--data", data]
    code, out, err = litebert("distill", teacher, start, *words, "--hard", 0, "-o", tmp_path / "taught")
    assert code == 0, err
    assert "teacher" in out and "student" in out
    code, _, err = litebert("finetune", start, *words, "--out", tmp_path / "alone")
    assert code == 0, err
    wanted = scores(teacher)
    apart = {name: float(np.abs(scores(tmp_path / name) - wanted).mean()) for name in ("taught", "alone")}
    assert apart["taught"] < 0.6 * apart["alone"], apart
    assert digest(teacher) == before
    note = read_run(tmp_path / "taught")
    assert note.verb == "distill" and {parent.role for parent in note.parents} == {"start", "teacher"}
    assert 0 < note.result["agreement"] <= 1


@pytest.mark.parametrize("states", ["final", "depths"])
def test_states_come_nearer_and_a_projection_is_not_left_in_the_model(litebert, save, table, tmp_path, states):
    teacher = save("teacher", "classify")
    data = table(teacher, "classify", 60)
    start = save("start", num_layers=2, width=8, embedding_width=8, num_heads=2, seed=5)
    words = ["steps=6", *WORDS, "--data", data, "--states", states, "-o", tmp_path / "taught"]
    code, _, err = litebert("distill", teacher, start, *words)
    assert code == 0, err
    network = load_model(tmp_path / "taught").network
    assert not [name for name in network.state_dict() if "projection" in name]


def test_layers_of_the_teacher_with_its_head_begin_as_its_student(litebert, save, table, tmp_path):
    teacher = save("teacher", "classify")
    data = table(teacher, "classify", 60)
    code, _, err = litebert(
        "distill",
        teacher,
        "steps=1",
        *WORDS,
        "optimiser.rate=1e-9",
        "--data",
        data,
        "--keep",
        "1,3",
        "-o",
        tmp_path / "half",
    )
    assert code == 0, err
    theirs, ours = (load_model(folder).network.state_dict() for folder in (teacher, tmp_path / "half"))
    for name, other in (
        ("encoder.attention.1.out.weight", "encoder.attention.2.out.weight"),
        ("heads.classify.linear.weight", "heads.classify.linear.weight"),
    ):
        torch.testing.assert_close(ours[name], theirs[other], atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["pairs", "multilabel"])
def test_pairs_and_several_labels_are_taught(litebert, save, tmp_path, kind):
    teacher = save("teacher", "multilabel" if kind == "multilabel" else "classify")
    rows = ["first,second,kind"]
    for number in range(40):
        label = "a;b" if number % 2 else "c"
        label = label if kind == "multilabel" else "early" if number % 2 else "late"
        rows.append(f"{'abcd'[number % 4] * 3},{'xyz'[number % 3] * 2}n,{label}")
    (tmp_path / "pairs.csv").write_text("\n".join(rows) + "\n")
    words = ["steps=3", *WORDS, "--data", tmp_path / "pairs.csv", "--text", "first,second", "--keep", "1,4"]
    code, _, err = litebert("distill", teacher, *words, "--states", "final", "-o", tmp_path / "taught")
    assert code == 0, err
    lost = [row for row in read_metrics(tmp_path / "taught") if "soft_loss" in row]
    assert lost and all(row["soft_loss"] > 0 and row["states_loss"] > 0 and row["task_loss"] > 0 for row in lost)
    note = load_predictor(tmp_path / "taught", device="cpu").note
    assert note.pairs and note.text == ("first", "second")


def test_a_preset_can_be_the_student(litebert, save, table, tmp_path):
    teacher = save("teacher", "classify")
    words = [f"student.{word}" for word in ("num_layers=2", "width=16", "num_heads=2", "feed_forward_width=16")]
    data = table(teacher, "classify", 60)
    code, _, err = litebert(
        "distill", teacher, "albert-tiny", *words, "steps=2", *WORDS, "--data", data, "-o", tmp_path / "small"
    )
    assert code == 0, err
    config = load_model(tmp_path / "small").network.config.encoder
    assert (config.family, config.num_layers, config.vocab_size) == ("albert", 2, 33)


def test_a_run_that_was_killed_goes_on_to_the_same_weights(litebert, save, table, tmp_path, monkeypatch):
    teacher = save("teacher", "classify")
    start = save("start", num_layers=2, width=8, embedding_width=8, num_heads=2, dropout=0.1, seed=5)
    data = table(teacher, "classify", 60)
    words = ["steps=8", *WORDS, "--data", data, "--states", "depths", "--save-every", 3]
    assert litebert("distill", teacher, start, *words, "-o", tmp_path / "whole")[0] == 0
    real, steps = Trainer._step, []

    def dies(self, *arguments):
        steps.append(1)
        if len(steps) == 6:
            raise KeyboardInterrupt
        return real(self, *arguments)

    monkeypatch.setattr(Trainer, "_step", dies)
    assert litebert("distill", teacher, start, *words, "-o", tmp_path / "killed")[0] != 0
    code, _, err = litebert(
        "distill", teacher, start, *words, "--temperature", 3, "-o", tmp_path / "killed", "--resume"
    )
    assert code == 2 and "resume with the same" in err
    code, _, err = litebert("distill", teacher, start, *words, "-o", tmp_path / "killed", "--resume")
    assert code == 0, err
    assert digest(tmp_path / "killed" / "model") == digest(tmp_path / "whole" / "model")


def test_mistakes_get_one_sentence(litebert, save, table, letter_tokenizer, tmp_path):
    teacher = save("teacher", "classify")
    other = save("other", words=letter_tokenizer(letters="zyxwvutsrqponmlkjihgfedcba"))
    data = table(teacher, "classify", 30)
    for words, said in (
        ([teacher, other], "different tokenizers"),
        ([teacher], "name a student"),
        ([teacher, other, "--keep", 1], "name a student"),
        ([teacher, "--keep", 9], "layers 1 to 4"),
        ([other, "--keep", 1], "no head for a task"),
        ([tmp_path / "none", "--keep", 1], "there is no folder"),
        ([teacher, "--keep", 1, "--temperature", 0], "--temperature is 0"),
        ([teacher, "--keep", 1, "--hard", 1], "learns nothing from the teacher"),
        ([teacher, "--keep", 1, "--states", "al"], "none, final, depths"),
        ([teacher, "xlnet-base"], "laid out in another way"),
        ([teacher, "--drop", 1, "--strategy", "greedy"], "greedy needs texts"),
    ):
        code, _, err = litebert("distill", *words, "--data", data, "--label", "kind", "-o", tmp_path / "x")
        assert code == 2 and said in err and err.strip().splitlines()[-1].startswith("litebert: "), (words, err)
    assert not (tmp_path / "x").exists()
