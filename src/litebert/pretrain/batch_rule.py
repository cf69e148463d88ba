"""The batch for the time there is: leaving word frequencies behind takes a number of steps, whatever the batch.

A slow machine or a short budget therefore takes smaller batches. The rates follow where the recipe says so
(``rate_at_batch``).
"""

from dataclasses import replace

from litebert.nn.config import EncoderConfig
from litebert.plan.arithmetic import flops_per_token
from litebert.pretrain.depths import depth_stages
from litebert.pretrain.recipe import Recipe
from litebert.runs import RunInfo
from litebert.train.settings import Bound

LEAST_BATCH = 2048  # tokens; below that gradients are too noisy to be worth the update
REACHED_SHARE = 0.4  # of the rate of large products that training reaches; a factor of two only moves the batch by one


def with_enough_steps(recipe: Recipe, encoder: EncoderConfig, bound: Bound, peak: float) -> Recipe:
    """The recipe with its batches halved until the run has ``least_steps``; ``peak``: operations a second of all ranks.

    A bound in steps is taken at its word.
    """
    if not recipe.least_steps or bound.steps is not None:
        return recipe
    tokens = float("inf") if bound.tokens is None else float(bound.tokens)
    if bound.seconds is not None:
        tokens = min(tokens, bound.seconds * REACHED_SHARE * peak / _flops(recipe, encoder))
    if bound.flops is not None:
        tokens = min(tokens, bound.flops / _flops(recipe, encoder))
    factor = 1
    smallest = min(size for _, size in recipe.batch_tokens)
    while tokens / (smallest // factor) < recipe.least_steps and smallest // (2 * factor) >= LEAST_BATCH:
        factor *= 2
    return replace(recipe, batch_tokens=tuple((begin, size // factor) for begin, size in recipe.batch_tokens))


def with_noted_batches(recipe: Recipe, run: RunInfo | None) -> Recipe:
    """The recipe with the batches that a run was begun with, as its note has them."""
    sizes = None if run is None else run.settings.get("recipe", {}).get("batch_tokens")
    return replace(recipe, batch_tokens=tuple((begin, size) for begin, size in sizes)) if sizes else recipe


def _flops(recipe: Recipe, encoder: EncoderConfig) -> float:
    """Arithmetic of a token at the mean depth over the run."""
    depths = depth_stages(recipe, encoder)
    ends = (*(begin for begin, _ in depths[1:]), 1.0)
    mean = sum((end - begin) * depth for (begin, depth), end in zip(depths, ends, strict=True)) / encoder.num_layers
    length = max(length for _, length in recipe.lengths)
    return mean * flops_per_token(encoder, length, "pretrain")
