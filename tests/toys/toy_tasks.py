"""Small tasks that a small new model learns in seconds, and that model, for tests of fine-tuning."""

import random
from pathlib import Path

import torch

from litebert.checkpoints.folder import save_model
from litebert.config import build
from litebert.nn.config import family_config
from litebert.nn.network import HeadsConfig, Network, NetworkConfig
from litebert.tasks.examples import Answer, Choice, Example, Question, TaskData
from litebert.tasks.finetune import FinetuneSettings
from litebert.tasks.recipes import FinetuneRecipe
from litebert.text.tokenizer_files import read_tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
NOUNS = ["cat", "dog", "horse", "bird", "fish", "cow", "fox", "hen"]
FILLER = ["the", "a", "of", "was", "in", "and", "it", "then", "there", "so"]
WORDS = [*NOUNS, *FILLER, "good", "bad", "where", "who", "key", "is", "not"]
METRICS = {
    "classify": ("accuracy",),
    "multilabel": ("micro_f1",),
    "regress": ("pearson",),
    "choice": ("accuracy",),
    "span": ("f1", "exact_match"),
    "embed": ("mrr", "recall_at_1", "recall_at_10"),
}


def make_model(folder: Path, family: str = "bert", layers: int = 2, dropout: float = 0.0, positions: int = 64) -> Path:
    """A new model of a few thousand weights, with a tokenizer of whole words."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(SPECIAL + WORDS) + "\n")
    tokenizer = read_tokenizer(folder, "bert")
    width = 32
    config = family_config(
        {
            "family": family,
            "vocab_size": tokenizer.vocab_size,
            "width": width,
            "embedding_width": 16 if family == "albert" else width,
            "num_layers": layers,
            "num_heads": 4,
            "feed_forward_width": 64,
            "max_positions": positions,
            "dropout": dropout,
            "attention_dropout": dropout,
        }
    )
    torch.manual_seed(1)
    network = Network(NetworkConfig(encoder=config, heads=HeadsConfig()))
    save_model(folder / "model", network, tokenizer, verb="test")
    return folder / "model"


def items(kind: str, count: int, seed: int) -> tuple:
    draw = random.Random(seed)
    return tuple(_item(kind, number, draw) for number in range(count))


def _item(kind: str, number: int, draw: random.Random):
    key, words = str(number), [draw.choice(FILLER) for _ in range(draw.randint(3, 9))]
    noun = draw.choice(NOUNS)
    if kind == "classify":
        label = draw.randint(0, 1)
        words.insert(draw.randrange(len(words)), ("bad", "good")[label])
        return Example(key=key, first=" ".join(words), target=label)
    if kind == "multilabel":
        labels = tuple(label for label in range(3) if draw.random() < 0.5)
        return Example(key=key, first=" ".join([*words, *(NOUNS[label] for label in labels)]), target=labels)
    if kind == "regress":
        times = draw.randint(0, 4)
        return Example(key=key, first=" ".join([*words, *["good"] * times]), target=float(times))
    if kind == "choice":
        options = draw.sample(["good", "bad", "key"], 3)
        return Choice(
            key=key, passage=" ".join(words), question="who", options=tuple(options), target=options.index("good")
        )
    if kind == "embed":  # both have the same two nouns in them
        nouns = draw.sample(NOUNS, 2)
        other = [draw.choice(FILLER) for _ in range(draw.randint(2, 6))]
        return Example(key=key, first=" ".join([*words, *nouns]), second=" ".join([*nouns, *other]), target=1)
    passage = " ".join([*words, "key", noun, *(draw.choice(FILLER) for _ in range(3))])
    impossible = kind == "span2" and draw.random() < 0.4
    if impossible:
        passage = passage.replace("key ", "not ")
    answers = () if impossible else (Answer(text=noun, start=passage.index(noun)),)
    return Question(key=key, title="t", passage=passage, question="where is it", answers=answers, impossible=impossible)


def task(kind: str, count: int = 256, **changes) -> TaskData:
    plain = "span" if kind == "span2" else kind
    labels = {"classify": ("bad", "good"), "multilabel": ("cat", "dog", "horse")}.get(plain, ())
    fields = {
        "name": f"toy-{kind}",
        "kind": plain,
        "labels": labels,
        "metrics": METRICS[plain],
        "train": items(kind, count, 1),
        "dev": {"dev": items(kind, 64, 2)},
        "has_null": kind == "span2",
    }
    return TaskData(**{**fields, **changes})


def settings(
    model: Path, out: Path, *, seed: int = 0, resume: bool = False, save_steps=None, watched=False, **recipe
) -> FinetuneSettings:
    chosen = {"rate": 3e-3, "batch": 32, "epochs": 8, "length": 32, "warmup": 0.1, "scores": 4, **recipe}
    return FinetuneSettings(
        model=str(model),
        out=out,
        recipe=build(FinetuneRecipe, chosen),
        seed=seed,
        resume=resume,
        save_steps=save_steps,
        save_seconds=1e9,
        watched=watched,
    )
