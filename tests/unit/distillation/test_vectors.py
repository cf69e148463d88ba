"""Distilling sentence vectors: into the teacher's space, from texts and pairs, resumed to the same weights."""

import random

import numpy as np
import pytest
import torch

import litebert as api
from litebert.checkpoints.folder import load_model
from litebert.distillation.vectors import (
    VectorObjective,
    VectorTeacher,
    dev_pairs,
    narrowed,
    read_texts,
    turned,
)
from litebert.errors import InputError
from litebert.runs import read_run
from litebert.tasks.encoding import TaskBatches
from litebert.tasks.examples import EncodingSettings, Example
from litebert.tasks.kinds import KINDS
from litebert.tasks.metrics import spearman
from litebert.tasks.objective import TaskObjective
from litebert.train.trainer import Trainer

QUICK = ["steps=60", "batch=32", "scores=1", "optimiser.rate=3e-3", "--device", "cpu"]


def lines(count: int, seed: int = 0) -> list[str]:
    """Texts, every third with a partner of nearly the same letters."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        text = "".join(draw.choice("abcdefgh") for _ in range(draw.randint(4, 9)))
        found.append(f"{text}\t{text[1:]}" if number % 3 == 0 else text)
    return found


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(lines(300)) + "\n")
    return path


def sorted_alike(model, teacher) -> float:
    """How alike two models sort pairs of texts that nobody was trained on."""
    held_out = [line.split("\t")[0] for line in lines(60, seed=5)]
    ours, theirs = (api.load(folder, device="cpu").encode(held_out, normalize=True) for folder in (model, teacher))
    theirs = theirs - theirs.mean(0)
    theirs /= np.linalg.norm(theirs, axis=1, keepdims=True)
    above = np.triu_indices(len(held_out), 1)
    return spearman((ours @ ours.T)[above].tolist(), (theirs @ theirs.T)[above].tolist())


@pytest.mark.parametrize("width", [8, 32])
def test_a_student_sorts_texts_as_its_teacher_does(litebert, save, texts, tmp_path, width):
    teacher, start = save("teacher"), save("start", seed=3, width=width)
    out = tmp_path / "out"
    code, _, err = litebert("distill", teacher, start, "--vectors", *QUICK, "--data", texts, "-o", out)
    assert code == 0, err
    before, after = sorted_alike(start, teacher), sorted_alike(out, teacher)
    assert after > before + 0.15 and after > 0.3, (before, after)
    note = read_run(out)
    assert note.verb == "distill" and {parent.role for parent in note.parents} == {"start", "teacher"}
    model = api.load(out, device="cpu")
    assert model.task.kind == "embed" and np.linalg.norm(model.encode("abc")) == pytest.approx(1, abs=1e-5)
    assert not list(out.glob("vectors-*.npy"))  # not kept once the run is finished


def test_layers_of_the_teacher_and_presets_can_be_students(litebert, save, texts, tmp_path):
    teacher = save("teacher")
    words = ["--vectors", "steps=2", "scores=1", "--device", "cpu", "--data", texts]
    assert litebert("distill", teacher, "--keep", "1,3", *words, "-o", tmp_path / "kept")[0] == 0
    assert load_model(tmp_path / "kept").network.config.encoder.num_layers == 2
    preset = ["albert-tiny", "student.num_layers=2", "student.max_positions=64"]
    code, _, err = litebert("distill", teacher, *preset, *words, "-o", tmp_path / "new")
    assert code == 0, err
    assert load_model(tmp_path / "new").network.config.encoder.family == "albert"


def test_a_resumed_run_ends_with_the_same_weights(litebert, save, texts, tmp_path, monkeypatch):
    teacher, start = save("teacher"), save("start", seed=3)
    words = ["distill", teacher, start, "--vectors", *QUICK[1:], "steps=12", "--data", texts]
    assert litebert(*words, "-o", tmp_path / "whole")[0] == 0
    steps, step = [], Trainer._step

    def killed(self, *given):
        steps.append(1)
        if len(steps) == 8:
            raise KeyboardInterrupt
        return step(self, *given)

    monkeypatch.setattr(Trainer, "_step", killed)
    litebert(*words, "-o", tmp_path / "cut", "--save-every", "5")
    monkeypatch.setattr(Trainer, "_step", step)
    assert len(list((tmp_path / "cut").glob("vectors-*.npy"))) == 1
    monkeypatch.setattr(VectorTeacher, "vectors", None)  # the kept ones are taken
    code, _, err = litebert(*words, "-o", tmp_path / "cut", "--save-every", "5", "--resume")
    assert code == 0, err
    whole, cut = (load_model(tmp_path / name).network.state_dict() for name in ("whole", "cut"))
    assert all(torch.equal(tensor, cut[name]) for name, tensor in whole.items())


def test_the_teachers_vectors_have_no_mean_and_any_pooling(save):
    teacher = VectorTeacher.load(str(save("teacher")))
    items = [Example(key="0", first="abc", second="hgf", target=1), Example(key="1", first="bcd", target=1)]
    found = teacher.vectors(items * 20, torch.device("cpu"), None).astype(np.float64)
    plain = api.load(teacher.folder, device="cpu").encode(["abc", "hgf", "bcd"] * 20, normalize=True)
    plain = plain - plain.mean(0)
    assert found == pytest.approx(plain / np.linalg.norm(plain, axis=1, keepdims=True), abs=2e-3)


def test_turning_keeps_cosines_and_finds_a_hidden_rotation():
    rng = np.random.default_rng(0)
    theirs = rng.normal(size=(200, 5))
    hidden = np.linalg.qr(rng.normal(size=(9, 9)))[0][:, :5]
    turn = turned(theirs @ hidden.T + 3, theirs)
    assert turn == pytest.approx(hidden, abs=1e-5)
    assert turn.T @ turn == pytest.approx(np.eye(5), abs=1e-5)


def test_narrowed_vectors_keep_what_differs_most():
    rng = np.random.default_rng(0)
    wide = rng.normal(size=(300, 8)) * [9, 9, 9, 1, 1, 1, 1, 1] / 9
    wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    found = narrowed(wide.astype(np.float16), 3).astype(np.float64)
    wanted = wide[:, :3] / np.linalg.norm(wide[:, :3], axis=1, keepdims=True)
    assert found @ found.T == pytest.approx(wanted @ wanted.T, abs=0.05)
    assert narrowed(wide.astype(np.float16), 8).shape == (300, 8)


def test_the_loss_is_zero_for_the_teachers_own_vectors(save):
    start = load_model(save("start"))
    items = [Example(key="0", first="abcd", second="efgh", target=1), Example(key="1", first="hgf", target=1)]
    inputs = KINDS["embed"].encode(items, start.tokenizer, EncodingSettings(length=32))
    targets = KINDS["embed"].targets(items, inputs, 0)
    vectors = torch.from_numpy(api.load(save("start"), device="cpu").encode(["abcd", "efgh", "hgf"], normalize=True))
    values = np.full((2, 2, vectors.shape[1]), np.nan, np.float16)
    values[0], values[1, 0] = vectors[:2], vectors[2]
    batch = TaskBatches(
        inputs, type(targets)(targets.bounds, labels=targets.labels, values=values), batch=2, choosing=True
    )
    own = TaskObjective("embed", inputs.longest, options=2)
    objective = VectorObjective(own, torch.eye(vectors.shape[1]), contrast=0.5)
    made = batch.batch(0, 0)
    assert objective.counts(made) == {"vectors": 3, "task": 1}
    found = objective.parts(start.network, objective.tensors(made, torch.device("cpu")))
    assert float(found["vectors"].loss.detach()) == pytest.approx(0, abs=5e-3)
    assert float(found["task"].loss.detach()) == pytest.approx(0, abs=1e-4)  # one pair is told from nothing


def test_dev_goes_from_the_nearest_to_any():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(40, 6))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
    found = list(dev_pairs([f"t{n}" for n in range(40)], vectors))
    assert all(one.first != one.second for one in found)
    assert found[3].target == pytest.approx(float(vectors[3] @ vectors[int(found[3].second[1:])]), abs=1e-2)
    assert np.mean([one.target for one in found]) > 0.3  # most are nearer than any two


def test_texts_come_from_lines_and_columns(tmp_path, texts):
    items = read_texts(texts)
    assert len(items) == 300 and items[0].second == items[0].first[1:] and items[1].second is None
    table = read_texts({"a": ["x y"] * 30, "b": ["z"] * 30}, "a,b")
    assert (table[0].first, table[0].second) == ("x y", "z")
    (tmp_path / "few.txt").write_text("one\n")
    with pytest.raises(InputError, match="1 texts"):
        read_texts(tmp_path / "few.txt")
    with pytest.raises(InputError, match="no file"):
        read_texts(tmp_path / "none.txt")


def test_what_belongs_to_tasks_is_refused(litebert, save, texts, tmp_path):
    teacher = save("teacher")
    code, _, err = litebert(
        "distill", teacher, teacher, "--vectors", "--task", "sst2", "--data", texts, "-o", tmp_path / "x"
    )
    assert code != 0 and "there is no task" in err
