"""``litebert evaluate MODEL --corpus STORE``: how a pretrained model does on held-out text, printed depth by depth."""

from collections.abc import Sequence
from pathlib import Path

import typer

from litebert.errors import InputError


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
    from litebert.text.tokenizer_files import read_tokenizer
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
