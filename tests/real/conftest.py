"""Seven reactions, each token masked in turn: how many of 315 tokens a chemical model puts back."""

from pathlib import Path

import pytest
import torch
from reactions import REACTIONS

from litebert.checkpoints.folder import load_model
from litebert.nn.layout import Layout
from litebert.text.tokenizer_files import SMILES, pattern_tokenizer


@pytest.fixture(scope="session")
def masked_right():
    """Count the masked tokens that the model in a folder predicts right at a depth, and all that were masked."""

    def count(folder: Path, depth: int) -> tuple[int, int]:
        network, words = load_model(folder).network, pattern_tokenizer(folder / "vocab.txt", SMILES)
        right = total = 0
        for reaction in REACTIONS:
            ids = torch.tensor(words.encode(reaction).ids)
            gaps = torch.arange(1, len(ids) - 1)  # all but [CLS] and [SEP], one in each row
            rows = ids.repeat(len(gaps), 1)
            rows[torch.arange(len(gaps)), gaps] = words.mask_id
            with torch.no_grad():
                states = network.encoder(rows.flatten(), Layout.of([len(ids)] * len(gaps)), depth=depth)
                guesses = network.masked_lm(states, torch.arange(len(gaps)) * len(ids) + gaps).argmax(-1)
            right += int((guesses == ids[gaps]).sum())
            total += len(gaps)
        return right, total

    return count
