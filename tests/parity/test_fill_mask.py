"""Filling gaps and judging the order of texts next to ``transformers``, on one small model that both load."""

import pytest
import torch
import transformers

import litebert
from litebert.checkpoints.folder import save_model
from litebert.nn.config import family_config
from litebert.nn.network import pretraining_network
from litebert.text.tokenizer_files import read_tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, "the", "cat", "sat", "on", "a", "mat", "and", "dog", "ran", "far"]
WORDS += ["away", "walk", "##ed", "##ing", ".", ","]
TEXTS = ["the cat [MASK] on a mat .", "[MASK]", "a dog [MASK] far away , and a cat [MASK] the mat", "walk [MASK]"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small ALBERT with all weights drawn large enough to matter, and a vocabulary of words and pieces."""
    place = tmp_path_factory.mktemp("fill")
    (place / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    tokenizer = read_tokenizer(place, "albert")
    sizes = {"vocab_size": len(WORDS), "width": 32, "embedding_width": 16, "num_layers": 4, "num_heads": 4}
    torch.manual_seed(0)
    network = pretraining_network(family_config({**sizes, "feed_forward_width": 64, "max_positions": 32}))
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:  # norms as they are, or every text would look the same
                parameter.normal_(std=0.3)
    save_model(place / "model", network, tokenizer, verb="test")
    return place / "model"


def test_guesses_are_those_of_fill_mask(folder):
    theirs = transformers.pipeline("fill-mask", model=str(folder), top_k=4)
    for text, ours in zip(TEXTS, litebert.load(folder, device="cpu").fill(TEXTS, 4), strict=True):
        said = theirs(text)
        said = said if len(ours) > 1 else [said]
        assert [[guess.id for guess in guesses] for guesses in ours] == [
            [row["token"] for row in rows] for rows in said
        ]
        ours_shares = torch.tensor([[guess.probability for guess in guesses] for guesses in ours])
        their_shares = torch.tensor([[row["score"] for row in rows] for rows in said])
        torch.testing.assert_close(ours_shares, their_shares, atol=1e-5, rtol=1e-4)
        assert [[g.token for g in guesses] for guesses in ours] == [[r["token_str"] for r in rows] for rows in said]


@torch.no_grad()
def test_order_is_the_mean_of_what_their_head_says_of_both_orders(folder):
    model = transformers.AlbertForPreTraining.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    pair = ("the cat sat on a mat .", "a dog ran away")

    def said(first, second):
        return model(**tokenizer(first, second, return_tensors="pt")).sop_logits.softmax(-1)[0, 0].item()

    expected = (said(*pair) + 1 - said(*pair[::-1])) / 2
    ours, other = litebert.load(folder, device="cpu").order([pair, pair[::-1]])
    assert ours == pytest.approx(expected, abs=1e-5) and ours + other == pytest.approx(1)
    assert abs(ours - 0.5) > 0.01  # or nothing was compared
