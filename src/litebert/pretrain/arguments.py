"""From the words of the command line to the settings of a run."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import cast

from litebert.config import parse_overrides, preset_names
from litebert.durations import parse_duration
from litebert.errors import InputError, nearest
from litebert.nn.config import EncoderConfig, preset_config
from litebert.pretrain.depths import with_suitable_growth
from litebert.pretrain.recipe import RECIPE_FIELDS, read_recipe
from litebert.pretrain.run import PretrainSettings
from litebert.train.device import usable_device
from litebert.train.settings import Bound, Precision


def settings_from(
    preset: str,
    words: Sequence[str],
    corpus: Path,
    out: Path,
    *,
    bound: Bound | None,
    recipe: str = "budget",
    device: str = "",
    precision: str | None = None,
    save_every: str = "5m",
) -> PretrainSettings:
    """Settings, checked; fields of the recipe and of the model may stand side by side among ``words``.

    Without a bound the recipe's own number of steps counts.
    """
    _check_words(preset, words)
    for_recipe = [word for word in words if word.partition("=")[0] in RECIPE_FIELDS]
    chosen = read_recipe(recipe, for_recipe)
    if chosen.depths and not any(word.startswith("depths=") for word in for_recipe):
        others = [word for word in words if word not in for_recipe]
        chosen = with_suitable_growth(chosen, preset_config(preset, (*chosen.model, *others)))
    if precision not in (None, "bf16", "fp16", "fp32"):
        raise InputError(f"--precision is '{precision}' but must be bf16, fp16 or fp32")
    return PretrainSettings(
        preset=preset,
        corpus=corpus,
        out=out,
        recipe=chosen,
        bound=bound or Bound(steps=chosen.steps),
        fixed=frozenset(word.partition("=")[0] for word in for_recipe),
        overrides=tuple(word for word in words if word not in for_recipe),
        device=usable_device(device),
        precision=cast(Precision | None, precision),
        save_seconds=parse_duration(save_every) if not save_every.isdigit() else 0.0,
        save_steps=int(save_every) if save_every.isdigit() else None,
    )


def bound_from(
    *, budget: str | None, steps: int | None, flops: float | None, tokens: float | None = None
) -> Bound | None:
    """How long to train, where that was said."""
    if budget is None and steps is None and tokens is None and flops is None:
        return None
    return Bound(
        steps=steps,
        tokens=None if tokens is None else int(tokens),
        seconds=None if budget is None else parse_duration(budget),
        flops=flops,
    )


def _check_words(preset: str, words: Sequence[str]) -> None:
    """A folder in place of a preset, and a field that neither the model nor the recipe has."""
    if Path(preset).is_dir() and preset not in preset_names("models"):
        raise InputError(f"{preset} is a folder; name a preset such as albert-small, and what to start with as --from")
    known = RECIPE_FIELDS | {field.name for field in fields(EncoderConfig) if field.init}
    for name in parse_overrides(words):
        if name not in known:
            raise InputError(f"neither the model nor the recipe has a field '{name}'{nearest(name, known)}")
