"""Made-up documents to build stores of, and how to look at what was built."""

import random
from pathlib import Path

from litebert.corpus.build import BuildSettings

WORDS = ("the", "cat", "sat", "on", "a", "mat", "and", "dog", "ran", "to", "see", "big", "red", "house", "by", "river")
SMALL = BuildSettings(shard_tokens=2000, held_out=0.1)


def document(number: int) -> str:
    """Paragraphs of made-up sentences; every number gives another text."""
    draw = random.Random(number)
    lines = []
    for _ in range(draw.randint(1, 4)):
        sentences = [" ".join(draw.choices(WORDS, k=draw.randint(2, 12))) for _ in range(draw.randint(1, 5))]
        lines.append(" ".join(sentence.capitalize() + "." for sentence in sentences))
    return f"Number {number}.\n" + "\n".join(lines)


def write_tokenizer(folder: Path) -> None:
    """A wordpiece vocabulary that knows a few words and every letter."""
    folder.mkdir(exist_ok=True)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    pieces = [*special, *WORDS, *".!?", *letters, *("##" + letter for letter in letters)]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(pieces)) + "\n")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a store."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
