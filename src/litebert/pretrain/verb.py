"""``litebert pretrain`` and ``litebert evaluate MODEL --corpus STORE``; what they need, they import when they run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.errors import InputError

if TYPE_CHECKING:
    from litebert.train.trainer import TrainResult


def pretrain(
    preset: Annotated[str, typer.Argument(help="A model preset, such as albert-small.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="FIELD=VALUE...", help="Fields of the model or of the recipe.")
    ] = None,
    corpus: Annotated[Path, typer.Option(help="A token store made by `litebert corpus build`.")] = Path("store"),
    out: Annotated[Path, typer.Option("--out", "-o", help="The run folder to make.")] = Path("run"),
    recipe: Annotated[str, typer.Option(help="budget or paper.")] = "budget",
    budget: Annotated[str | None, typer.Option(help="Wall-clock time to train for: 20m, 2h.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps to train for.")] = None,
    tokens: Annotated[float | None, typer.Option(help="Tokens to train for, such as 1e8.")] = None,
    flops: Annotated[
        float | None, typer.Option(help="Arithmetic to train for, such as 1e16: minutes of an ideal machine.")
    ] = None,
    start: Annotated[
        str | None, typer.Option("--from", help="A model folder to start from, perhaps shallower.")
    ] = None,
    seed: Annotated[int, typer.Option(help="For weights, batches and masks.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Two steps of everything, in a folder that is removed.")
    ] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda; by default cuda where there is one.")] = "",
    precision: Annotated[str | None, typer.Option(help="bf16, fp16 or fp32.")] = None,
    compiled: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="torch.compile; on a GPU by default.")
    ] = None,
    checkpointing: Annotated[bool, typer.Option("--checkpointing", help="Less memory, a third more time.")] = False,
    sharded: Annotated[bool, typer.Option("--sharded", help="FSDP2 instead of DDP, under torchrun.")] = False,
    micro_tokens: Annotated[int, typer.Option(help="Tokens of one forward pass; 0: what suits the device.")] = 0,
    save_every: Annotated[str, typer.Option(help="How often the state is saved: 5m, or a number of steps.")] = "5m",
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard files, too.")] = False,
    log_to: Annotated[list[str] | None, typer.Option(help="wandb or mlflow.")] = None,
) -> None:
    """Pretrain an encoder on a token store, to a budget of time, steps, tokens or arithmetic."""
    import time

    begun = time.monotonic()
    import tempfile
    from contextlib import nullcontext
    from dataclasses import replace

    from litebert.pretrain.run import bound_from, settings_from
    from litebert.pretrain.run import pretrain as run
    from litebert.train.parallel import end_rank
    from litebert.train.settings import Bound

    with tempfile.TemporaryDirectory() if dry_run else nullcontext() as folder:
        bound = bound_from(budget=budget, steps=steps, tokens=tokens, flops=flops)
        read = settings_from(
            preset,
            overrides or [],
            corpus,
            Path(folder) / "run" if folder else out,
            bound=Bound(steps=2) if dry_run else bound,
            recipe=recipe,
            device=device,
            precision=precision,
            save_every="1" if dry_run else save_every,
        )
        settings = replace(
            read,
            source=start,
            seed=seed,
            resume=resume,
            compiled=compiled,
            checkpointing=checkpointing,
            sharded=sharded,
            micro_tokens=micro_tokens,
            fit_to=bound,
            sinks=tuple(dict.fromkeys([*(["tensorboard"] if tensorboard else []), *(log_to or [])])),
            begun=begun,
        )
        _print_result(run(settings), None if dry_run else out)
    end_rank()


def _print_result(result: "TrainResult", out: Path | None) -> None:
    """How it ended, how good the model is at every depth that was scored, and where it is, if it was kept."""
    import os

    from litebert.train.console import in_words

    if os.environ.get("RANK", "0") != "0":
        return  # under torchrun the first one speaks for all
    typer.echo(f"{result.status} after {result.step:,} steps")
    typer.echo(f"held out: {in_words(_whole(result.held_out)) or 'nothing'}")
    for depth, figures in _by_depth(result.held_out).items():
        typer.echo(f"  at depth {depth}: {in_words(figures)}")
    if out is None:
        return
    if result.status == "stopped":
        typer.echo("the same command with --resume goes on")
    typer.echo(f"the model is in {out / 'model'}")


def _whole(figures: Mapping[str, float]) -> dict[str, float]:
    """The figures of the whole model."""
    return {name: value for name, value in figures.items() if not name.startswith("depth")}


def _by_depth(figures: Mapping[str, float]) -> dict[int, dict[str, float]]:
    """Figures of other depths, such as ``depth_3_mlm_loss``, by depth."""
    found: dict[int, dict[str, float]] = {}
    for name, value in figures.items():
        prefix, _, rest = name.partition("_")
        depth, _, part = rest.partition("_")
        if prefix == "depth" and part:
            found.setdefault(int(depth), {})[part] = value
    return found


def score_on_text(
    model: str, corpus: Path, length: int, depths: Sequence[int], order: str, tokens: int, device: str, as_json: bool
) -> None:
    """Score a pretrained model on the held-out text of a store and print a row for each depth."""
    import json

    import torch

    from litebert.checkpoints.folder import load_model
    from litebert.corpus.store import Store
    from litebert.pretrain.held_out import HELD_OUT_RATE, ORDERS, held_out_settings, score_depths, scored_tokens
    from litebert.pretrain.initial import check_vocabulary
    from litebert.terminal import progress
    from litebert.text.tokenizers import read_tokenizer
    from litebert.train.precision import usable_device

    asked = next((known for known in ORDERS if known == order), None)
    if asked is None:
        raise InputError(f"--order is '{order}' but must be sop (which comes first) or nsp (do they belong together)")
    loaded, store = load_model(model), Store.open(corpus)
    encoder = loaded.network.config.encoder
    if "masked_lm" not in loaded.network.heads:
        raise InputError(f"{model} has no masked-LM head to score; name a pretrained model")
    check_vocabulary(loaded.tokenizer, read_tokenizer(store.tokenizer_folder, encoder.family), model, str(corpus))
    if length > encoder.max_positions:
        raise InputError(f"--length is {length} but {model} has {encoder.max_positions} positions; choose fewer")
    longest = length or min(512, encoder.max_positions)
    where = torch.device(usable_device(device))
    with progress() as show:
        found = score_depths(loaded.network, store, depths, longest, asked, tokens, where, show)
    tokens = scored_tokens(store, held_out_settings(store, longest, asked), where, tokens)
    if as_json:
        rows = [{"depth": one.depth, **one.figures} for one in found]
        facts = {"model": model, "corpus": corpus.name, "tokens": tokens, "length": longest, "order": order}
        typer.echo(json.dumps({"held_out": rows, **facts}, indent=1))
        return
    how = f"inputs of up to {longest}, {HELD_OUT_RATE:.0%} masked, order: {order}"
    typer.echo(f"{tokens:,} tokens of held-out text of {corpus}, {how}")
    for one in found:
        parts = [
            f"{name.replace('mlm', 'masked words').replace('_', ' ')} {_figure(name, value)}"
            for name, value in one.figures.items()
        ]
        typer.echo(f"depth {one.depth:>2}: {' · '.join(parts)}")


def _figure(name: str, value: float) -> str:
    return f"{value:.1%}" if name.endswith("accuracy") else f"{value:.3f}"
