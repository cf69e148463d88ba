"""Tables of any length and a model that answers them quickly, for tests of predictions and their memory."""

import random
from collections.abc import Iterator
from pathlib import Path

import torch
import toy_tasks as toy

import litebert
from litebert.model import Model
from litebert.nn.network import HeadsConfig, Network, NetworkConfig
from litebert.tasks.examples import TaskSpec


def tuned(folder: Path) -> Path:
    """A model of one layer with two labels and random weights."""
    base = litebert.load(toy.make_model(folder.parent / "base", layers=1))
    torch.manual_seed(3)
    heads = HeadsConfig(names=("classify",), labels=("bad", "good"))
    network = Network(NetworkConfig(encoder=base.config, heads=heads)).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.3)
    Model(network, base.tokenizer, task=TaskSpec(labels=("bad", "good"), length=32)).save(folder)
    return folder


def write_table(path: Path, rows: int) -> Path:
    """A csv file with an id and a text in each row."""
    draw = random.Random(0)
    some = [" ".join(draw.choices(toy.WORDS, k=draw.randint(3, 9))) for _ in range(1000)]
    with path.open("w") as file:
        file.write("id,text\n")
        file.writelines(f"r{number},{some[number * 7 % 997]}\n" for number in range(rows))
    return path


def shard_lines(folder: Path) -> Iterator[str]:
    """The rows of all csv shards of a folder in order, without the headers."""
    for path in sorted(folder.glob("part-*.csv")):
        with path.open() as file:
            yield from list(file)[1:]
