"""The files that README and docs name, small: text, a token store, models of a few thousand weights, tables, benchmark
tasks; and the same commands and blocks, made small."""

import json
import lzma
import random
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas
import pytest
from toy_stories import document

from litebert.cli import app

ROOT = Path(__file__).parents[2]
SHAPE = ("num_layers=12", "width=32", "num_heads=2", "feed_forward_width=64", "embedding_width=16")
QUEUES = ("billing", "delivery", "returns")


@pytest.fixture(scope="session")
def small_world(tmp_path_factory) -> Path:
    """A folder with everything that a page may name."""
    folder, draw = tmp_path_factory.mktemp("world"), random.Random(0)
    documents = [" ".join(document(draw) for _ in range(10)) for _ in range(80)]
    for name in ("corpus/one.txt", "corpus/two.txt", "text.txt", "en.txt", "ja.txt", "dev.txt", "texts.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("\n\n".join(documents[:8] if name in ("dev.txt", "texts.txt") else documents))
    (folder / "texts.txt").write_text("The [MASK] sat in the [MASK] .\n")
    for name in ("corpus/en-1.txt.xz", "data/en-1.txt.xz", "data/ja-1.txt.xz", "ko-wiki.txt.xz"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(lzma.compress("\n\n".join(documents[:40]).encode()))
    tables(folder, draw)
    glue(folder / "glue", draw)
    squad(folder / "squad")
    run(folder, "tokenizer", "train", "text.txt", "--vocab-size", "80", "-o", "words")
    run(folder, "corpus", "build", "text.txt", "--tokenizer", "words", "--held-out", "20%", "-o", "store",
        "--workers", "1")  # fmt: skip
    small = ("--steps", "2", "batches.tokens=1024", "batches.lengths=64", "max_positions=128")
    run(folder, "pretrain", "albert-tiny", *SHAPE, *small, "--corpus", "store", "-o", "run")
    run(folder, "finetune", "run", "--data", "tickets.csv", "--text", "body", "--label", "queue", "-o", "tuned",
        "steps=2", "scores=1")  # fmt: skip
    run(folder, "finetune", "run", "--data", "glue", "--task", "sst2", "-o", "teacher", "steps=2", "scores=1")
    for name, target in {
        "litebert-en": "run/model",
        "litebert-en-2": "run/model",
        "litebert-en-embed": "run/model",
        "MODEL": "run/model",
        "path/to/folder": "run/model",
        "owner/name": "run/model",
        "RUN": "run",
        "STORE": "store",
        "TUNED": "tuned/model",
        "TEACHER": "teacher",
        "GLUE": "glue",
        "my-tokenizer": "words",
        "runs/first": "run",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to((folder / target).absolute())
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


def run(folder: Path, *words: str) -> None:
    """Run a command in a folder; it must end well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["litebert", *words])
        with pytest.raises(SystemExit) as ended:
            app()
        assert not ended.value.code, words


def tables(folder: Path, draw: random.Random) -> None:
    """Tickets, with labels and without."""
    rows = []
    for number in range(90):
        queue = QUEUES[number % 3]
        rows.append((f"the {queue} {number}", f"{document(draw)} {queue} .", queue))
    frame = pandas.DataFrame(rows, columns=["subject", "body", "queue"])
    frame["language"] = "en"
    for name in ("tickets.csv", "test.csv"):
        frame.to_csv(folder / name, index=False)
    for name in ("new.csv", "new_tickets.csv"):
        frame[["subject", "body"]][:5].to_csv(folder / name, index=False)


def glue(folder: Path, draw: random.Random) -> None:
    """Three tasks in GLUE's own files."""
    heads = {
        "SST-2": ("sentence\tlabel", lambda n, a, b: f"{a}\t{n % 2}"),
        "RTE": (
            "index\tsentence1\tsentence2\tlabel",
            lambda n, a, b: f"{n}\t{a}\t{b}\t{('not_', '')[n % 2]}entailment",
        ),
        "MRPC": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", lambda n, a, b: f"{n % 2}\t{n}\t{n}\t{a}\t{b}"),
    }
    for task, (head, line) in heads.items():
        (folder / task).mkdir(parents=True)
        for split, count in (("train", 60), ("dev", 20)):
            lines = [line(number, document(draw), f"{number} {document(draw)}") for number in range(count)]
            (folder / task / f"{split}.tsv").write_text("\n".join([head, *lines]) + "\n")


def squad(folder: Path) -> None:
    """One question with an answer, one without, and predictions for both."""
    folder.mkdir()
    context = "The cat sat on the mat."
    answered = {"id": "a", "question": "Who sat?", "answers": [{"text": "cat", "answer_start": 4}]}
    other = {"id": "b", "question": "Who ran?", "answers": [], "is_impossible": True}
    paragraphs = [{"context": context, "qas": [answered | {"is_impossible": False}, other]}]
    content = {"version": "v2.0", "data": [{"title": "t", "paragraphs": paragraphs}]}
    for split in ("train", "dev"):
        (folder / f"{split}-v2.0.json").write_text(json.dumps(content))
    (folder.parent / "answers.json").write_text(json.dumps({"a": "cat", "b": ""}))


def smaller_block(text: str) -> str:
    """A Python block that does the same in seconds on a CPU."""
    text = text.replace('"cuda"', '"cpu"').replace("examples/tickets/tickets.csv", "tickets.csv")
    text = text.replace("65_536", "1024").replace("length=512", "length=64").replace("(3, 1000", "(3, 1")
    text = re.sub(r'(finetune\(.*?)budget="\w+"', r'\1settings={"steps": 2, "scores": 1}', text)
    text = re.sub(r"(finetune\(.*?)epochs=\d+", r'\1settings={"steps": 2, "scores": 1}', text)
    text = text.replace("to=4096", "to=256")
    text = re.sub(r'(lengthen\(.*?)budget="\w+"', r'\1steps=2, settings={"batches.tokens": 512}', text)
    return re.sub(r'(pretrain\(.*?)budget="\w+"', r'\1steps=2, settings={"batches.tokens": 1024}', text)


def smaller_command(words: list[str]) -> list[str]:
    """A command that does the same in seconds on a CPU."""
    program, command, rest = words[0], words[1], list(words[2:])
    if command in ("finetune", "distill", "shrink", "compare", "exits"):
        rest = without(rest, "--budget", "--epochs", "--precision", "--device", "epochs=", "steps=", "max_steps=")
        if command in ("finetune", "distill", "compare") or "--tolerance" in rest:
            rest = [*without(rest, "--seeds", "scores="), "steps=2", "scores=1"]
            rest += ["--seeds", "1"] if "--seeds" in words or command == "compare" else []
        if command == "shrink" and "--tolerance" in rest:
            rest = [*rest, "--strategy", "top", "--seeds", "1"]
    if command == "lengthen":
        rest = [*without(rest, "--to", "--attention", "--budget"), "--to", "256", "--attention", "local(32)+global"]
        rest += ["--steps", "2", "batches.tokens=512"] if "--corpus" in rest else []
    if command == "leaks":
        rest = [*without(rest, "--length"), "--length", "32"]
    if command == "plan":
        rest = [re.sub(r"^(albert|bert)-\w+$", "albert-tiny", word) for word in rest]
    if command in ("pretrain", "study"):
        rest = without(rest, "--budget", "--flops", "--tokens", "--steps", "--device", "batches.")
        rest = [*rest, "--steps", "2", "batches.tokens=1024", "batches.lengths=64"]
    if command == "pretrain":
        preset = (
            rest[0] if rest[0].startswith("xlnet") else "albert-tiny"
        )  # XLNet's embeddings are as wide as its layers
        given = {word.partition("=")[0] for word in rest} | ({"embedding_width"} if preset != "albert-tiny" else set())
        shape = [field for field in (*SHAPE, "max_positions=128") if field.partition("=")[0] not in given]
        rest = [preset, *rest[1:], *shape]
    if command == "study":
        rest = [*rest, "width=32", "num_heads=2", "embedding_width=16", "num_layers=4", "max_positions=128"]
    if (command, *rest[:1]) in (("tokenizer", "train"), ("corpus", "build")):
        rest = without(rest, "--vocab-size", "--sample-megabytes", "--shard-tokens")
        rest += ["--vocab-size", "60"] if command == "tokenizer" else ["--workers", "1"]
    return [program, command, *rest]


def without(words: list[str], *names: str) -> list[str]:
    """The words without these options and their values, and without these fields."""
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in names:
            skip = True
        elif not any(word.startswith(name) for name in names if not name.startswith("--")):
            kept.append(word)
    return kept


@pytest.fixture
def smaller() -> SimpleNamespace:
    """What makes blocks and commands small."""
    return SimpleNamespace(block=smaller_block, command=smaller_command)


@pytest.fixture
def names(small_world) -> dict[str, object]:
    """The names that a page takes for granted."""
    frame = pandas.read_csv(small_world / "tickets.csv")
    texts = list(frame["body"][:4])
    return {
        "frame": frame,
        "texts": texts,
        **dict.fromkeys(("questions", "answers", "premises", "hypotheses"), texts),
        "pairs": [(texts[0], texts[1])],
    }
