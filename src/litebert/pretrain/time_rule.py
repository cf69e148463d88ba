"""A recipe carried to the time there is. A field that the user has set stays as it was set.

Leaving word frequencies behind takes a number of steps, whatever the batch, so little time takes smaller batches. Much
time takes larger ones, which it has enough steps for. And a recipe was found in runs of some length. In longer ones
depth has grown, and the order loss set in, after as many steps. Rates are lower by the square root of the length, and
weights decay less at each step, so that over the whole run they do not decay more. What a full rate can teach, it has
taught after a number of tokens: from there on it falls, however long the run.
"""

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from litebert.nn.config import EncoderConfig
from litebert.plan.arithmetic import flops_per_token
from litebert.pretrain.depths import depth_stages, generator_layers
from litebert.pretrain.recipe import Recipe
from litebert.runs import RunInfo
from litebert.train.settings import Bound

LEAST_BATCH = 2048  # tokens; below that gradients are too noisy to be worth the update
REACHED_SHARE = 0.4  # of the rate of large products that training reaches; a factor of two only moves the batch by one
WITH_STEPS = ("depths", "order_from", "rate", "muon_rate", "weight_decay")  # fitted by ``found_at_steps``
WITH_TOKENS = ("decay",)  # fitted by ``found_at_tokens``


def fitted(recipe: Recipe, encoder: EncoderConfig, bound: Bound, peak: float, fixed: Collection[str] = ()) -> Recipe:
    """The recipe for a bound; ``peak``: operations a second of all ranks, ``fixed``: fields to leave alone.

    A bound in steps is taken at its word.
    """
    tokens = _tokens(recipe, encoder, bound, peak)
    if bound.steps is None and "batch_tokens" not in fixed:
        recipe = _with_batches(recipe, tokens)
    size = max(size for _, size in recipe.batch_tokens)
    steps = tokens / size if bound.steps is None else float(bound.steps)
    longer: dict[str, Any] = {}
    if recipe.found_at_steps and steps > recipe.found_at_steps:
        share = recipe.found_at_steps / steps
        longer = {
            "depths": tuple((share * begin, depth) for begin, depth in recipe.depths),
            "order_from": share * recipe.order_from,
            "rate": math.sqrt(share) * recipe.rate,
            "muon_rate": math.sqrt(share) * recipe.muon_rate,
            "weight_decay": share * recipe.weight_decay,
        }
    if recipe.found_at_tokens and steps * size > recipe.found_at_tokens:
        longer["decay"] = 1 - recipe.found_at_tokens / (steps * size) * (1 - recipe.decay)
    return replace(recipe, **{name: value for name, value in longer.items() if name not in fixed})


def as_noted(recipe: Recipe, run: RunInfo | None, fixed: Collection[str] = ()) -> Recipe:
    """The recipe fitted as a run was begun with, by its note."""
    noted = {} if run is None else run.settings.get("recipe", {})
    names = ["batch_tokens"] if recipe.least_steps or recipe.most_steps else []
    names += WITH_STEPS if recipe.found_at_steps else ()
    names += WITH_TOKENS if recipe.found_at_tokens else ()
    found = {name: noted[name] for name in names if name in noted and name not in fixed}
    return replace(recipe, **{name: _tuples(value) for name, value in found.items()})


def in_words(before: Recipe, after: Recipe) -> str:
    """What fitting has changed, as words that ask for the same: ``batch_tokens=16384 rate=0.00106``."""
    names = ("batch_tokens", *WITH_STEPS, *WITH_TOKENS)
    changed = [name for name in names if getattr(before, name) != getattr(after, name)]
    return " ".join(f"{name}={_word(getattr(after, name))}" for name in changed)


def _word(value: Any) -> str:
    """A number to three digits (1.0 of a depth is all of it, 1 is a layer), or stages; a single stage as its number."""
    if isinstance(value, tuple):
        if len(value) == 1 and isinstance(value[0], tuple):
            return _word(value[0][1])
        return f"[{','.join(map(_word, value))}]"
    return str(value) if isinstance(value, int) else str(float(f"{value:.3g}"))


def _tokens(recipe: Recipe, encoder: EncoderConfig, bound: Bound, peak: float) -> float:
    """How many tokens a bound holds, not counting steps."""
    tokens = float("inf") if bound.tokens is None else float(bound.tokens)
    if bound.seconds is not None:
        tokens = min(tokens, bound.seconds * REACHED_SHARE * peak / _flops(recipe, encoder))
    if bound.flops is not None:
        tokens = min(tokens, bound.flops / _flops(recipe, encoder))
    return tokens


def _with_batches(recipe: Recipe, tokens: float) -> Recipe:
    """The recipe with its batches halved or doubled until there are enough steps, and not too many."""
    sizes = [size for _, size in recipe.batch_tokens]
    smallest, largest, factor = min(sizes), max(sizes), 1.0
    while tokens / (smallest * factor) < recipe.least_steps and smallest * factor / 2 >= LEAST_BATCH:
        factor /= 2
    while recipe.most_steps and recipe.most_steps < tokens / (largest * factor) < float("inf"):
        factor *= 2
    return replace(recipe, batch_tokens=tuple((begin, int(size * factor)) for begin, size in recipe.batch_tokens))


def _flops(recipe: Recipe, encoder: EncoderConfig) -> float:
    """Arithmetic of a token at the mean depth over the run."""
    depths = depth_stages(recipe, encoder)
    ends, generator = (*(begin for begin, _ in depths[1:]), 1.0), generator_layers(recipe, encoder)
    depths = tuple((begin, depth + generator * (depth == encoder.num_layers)) for begin, depth in depths)
    mean = sum((end - begin) * depth for (begin, depth), end in zip(depths, ends, strict=True)) / encoder.num_layers
    length = max(length for _, length in recipe.lengths)
    return mean * flops_per_token(encoder, length, "pretrain")


def _tuples(value: Any) -> Any:
    """What JSON has made a list of, as it was."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
