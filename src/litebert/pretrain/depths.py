"""How deep the network runs at each share of a run: growing depth, for models whose layers share their blocks."""

from dataclasses import replace

from litebert.errors import InputError
from litebert.nn.config import EncoderConfig
from litebert.pretrain.recipe import Recipe


def layers_of(depth: int | float, num_layers: int) -> int:
    """A depth of a recipe in layers: an integer as it is, a fraction as that share of all, at least one layer."""
    if isinstance(depth, float):
        return max(1, round(depth * num_layers))
    if depth > num_layers:
        raise InputError(f"depths asks for {depth} layers, but the model has {num_layers}; use shares such as 0.25")
    return depth


def depth_stages(recipe: Recipe, encoder: EncoderConfig) -> tuple[tuple[float, int], ...]:
    """The stages of depth in layers; one at full depth where the recipe has none."""
    stages = tuple((begin, layers_of(depth, encoder.num_layers)) for begin, depth in recipe.depths)
    for _, depth in stages:
        if not trains_all(encoder, depth):
            raise InputError(
                f"depths runs only the first {depth} of {encoder.num_layers} layers at first, and later ones have "
                "blocks of their own that would come in untrained; leave depths out (depths=[]) or share all blocks"
            )
    return stages or ((0.0, encoder.num_layers),)


def generator_layers(recipe: Recipe, encoder: EncoderConfig) -> int:
    """How many layers guess masked words for all of them to judge; 0 where the objective is masked LM alone."""
    if recipe.objective == "masked":
        return 0
    depth = recipe.generator_depth
    layers = layers_of(depth, encoder.num_layers) if isinstance(depth, float) else depth
    if not 0 < layers < encoder.num_layers:
        raise InputError(
            f"generator_depth is {depth}, but must be at least 1 and fewer than the model's "
            f"{encoder.num_layers} layers; a third of them is a good choice"
        )
    return layers


def with_suitable_growth(recipe: Recipe, encoder: EncoderConfig) -> Recipe:
    """The recipe, its growing depth left out where the model has blocks that would come in untrained."""
    layers = encoder.num_layers
    grows = all(trains_all(encoder, layers_of(depth, layers)) for _, depth in recipe.depths)
    return recipe if grows else replace(recipe, depths=())


def trains_all(encoder: EncoderConfig, depth: int) -> bool:
    """Whether the first ``depth`` layers use every block of the plan."""
    shallow, plan = encoder.plan[:depth], encoder.plan
    return all({blocks[kind] for blocks in shallow} == {blocks[kind] for blocks in plan} for kind in (0, 1))
