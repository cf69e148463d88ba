"""How the results of pretraining, fine-tuning, distilling, corpora and tokenizers are printed."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from litebert.api import Run
    from litebert.corpus.store import Store
    from litebert.text.tokenizer import Tokenizer

RESUME = "run the same command with --resume to continue"


def show_finetune(run: "Run") -> None:
    """How a fine-tuning run ended."""
    from litebert.tasks.finetune import SeedsResult

    if isinstance(run.details, SeedsResult):
        typer.echo(run.details.describe())
        typer.echo(f"the best model is in {run.folder / 'model'}")
        return
    figures = ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in run.scores.items())
    best = f"; dev at step {run.details.best_step:,}: {figures}" if figures else ""
    typer.echo(f"{run.status} after {run.steps:,} steps{best}")
    for attempt in run.details.attempts:
        typer.echo(f"an attempt with seed {attempt['seed']} and learning rate {attempt['rate']:g} {attempt['verdict']}")
    if run.status == "stopped":
        typer.echo(RESUME)
    if run.scores:
        typer.echo(f"the model is in {run.folder / 'model'}")


def show_pretrain(run: "Run") -> None:
    """How a pretraining run ended, and the held-out scores at every depth that was scored."""
    from litebert.train.console import in_words

    if os.environ.get("RANK", "0") != "0":
        return  # under torchrun the first rank prints for all
    typer.echo(f"{run.status} after {run.steps:,} steps")
    whole = {name: value for name, value in run.scores.items() if not name.startswith("depth")}
    typer.echo(f"held out: {in_words(whole) or 'nothing'}")
    for depth, figures in _by_depth(run.scores).items():
        typer.echo(f"  at depth {depth}: {in_words(figures)}")
    if not run.folder.is_dir():  # a dry run leaves nothing
        return
    if run.status == "stopped":
        typer.echo(RESUME)
    typer.echo(f"the model is in {run.folder / 'model'}")


def _by_depth(figures: Mapping[str, float]) -> dict[int, dict[str, float]]:
    """Figures of other depths, such as ``depth_3_mlm_loss``, by depth."""
    found: dict[int, dict[str, float]] = {}
    for name, value in figures.items():
        prefix, _, rest = name.partition("_")
        depth, _, part = rest.partition("_")
        if prefix == "depth" and part:
            found.setdefault(int(depth), {})[part] = value
    return found


def show_distill(run: "Run") -> None:
    """How a distillation ended and how close the student is to its teacher."""
    typer.echo(f"{run.status} after {run.steps:,} steps")
    if run.details is None:
        typer.echo(RESUME)
        return
    for sentence in run.details.sentences():
        typer.echo(sentence)
    typer.echo(f"the student is in {run.folder / 'model'}")


def show_store(store: "Store") -> None:
    """The counts of a finished store."""
    from litebert.corpus.build_report import summary

    typer.echo(summary(store))


def show_tokenizer(tokenizer: "Tokenizer") -> None:
    """What a new vocabulary is."""
    typer.echo(f"{tokenizer.vocab_size:,} pieces, fingerprint {tokenizer.fingerprint[:12]}")
