"""The figures of docs/recipe.md. How alike the states of different tokens are by depth, before any training:

    python examples/recipe_figures.py STORE -o docs/figures

The loss curve there is the ``loss.png`` that every run leaves in its folder.
"""

import argparse
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F

from litebert.corpus.batch_settings import BatchSettings
from litebert.corpus.batches import Batches
from litebert.corpus.rows import Batch
from litebert.corpus.store import Store
from litebert.nn.families import preset_config
from litebert.nn.layout import Layout
from litebert.nn.network import Network, pretraining_network
from litebert.pretrain.initial import set_initial_values
from litebert.pretrain.recipe import read_recipe

LENGTH = 128
LINES = {
    "albert-base, plain start": ("albert-base", "paper", "#c44e52"),
    "bert-base, plain start": ("bert-base", "paper", "#8c8c8c"),
    "albert-base, the recipe's start": ("albert-base", "budget", "#1f5fa8"),
}


def network_of(preset: str, recipe: str, store: Store) -> Network:
    """A fresh network with a recipe's initial values."""
    torch.manual_seed(0)
    network = pretraining_network(preset_config(preset, (f"vocab_size={store.vocab_size}",)))
    set_initial_values(network, read_recipe(recipe), store)
    return network.eval()


@torch.no_grad()
def similarities(network: Network, batch: Batch) -> list[float]:
    """The mean cosine between the states of two tokens of one text, for every depth."""
    ends = [int(start) for start in batch.starts[: batch.num_sequences + 1]]
    layout = Layout(torch.from_numpy(batch.starts), torch.from_numpy(batch.positions).long(), LENGTH)
    ids, segments = torch.from_numpy(batch.ids).long(), torch.from_numpy(batch.segments).long()
    found = []
    for states in network.encoder.states(ids, layout, segments):
        unit = F.normalize(states, dim=-1)
        rows = []
        for begin, end in pairwise(ends):
            if end - begin > 1:
                row = unit[begin:end] @ unit[begin:end].T
                rows.append((float(row.sum()) - (end - begin)) / ((end - begin) * (end - begin - 1)))
        found.append(sum(rows) / len(rows))
    return found


def main() -> None:
    """Draw."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("store", type=Path)
    words.add_argument("-o", "--out", type=Path, default=Path("docs/figures"))
    asked = words.parse_args()
    store = Store.open(asked.store)
    batch = Batches(store, "held_out", BatchSettings(length=LENGTH, budget=4096, masking="plain")).batch(0, 0)
    figure, axes = plt.subplots(figsize=(7, 4))
    for label, (preset, recipe, colour) in LINES.items():
        found = similarities(network_of(preset, recipe, store), batch)
        print(f"{label:32s}", " ".join(f"{value:.2f}" for value in found))
        axes.plot(found, marker="o", markersize=3, color=colour, label=label)
    axes.set(xlabel="layers passed", ylabel="mean cosine between two tokens", ylim=(0, 1))
    axes.set_title("Before any training: one block, applied again and again, makes tokens alike", fontsize=10)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    figure.tight_layout()
    asked.out.mkdir(parents=True, exist_ok=True)
    figure.savefig(asked.out / "recipe_start.png", dpi=110)


if __name__ == "__main__":
    main()
