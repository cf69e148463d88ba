"""A tokenizer of letters, for tests of several rooms: a conftest imports it."""

from string import ascii_lowercase

import pytest

from litebert.text.tokenizer_files import pattern_tokenizer

SPECIAL = {
    "xlnet": ["<pad>", "<unk>", "<cls>", "<sep>", "<mask>"],
    "roberta": ["<pad>", "<unk>", "<s>", "</s>", "<mask>"],
}


@pytest.fixture
def letter_tokenizer(tmp_path):
    """A tokenizer to which every letter is a token."""

    def make(family: str = "bert", letters: str = ascii_lowercase):
        words = [*SPECIAL.get(family, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]), *letters]
        (tmp_path / "vocab.txt").write_text("\n".join(words))
        return pattern_tokenizer(tmp_path / "vocab.txt", r".", family)

    return make
