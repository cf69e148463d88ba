"""The figures of docs/recipe.md: how alike the states of different tokens are by depth, before any training; runs of
several seeds; and what the recipe loses without each of its ingredients.

    python examples/recipe_figures.py --store STORE --runs RUN RUN RUN --study STUDY -o docs/figures

RUN is the folder of a ``litebert pretrain``, STUDY that of a ``litebert-lab study recipe``. What is missing is not drawn.
"""

import argparse
import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure

from litebert.corpus.batch_settings import BatchSettings
from litebert.corpus.batches import Batches
from litebert.corpus.rows import Batch
from litebert.corpus.store import Store
from litebert.nn.families import preset_config
from litebert.nn.layout import Layout
from litebert.nn.network import Network, pretraining_network
from litebert.pretrain.initial import set_initial_values
from litebert.pretrain.recipe import read_recipe
from litebert.runs import read_run

LENGTH = 128
LINES = {
    "albert-base, plain start": ("albert-base", "paper", "#c44e52"),
    "bert-base, plain start": ("bert-base", "paper", "#8c8c8c"),
    "albert-base, the recipe's start": ("albert-base", "budget", "#1f5fa8"),
}
PLAIN = {"BERT-base": 0.449, "ALBERT-base": 0.048}  # Hugging Face, 5.5 minutes of the same GPU: README


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


def draw_start(store: Store, out: Path) -> None:
    """Similarities of a plain start, a BERT's and the recipe's."""
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
    _save(figure, out)


def draw_runs(runs: Sequence[Path], out: Path) -> None:
    """Masked words and pairs in order that runs have right on held-out text."""
    figure, (words, order) = plt.subplots(1, 2, figsize=(10, 4))
    for run, colour in zip(runs, ("#1f5fa8", "#55a868", "#c44e52", "#8c8c8c"), strict=False):
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        held = [row for row in rows if row.get("split") == "held_out"]
        for axes, part in ((words, "mlm"), (order, "order")):
            right = [100 * row[f"{part}_accuracy"] for row in held]
            label = f"seed {read_run(run).settings['seed']}: {right[-1]:.1f}%"
            seen = [row["tokens"] / 1e6 for row in held]
            axes.plot(seen, right, marker="o", markersize=3, color=colour, label=label)
            print(run.name, part, label)
    for name, share in PLAIN.items():
        words.axhline(100 * share, color="#8c8c8c", linestyle="--", linewidth=1)
        words.annotate(f"{name}, plain code: {share:.1%}", (0.99, 100 * share + 1), xycoords=("axes fraction", "data"),
                       ha="right", fontsize=8, color="#555555")  # fmt: skip
    order.axhline(50, color="#8c8c8c", linestyle="--", linewidth=1)
    order.annotate("chance", (0.99, 50.2), xycoords=("axes fraction", "data"), ha="right", fontsize=8, color="#555555")
    words.set(ylabel="masked words right (%)", ylim=(0, 60))
    order.set(ylabel="sentence order right (%)", ylim=(45, 65))
    for axes in (words, order):
        axes.set(xlabel="million tokens seen", xlim=0)
        axes.grid(alpha=0.25)
    words.legend(frameon=False, loc="center right")
    order.legend(frameon=False, loc="upper left")
    figure.suptitle("Runs of the recipe on held-out text, five minutes of an H200 each", fontsize=10)
    _save(figure, out)


def draw_study(study: Path, out: Path) -> None:
    """The loss of the whole recipe and without each ingredient."""
    found = json.loads((study / "study.json").read_text())
    rows = sorted(found["rows"], key=lambda row: row["figures"]["mlm_loss"]["value"], reverse=True)
    losses = [row["figures"]["mlm_loss"]["value"] for row in rows]
    figure, axes = plt.subplots(figsize=(7, 4))
    bars = axes.barh([row["label"] for row in rows], losses, color="#8fb3d9")
    bars[[row["name"] for row in rows].index("whole")].set_color("#1f5fa8")
    axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
    axes.axvline(found["unigram_loss"], color="#c44e52", linestyle="--", linewidth=1)
    axes.annotate("word frequencies", (found["unigram_loss"] - 0.05, 0.6), rotation=90, fontsize=8, ha="right",
                  color="#c44e52")  # fmt: skip
    axes.set_title("The recipe without each of its ingredients", fontsize=10)
    axes.set(xlabel="held-out loss of masked words (nats)", xlim=(0, 1.12 * found["unigram_loss"]))
    _save(figure, out)


def _save(figure: Figure, out: Path) -> None:
    figure.tight_layout()
    figure.savefig(out, dpi=110)


def main() -> None:
    """Draw what is asked for."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--store", type=Path)
    words.add_argument("--runs", type=Path, nargs="+", default=[])
    words.add_argument("--study", type=Path)
    words.add_argument("-o", "--out", type=Path, default=Path("docs/figures"))
    asked = words.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.store:
        draw_start(Store.open(asked.store), asked.out / "recipe_start.png")
    if asked.runs:
        draw_runs(asked.runs, asked.out / "recipe_seeds.png")
    if asked.study:
        draw_study(asked.study, asked.out / "recipe_study.png")


if __name__ == "__main__":
    main()
