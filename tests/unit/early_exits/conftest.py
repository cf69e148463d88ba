"""A small fine-tuned model, and a task that the letters of a text decide: low heads know it, its own head does not."""

import random
from pathlib import Path

import pytest
import torch

from litebert.checkpoints.folder import save_model
from litebert.early_exits.heads import ExitReport, Exits, Point
from litebert.nn.config import family_config
from litebert.nn.network import HeadsConfig, Network, NetworkConfig
from litebert.tasks.examples import TaskSpec
from litebert.tasks.predicting import TASK_FILE

DEPTHS, WIDTH = 4, 16
LABELS = {"classify": ("early", "late"), "multilabel": ("a", "b", "c"), "regress": ("score",)}


@pytest.fixture
def model(tmp_path, letter_tokenizer):
    """The folder of a model of random weights for a kind of task."""

    def make(kind: str = "classify", family: str = "bert") -> Path:
        shape = {"vocab_size": 33, "width": WIDTH, "num_heads": 2, "feed_forward_width": 24, "num_layers": DEPTHS}
        config = family_config({"family": family, "embedding_width": WIDTH, "max_positions": 32, **shape})
        heads = HeadsConfig(names=("classify",), labels=LABELS[kind])
        network = Network(NetworkConfig(encoder=config, heads=heads)).eval()
        torch.manual_seed(0)  # here, so that what a network draws for itself changes nothing
        with torch.no_grad():
            for name, parameter in network.named_parameters():
                if "norm" not in name:
                    parameter.normal_(std=1.0 if "token" in name else 0.2)
        known = () if kind == "regress" else LABELS[kind]
        note = TaskSpec(kind=kind, labels=known, metrics=("accuracy",), length=16, text=("text",), label="kind")
        folder = tmp_path / f"{kind}-{family}"
        save_model(folder, network, letter_tokenizer(family), verb="test", files={TASK_FILE: note.text_of_file()})
        return folder

    return make


@pytest.fixture
def table(tmp_path):
    """Whether a text has more of a than of b, by how much, or which letters it has."""

    def make(kind: str = "classify", rows: int = 300) -> Path:
        draw = random.Random(0)
        lines = ["text,kind"]
        while len(lines) < rows + 1:
            text = "".join(draw.choice("abcd") for _ in range(draw.randint(4, 10)))
            more = text.count("a") - text.count("b")
            if not more:
                continue
            target = {
                "classify": "early" if more > 0 else "late",
                "multilabel": ";".join(letter for letter in "abc" if letter in text[:3]),
                "regress": str(more / len(text)),
            }[kind]
            lines.append(f"{text},{target}")
        path = tmp_path / f"{kind}.csv"
        path.write_text("\n".join(lines) + "\n")
        return path

    return make


@pytest.fixture
def toy_exits():
    """Heads of random weights for the model above, with a rule."""

    def make(kind: str = "classify", *, rule: str = "patience", value: float = 2, tolerance: float = 0.0) -> Exits:
        torch.manual_seed(1)
        labels = len(LABELS[kind])
        full = Point(rule="depth", value=DEPTHS, mean_depth=DEPTHS, metrics={"accuracy": 0.9})
        report = ExitReport(
            model="toy",
            task="letters",
            kind=kind,
            metric="accuracy",
            rule=rule,
            value=value,
            tolerance=tolerance,
            depths=DEPTHS,
            max_loss=0.3,
            full_score=0.9,
            score=0.9,
            checked_loss=0.0,
            mean_depth=2.0,
            trained_on=10,
            rows=10,
            points=(full,),
        )
        weight = torch.randn(DEPTHS, 2 * WIDTH, labels)
        return Exits(weight=weight, bias=torch.randn(DEPTHS, labels), report=report)

    return make
