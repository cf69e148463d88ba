"""What unit tests of several rooms share: the command line in this process, and a tokenizer of letters."""

import sys
from string import ascii_lowercase

import pytest

from litebert.cli import main
from litebert.text.tokenizers import pattern_tokenizer

SPECIAL = {
    "xlnet": ["<pad>", "<unk>", "<cls>", "<sep>", "<mask>"],
    "roberta": ["<pad>", "<unk>", "<s>", "</s>", "<mask>"],
}


@pytest.fixture
def litebert(monkeypatch, capsys):
    """Run the command line in this process: exit code, standard output, standard error."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["litebert", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture
def letter_tokenizer(tmp_path):
    """A tokenizer to which every letter is a token."""

    def make(family: str = "bert", letters: str = ascii_lowercase):
        words = [*SPECIAL.get(family, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]), *letters]
        (tmp_path / "vocab.txt").write_text("\n".join(words))
        return pattern_tokenizer(tmp_path / "vocab.txt", r".", family)

    return make
