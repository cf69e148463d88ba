"""Small models with random weights over a handful of words, pretrained or fine-tuned for each kind of task."""

from pathlib import Path

import torch

from litebert.model import Model
from litebert.nn.config import family_config
from litebert.nn.network import HeadsConfig, Network, NetworkConfig, pretraining_network
from litebert.tasks.examples import TaskSpec
from litebert.text.tokenizer import Tokenizer
from litebert.text.tokenizer_files import read_tokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "a", "mat", "and", "dog", "ran"]
WORDS += ["far", "away", ",", ".", "!"]
LABELS = {"classify": ("no", "yes", "maybe"), "multilabel": ("animal", "place"), "regress": ("score",)}


def word_tokenizer(folder: Path) -> Tokenizer:
    """A tokenizer for these words, kept in a folder."""
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return read_tokenizer(folder, "bert")


def toy_config(family: str = "albert", **fields):
    """The shape of all toy models."""
    sizes = {"vocab_size": len(WORDS), "width": 64, "num_layers": 3, "num_heads": 4, "feed_forward_width": 128}
    return family_config({"family": family, "max_positions": 24, **sizes, **fields})


def pretrained_model(tokenizer: Tokenizer, family: str = "albert", **fields) -> Model:
    """With heads for masked words and order."""
    torch.manual_seed(0)
    return Model(scrambled(pretraining_network(toy_config(family, **fields))), tokenizer)


def tuned_model(tokenizer: Tokenizer, kind: str, **spec) -> Model:
    """With the head of a task."""
    torch.manual_seed(1)
    names = ({"choice": "choice", "span": "span"}.get(kind, "classify"),)
    heads = HeadsConfig(names=names, labels=LABELS.get(kind, ("0", "1")))
    labels = LABELS[kind] if kind in ("classify", "multilabel") else ()
    task = TaskSpec(task="toy", kind=kind, labels=labels, **{"length": 24, "stride": 8, **spec})
    return Model(scrambled(Network(NetworkConfig(encoder=toy_config(), heads=heads))), tokenizer, task=task)


def scrambled(network: Network) -> Network:
    """The network with weights large enough that every input has an answer of its own."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(std=0.2)
    return network.eval()
