"""Real layers, dropped and looked at: the tables of docs/shrink.md and docs/layers.md, and ALBERT's figure 1.

Run it after ``make weights``: ``.venv/bin/python examples/layers_of_real_models.py OUT``. Takes a minute or two.
"""

import subprocess
import sys
from pathlib import Path

import torch

from litebert.checkpoints.folder import load_model
from litebert.nn.layout import Layout
from litebert.nn.network import Network
from litebert.shrinking.choose import DropRequest, choose
from litebert.shrinking.drop import drop_layers
from litebert.shrinking.strategies import STRATEGIES
from litebert.text.tokenizer import Tokenizer
from litebert.text.tokenizer_files import SMILES, pattern_tokenizer

WEIGHTS = Path(__file__).parents[1] / ".weights"
BERT = WEIGHTS / "rxnfp/models/transformers/bert_pretrained"
FINE_TUNED = WEIGHTS / "rxnfp/models/transformers/bert_ft_10k_25s"
ALBERT = WEIGHTS / "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k"
REACTIONS = Path(__file__).with_name("reactions.txt")


@torch.no_grad()
def masked_right(network: Network, words: Tokenizer) -> int:
    """How many tokens the network puts back when each is masked in turn."""
    right = 0
    for reaction in REACTIONS.read_text(encoding="utf-8").split():
        ids = torch.tensor(words.encode(reaction).ids)
        gaps = torch.arange(1, len(ids) - 1)  # all but [CLS] and [SEP], one in each row
        rows = ids.repeat(len(gaps), 1)
        rows[torch.arange(len(gaps)), gaps] = words.mask_id
        states = network.encoder(rows.flatten(), Layout.of([len(ids)] * len(gaps)))
        guesses = network.masked_lm(states, torch.arange(len(gaps)) * len(ids) + gaps).argmax(-1)
        right += int((guesses == ids[gaps]).sum())
    return right


def main(out: Path) -> None:
    """Print the table of strategies, then draw what the layers do."""
    out.mkdir(parents=True, exist_ok=True)
    words = pattern_tokenizer(BERT / "vocab.txt", SMILES)
    words.save(out / "words")
    loaded = load_model(BERT)
    print("masked tokens put back, of 315, by a 12-layer BERT\ndropped" + "".join(f"{name:>14}" for name in STRATEGIES))
    for count in (2, 4, 6):
        cells = []
        for strategy in STRATEGIES:
            request = DropRequest(drop=count, strategy=strategy, text=(str(REACTIONS),), tokenizer=out / "words")
            choice = choose(request, loaded.network.config.encoder, lambda: loaded)
            cells.append(f"{masked_right(drop_layers(loaded.network, choice.kept), words):14}")
        print(f"{count:7}" + "".join(cells), flush=True)
    litebert = [sys.executable, "-m", "litebert", "layers", "--text", REACTIONS, "--tokenizer", out / "words"]
    figure = ["--html", out / "figure-1.html", "--png", out / "figure-1.png"]
    subprocess.run([*litebert, BERT, ALBERT, "--untrained", *figure], check=True)
    subprocess.run([*litebert, FINE_TUNED, "--against", BERT, "--html", out / "fine-tuned.html"], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "layers-out"))
