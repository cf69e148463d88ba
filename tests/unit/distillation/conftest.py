"""A planted teacher: a small network whose answers are a function of a text's letters, and labels drawn from them."""

import random
from pathlib import Path

import pytest
import torch

from litebert.checkpoints.folder import save_model
from litebert.nn.config import family_config
from litebert.nn.network import HeadsConfig, Network, NetworkConfig
from litebert.tasks.examples import Example, TaskSpec
from litebert.tasks.predicting import TASK_FILE, load_predictor

SHAPE = {"vocab_size": 33, "width": 16, "num_heads": 2, "feed_forward_width": 32, "num_layers": 4, "max_positions": 64}
LABELS = {"classify": ("early", "late"), "regress": ("score",), "multilabel": ("a", "b", "c")}
PROBLEMS = {
    "classify": "single_label_classification",
    "regress": "regression",
    "multilabel": "multi_label_classification",
}


@pytest.fixture
def save(tmp_path, letter_tokenizer):
    """Write a model; with a kind it is a teacher, whose answers differ much from text to text."""

    def make(name: str, kind: str | None = None, words=None, seed: int = 0, **fields: object) -> Path:
        torch.manual_seed(seed)
        config = family_config({"family": "bert", "dropout": 0.0, "attention_dropout": 0.0, **SHAPE, **fields})
        labels = LABELS[kind] if kind else ("0", "1")
        heads = HeadsConfig(names=("classify",) if kind else (), labels=labels, problem=PROBLEMS.get(kind or "", ""))
        network = Network(NetworkConfig(encoder=config, heads=heads)).eval()
        with torch.no_grad():
            for part, parameter in network.named_parameters():
                if "norm" not in part and not part.endswith("bias"):
                    parameter.normal_(std=1.0 if "token" in part else 0.5 if "heads" in part else 0.3)
        known = LABELS[kind] if kind in ("classify", "multilabel") else ()
        note = TaskSpec(task="planted", kind=kind or "classify", labels=known, metrics=("accuracy",), length=32)
        files = {TASK_FILE: note.text_of_file()} if kind else {}
        save_model(tmp_path / name, network, words or letter_tokenizer(), verb="test", files=files)
        return tmp_path / name

    return make


def texts(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return ["".join(draw.choice("abcdefgh") for _ in range(draw.randint(4, 9))) for _ in range(count)]


@pytest.fixture
def table(tmp_path):
    """Training texts with labels drawn by chance from what a teacher gives them: one draw tells little."""

    def make(teacher: Path, kind: str, count: int = 300) -> Path:
        lines = texts(count, 1)
        said = load_predictor(teacher, device="cpu").predict([Example(key=line, first=line) for line in lines])
        draw = random.Random(2)
        rows = ["text,kind"]
        for line, one in zip(lines, said, strict=True):
            if kind == "classify":
                rows.append(f"{line},{LABELS[kind][int(draw.random() < one.probabilities[1])]}")
            else:
                rows.append(f"{line},{one.label + draw.gauss(0, 3.0):.3f}")
        (tmp_path / f"{kind}.csv").write_text("\n".join(rows) + "\n")
        return tmp_path / f"{kind}.csv"

    return make
