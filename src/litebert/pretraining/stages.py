"""The stages of a pretraining run, in each of which length, depth and the weights of the losses stay the same."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from litebert.corpus.batches import Batch, Batches
from litebert.nn.config import EncoderConfig
from litebert.pretraining.elastic import EVERY, WEIGHTS, Elastic, shallower_depths
from litebert.pretraining.mining import Candidates, candidate_settings
from litebert.pretraining.objective import LOGIT_CHUNK, Pretraining, batch_flops
from litebert.pretraining.parts import AbsentText, Text
from litebert.pretraining.permutation import Permutation
from litebert.pretraining.permutation import step_flops as permutation_flops
from litebert.pretraining.recipe import Recipe, depth_stages, generator_layers
from litebert.pretraining.replaced import PART, BeforeReplaced, Replaced, step_flops
from litebert.train.objective import Objective, Stage
from litebert.train.settings import TrainSettings, value_at


def pretraining_stages(recipe: Recipe, encoder: EncoderConfig, text: Text, train: TrainSettings) -> list[Stage]:
    """The stages of a run, one from each point on at which the recipe or the text changes."""
    chunk, depths = 0 if train.compiled else LOGIT_CHUNK, depth_stages(recipe, encoder)
    lengths, rates = recipe.batches.lengths, recipe.mask_rates
    # At other mask rates the batches have the same shapes and places in the stream: one compiled graph does for all.
    sources, mined = _sources(recipe, text, train), Candidates(recipe, encoder, train)
    learnt = {}  # by length and depth: what is compiled is compiled once for all stages that have both in common
    begins = {begin for begin, _ in (*lengths, *depths, *rates)} | {part.begin for part in text.parts}
    stages = []
    for begin in sorted(begins | {recipe.growth.order_from}):
        length_begin, length = [pair for pair in lengths if pair[0] <= begin][-1]
        depth = value_at(begin, depths)
        if (length, depth) not in learnt:
            learnt[length, depth] = _objective(recipe, encoder, train, length, depth, chunk)
        objective, flops, weights = learnt[length, depth]
        part = text.at(begin)
        source = sources[part.begin, length_begin]
        name = f"length {length} from {length_begin:g}"
        without = ("order", "shallow_order") if begin < recipe.growth.order_from else ()
        stages.append(
            Stage(
                name=name if len(text.parts) == 1 else f"{name} of part {text.parts.index(part) + 1}",
                begin=begin,
                source=source.at_rate(mined.rate(value_at(begin, rates))) if isinstance(source, Batches) else source,
                objective=objective,
                flops=flops,
                weights={**weights, **dict.fromkeys(without, 0.0)},
                missing=part.missing,
                choice=mined.choice(part, length, depth),
            )
        )
    return stages


def _sources(recipe: Recipe, text: Text, train: TrainSettings) -> dict[tuple[float, float], Batches | AbsentText]:
    """Batches of every part at every length, by where both begin."""
    found: dict[tuple[float, float], Batches | AbsentText] = {}
    for part in text.parts:
        for begin, length in recipe.batches.lengths:
            settings = candidate_settings(recipe, train, length)
            settings = replace(settings, max_sequences=text.max_sequences.get(length))
            found[part.begin, begin] = Batches(part.store, "train", settings) if part.store else AbsentText(part)
    return found


def with_shapes(text: Text, recipe: Recipe, train: TrainSettings) -> Text:
    """A text of several parts that knows the shapes of its first one's batches."""
    if len(text.parts) == 1 or text.max_sequences:
        return text
    sizes = {
        length: Batches(text.first, "train", candidate_settings(recipe, train, length)).max_sequences
        for _, length in recipe.batches.lengths
    }
    return replace(text, max_sequences=sizes)


def _objective(
    recipe: Recipe, encoder: EncoderConfig, train: TrainSettings, length: int, depth: int, chunk: int
) -> tuple[Objective, Callable[[Batch], float], Mapping[str, float]]:
    """What is learnt at a length and a depth, its arithmetic, and the weights of its losses."""
    generator = generator_layers(recipe, encoder)
    if generator and depth == encoder.num_layers:
        assert recipe.objective in ("replaced", "all-tokens")
        deep = Pretraining(length, chunk, depth, recipe.order_grad_ratio)
        objective = Replaced(
            deep,
            recipe.objective,
            generator,
            train.seed,
            masked_every=recipe.masked_every,
            fixed_embeddings=recipe.fixed_embeddings,
        )
        flops = partial(step_flops, encoder, generator_depth=generator, question=recipe.objective)
        return objective, flops, {PART[recipe.objective]: recipe.replaced_weight}
    if recipe.objective == "permutation":
        cls_last = encoder.pooled_token == "last"
        ours = Permutation(length, chunk, depth, recipe.order_grad_ratio, seed=train.seed, cls_last=cls_last)
        return ours, partial(permutation_flops, encoder, depth=depth), {}
    kind = BeforeReplaced if recipe.objective == "replaced" else Pretraining
    plain = kind(length, chunk, depth, recipe.order_grad_ratio)
    shallower = shallower_depths(depth, encoder.num_layers) if recipe.elastic else ()
    arithmetic = partial(batch_flops, encoder, depth=depth, heads=1 + bool(shallower) / EVERY)
    return Elastic(plain, shallower, train.seed) if shallower else plain, arithmetic, WEIGHTS
