"""What the files of a pretraining run contain: text, recipe, time, arithmetic, held-out figures. Nothing is guessed:
what a run did not record is None, and the card marks it as missing."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from litebert.config import build
from litebert.corpus.store import STORE_FILE, Manifest, Store
from litebert.errors import InputError
from litebert.nn.config import EncoderConfig
from litebert.planning.arithmetic import flops_per_token, head_flops
from litebert.planning.count import Parameters, count_parameters
from litebert.pretraining.recipe import Recipe, depth_stages
from litebert.runs import RunInfo, read_run
from litebert.train.averaging import PREFIX
from litebert.train.metrics import HELD_OUT, read_metrics
from litebert.train.settings import value_at

AT_DEPTH = re.compile(r"held_out_depth_(\d+)_(\w+)")


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the files of a run contain."""

    run: RunInfo
    encoder: EncoderConfig
    parameters: Parameters
    recipe: Recipe
    seconds: float | None
    tokens: int | None
    steps: int | None
    flop: float | None
    hardware: str
    watts: float | None
    corpus: Manifest | None  # of the token store, where that is still there
    held_out: Mapping[int, Mapping[str, float]]  # figures by depth, the deepest first
    mean_utilisation: float | None
    earlier: tuple["Facts", ...] = ()  # runs whose model this one started from, the first one first

    @property
    def parts(self) -> tuple["Facts", ...]:
        """All runs that made the model."""
        return (*self.earlier, self)

    @property
    def all_seconds(self) -> float | None:
        """The time of all parts; None where one of them did not record it."""
        return _sum_known([part.seconds for part in self.parts])

    @property
    def all_tokens(self) -> int | None:
        """The tokens of all parts; None where one of them did not record it."""
        return _sum_known([part.tokens for part in self.parts])


def _sum_known(values: Sequence[Any]) -> Any:
    return None if None in values else sum(values)


def read_facts(folder: Path, corpus: Path | None = None, earlier: Sequence[Path] = ()) -> Facts:
    """The facts of the run in ``folder``; ``corpus`` is its token store where that was moved."""
    run = read_run(folder)
    if run is None or run.verb != "pretrain":
        raise InputError(f"{folder} is no pretraining run: it has no run.json of `litebert pretrain`")
    try:
        encoder = build(EncoderConfig, run.settings["encoder"])
        recipe = build(Recipe, run.settings["recipe"])
    except (KeyError, ValueError) as error:
        raise InputError(f"{folder / 'run.json'} is not one that this version can read ({error})") from None
    rows = read_metrics(folder)
    training = [row for row in rows if row.get("split") != HELD_OUT]
    shares = [float(row["mfu"] or 0.0) for row in training if "mfu" in row]
    watts = run.settings.get("watts")
    return Facts(
        run=run,
        encoder=encoder,
        parameters=count_parameters(encoder),
        recipe=recipe,
        seconds=run.result.get("seconds"),
        tokens=run.result.get("tokens"),
        steps=run.result.get("step"),
        flop=arithmetic(encoder, recipe, training) if training else None,
        hardware=str(run.settings.get("hardware") or ""),
        watts=float(watts) if isinstance(watts, int | float) else None,
        corpus=_corpus(run, corpus),
        held_out=held_out_by_depth(run.result),
        mean_utilisation=sum(shares) / len(shares) if shares else None,
        earlier=tuple(read_facts(part) for part in earlier),
    )


def arithmetic(encoder: EncoderConfig, recipe: Recipe, rows: Sequence[Mapping[str, Any]]) -> float:
    """Multiplications and additions of a run: its tokens at the depth and the length that were in force.

    Inputs count as full, so it is a little too much.
    """
    depths, before, total = depth_stages(recipe, encoder), 0, 0.0
    for row in rows:
        progress = float(row.get("progress", 1.0))
        depth, length = value_at(progress, depths), value_at(progress, recipe.batches.lengths)
        shallow = replace(encoder, num_layers=depth, num_groups=1, layers_per_group=1, custom_plan=())
        masked = value_at(progress, recipe.mask_rates)
        token = flops_per_token(shallow, length, "finetune") + 3 * masked * head_flops(encoder)
        total += (int(row["tokens"]) - before) * token
        before = int(row["tokens"])
    return total


def of_the_model(result: Mapping[str, Any]) -> dict[str, Any]:
    """A run's result with the held-out figures of the weights that its model has, the averaged or the last ones."""
    start = f"held_out_{PREFIX}"
    averaged = {name: value for name, value in result.items() if name.startswith(start)}
    plain = {name: value for name, value in result.items() if name not in averaged}
    if result.get("weights") == "averaged":
        plain |= {f"held_out_{name.removeprefix(start)}": value for name, value in averaged.items()}
    return plain


def held_out_by_depth(result: Mapping[str, Any]) -> dict[int, dict[str, float]]:
    """Held-out figures by depth out of a run's result, where they are ``held_out_mlm_loss`` and so on."""
    found: dict[int, dict[str, float]] = {}
    result = of_the_model(result)
    full = result.get("held_out_depth")
    for name, value in result.items():
        shallow = AT_DEPTH.fullmatch(name)
        if shallow:
            found.setdefault(int(shallow[1]), {})[shallow[2]] = float(value)
        elif name.startswith("held_out_") and name not in ("held_out_depth", "held_out_loss") and full is not None:
            found.setdefault(int(full), {})[name.removeprefix("held_out_")] = float(value)
    return dict(sorted(found.items(), reverse=True))


def _corpus(run: RunInfo, asked: Path | None) -> Manifest | None:
    """The store of a run: the one named, else the one it was trained from, where it still lies there."""
    parent = next((parent for parent in run.parents if parent.role == "corpus"), None)
    folder = asked or (Path(parent.folder) if parent else None)
    if folder is None or not (folder / STORE_FILE).is_file():
        if asked is not None:
            raise InputError(f"{asked} is no token store; name the one that the run was trained from")
        return None
    manifest = Store.open(folder).manifest
    if parent is not None and parent.fingerprint != manifest.fingerprint:
        raise InputError(f"{folder} is not the store of this run: its fingerprint is another; name the right one")
    return manifest
