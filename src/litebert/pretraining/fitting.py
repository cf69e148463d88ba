"""A recipe fitted to a run: to the time there is, and to a model to start from. Fields that the user set stay as set.

A model needs a number of steps to do better than word frequencies, whatever the batch. So short budgets use smaller
batches, and long ones, which have steps enough, larger ones. A recipe was tuned in runs of some length. Longer runs
keep the absolute step at which depth grows and the order loss starts. Their rates are lower by the square root of the
length, and weights decay less at each step, so that over the whole run they do not decay more. A full learning rate is
useful for a number of tokens: from there on it falls, however long the run.
"""

import math
from collections.abc import Collection
from typing import Any

from litebert.config import changed, nested, value_of
from litebert.nn.config import EncoderConfig
from litebert.planning.arithmetic import flops_per_token, query_flops
from litebert.pretraining.recipe import Recipe, depth_stages, generator_layers, layers_of
from litebert.runs import RunInfo
from litebert.train.settings import Bound

MIN_BATCH = 2048  # tokens; below that gradients are too noisy to be worth the update
REACHED_SHARE = 0.4  # of the rate of large products that training reaches; a factor of two only moves the batch by one
BATCHES = "batches.tokens"
OF_STEPS = ("growth.depths", "growth.order_from", "optimiser.rate", "optimiser.muon_rate", "optimiser.weight_decay")
FITTED = (BATCHES, *OF_STEPS, "schedule.decay")  # OF_STEPS by ``reference_steps``, the last by ``reference_tokens``


def fitted(recipe: Recipe, encoder: EncoderConfig, bound: Bound, peak: float, fixed: Collection[str] = ()) -> Recipe:
    """The recipe for a bound; ``peak``: operations a second of all ranks, ``fixed``: fields to leave alone.

    A bound in steps is taken at its word.
    """
    tokens = _tokens(recipe, encoder, bound, peak)
    if bound.steps is None and BATCHES not in fixed:
        recipe = _with_batches(recipe, tokens)
    size = max(size for _, size in recipe.batches.tokens)
    steps = tokens / size if bound.steps is None else float(bound.steps)
    longer: dict[str, Any] = {}
    if recipe.reference_steps and steps > recipe.reference_steps:
        share = recipe.reference_steps / steps
        assert recipe.optimiser.rate is not None
        longer = {
            "growth.depths": tuple((share * begin, depth) for begin, depth in recipe.growth.depths),
            "growth.order_from": share * recipe.growth.order_from,
            "optimiser.rate": math.sqrt(share) * recipe.optimiser.rate,
            "optimiser.muon_rate": math.sqrt(share) * recipe.optimiser.muon_rate,
            "optimiser.weight_decay": share * recipe.optimiser.weight_decay,
        }
    if recipe.reference_tokens and steps * size > recipe.reference_tokens:
        longer["schedule.decay"] = 1 - recipe.reference_tokens / (steps * size) * (1 - recipe.schedule.decay)
    return changed(recipe, {name: value for name, value in longer.items() if name not in fixed})


def recipe_for_warm_start(recipe: Recipe, layers: int, trained: int, fixed: Collection[str] = ()) -> Recipe:
    """The recipe for a model of ``layers`` that begins with ``trained`` ones; ``fixed``: fields to leave alone.

    Depth grows from the trained one on, and where that is all of it, every loss counts from the beginning.
    """
    begun = min(trained, layers)
    deeper = [(begin, depth) for begin, depth in recipe.growth.depths if layers_of(depth, layers) >= begun]
    others: dict[str, Any] = {}
    if deeper:
        others["growth.depths"] = ((0.0, deeper[0][1]), *deeper[1:])
    if begun == layers:
        others["growth.order_from"] = 0.0
    return changed(recipe, {name: value for name, value in others.items() if name not in fixed})


def as_recorded(recipe: Recipe, run: RunInfo | None, fixed: Collection[str] = ()) -> Recipe:
    """The recipe as it was fitted when a run was begun, from the record of that run."""
    noted = {} if run is None else nested(Recipe, run.settings.get("recipe", {}))
    batches = bool(recipe.batches.min_steps or recipe.batches.max_steps)
    by_run = (batches, *[bool(recipe.reference_steps)] * len(OF_STEPS), bool(recipe.reference_tokens))
    found = {}
    for name, is_fitted in zip(FITTED, by_run, strict=True):
        group, _, field = name.partition(".")
        if is_fitted and field in noted.get(group, {}) and name not in fixed:
            found[name] = _tuples(noted[group][field])
    return changed(recipe, found)


def describe_changes(before: Recipe, after: Recipe) -> str:
    """What fitting has changed, as words that give the same: ``batches.tokens=16384``."""
    pairs = [(name, value_of(before, name), value_of(after, name)) for name in FITTED]
    return " ".join(f"{name}={_word(new)}" for name, old, new in pairs if new != old)


def _word(value: Any) -> str:
    """A number to three digits (1.0 of a depth is all of it, 1 is a layer), or stages; a single stage as its number."""
    if isinstance(value, tuple):
        if len(value) == 1 and isinstance(value[0], tuple):
            return _word(value[0][1])
        return f"[{','.join(map(_word, value))}]"
    return str(value) if isinstance(value, int) else str(float(f"{value:.3g}"))


def _tokens(recipe: Recipe, encoder: EncoderConfig, bound: Bound, peak: float) -> float:
    """How many tokens a bound holds, not counting steps."""
    tokens, each = math.inf if bound.tokens is None else float(bound.tokens), _flops(recipe, encoder)
    seconds = math.inf if bound.seconds is None else bound.seconds * REACHED_SHARE * peak / each
    return min(tokens, seconds, math.inf if bound.flops is None else bound.flops / each)


def _with_batches(recipe: Recipe, tokens: float) -> Recipe:
    """The recipe with its batches halved or doubled until there are enough steps, and not too many."""
    sizes = [size for _, size in recipe.batches.tokens]
    smallest, largest, factor = min(sizes), max(sizes), 1.0
    while tokens / (smallest * factor) < recipe.batches.min_steps and smallest * factor / 2 >= MIN_BATCH:
        factor /= 2
    while recipe.batches.max_steps and recipe.batches.max_steps < tokens / (largest * factor) < float("inf"):
        factor *= 2
    return changed(recipe, {BATCHES: tuple((begin, int(size * factor)) for begin, size in recipe.batches.tokens)})


def _flops(recipe: Recipe, encoder: EncoderConfig) -> float:
    """Arithmetic of a token at the mean depth over the run."""
    depths = depth_stages(recipe, encoder)
    ends, generator = (*(begin for begin, _ in depths[1:]), 1.0), generator_layers(recipe, encoder)
    depths = tuple((begin, depth + generator * (depth == encoder.num_layers)) for begin, depth in depths)
    mean = sum((end - begin) * depth for (begin, depth), end in zip(depths, ends, strict=True)) / encoder.num_layers
    mean += recipe.select.passes * recipe.select.depth / 3 / encoder.num_layers  # forward only
    length = max(length for _, length in recipe.batches.lengths)
    each = flops_per_token(encoder, length, "pretrain")
    if recipe.objective == "permutation":
        each += 3 * recipe.highest_mask_rate * query_flops(encoder, length)
    return mean * each


def _tuples(value: Any) -> Any:
    """What JSON has made a list of, as it was."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
