"""A small token store of made-up but learnable text, for runs that take seconds."""

import random
from pathlib import Path

import pytest

from litebert.corpus.build import BuildSettings, build_store

ANIMALS = ["cat", "dog", "horse", "bird", "fish", "cow"]
PLACES = {"cat": "mat", "dog": "yard", "horse": "field", "bird": "tree", "fish": "lake", "cow": "barn"}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def document(draw: random.Random) -> str:
    """A story in a fixed order about one animal: its place follows from it, and the order of sentences is plain."""
    animal = draw.choice(ANIMALS)
    place = PLACES[animal]
    return " ".join(
        [
            f"First the {animal} woke up .",
            f"Second the {animal} went to the {place} .",
            f"Third it sat in the {place} all day .",
            f"Last the {animal} went home .",
        ]
    )


def build_stories(folder: Path, words: Path | None = None, *, seed: int = 0) -> Path:
    """A store of about 40,000 tokens, a tenth held out, with the tokenizer ``words`` or a new one."""
    folder.mkdir(exist_ok=True)
    draw = random.Random(seed)
    documents = [" ".join(document(draw) for _ in range(10)) for _ in range(160)]  # long: pairs are in the middle
    if words is None:
        words = folder / "words"
        words.mkdir()
        known = sorted({word.lower() for text in documents for word in text.split()})
        (words / "vocab.txt").write_text("\n".join(SPECIAL + known) + "\n")
    (folder / "text.txt").write_text("\n\n".join(documents))
    settings = BuildSettings(held_out=0.1, deduplicate=False)
    build_store([str(folder / "text.txt")], words, folder / "store", settings, workers=1)
    return folder / "store"


@pytest.fixture(scope="session")
def store(tmp_path_factory) -> Path:
    """A store for all tests of a session."""
    return build_stories(tmp_path_factory.mktemp("corpus"))
