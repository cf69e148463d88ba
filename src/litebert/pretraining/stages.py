"""What a recipe trains on and is scored on.

A stage is a span of the run in which length, depth and the weights of the losses stay the same.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial

from litebert.corpus.batches import Batch, Batches
from litebert.corpus.settings import BatchSettings
from litebert.corpus.store import Store
from litebert.nn.config import EncoderConfig
from litebert.pretraining.elastic import EVERY, WEIGHTS, Elastic, quarters, shallower_depths
from litebert.pretraining.held_out import HELD_OUT_RATE, HeldOut, scored_depths
from litebert.pretraining.objective import LOGIT_CHUNK, Pretraining, batch_flops
from litebert.pretraining.recipe import Recipe, depth_stages, generator_layers
from litebert.pretraining.replaced import PART, NotYet, Replaced, step_flops
from litebert.train.objective import Objective, Stage, SumsOf
from litebert.train.parallel import Ranks
from litebert.train.settings import TrainSettings, value_at
from litebert.train.trainer import Evaluate


def pretraining_stages(recipe: Recipe, encoder: EncoderConfig, store: Store, train: TrainSettings) -> list[Stage]:
    """The stages of a run, one from each point on at which the recipe changes something."""
    chunk, depths = 0 if train.compiled else LOGIT_CHUNK, depth_stages(recipe, encoder)
    lengths = recipe.batches.lengths
    sources = {begin: Batches(store, "train", _batch_settings(recipe, train, length)) for begin, length in lengths}
    stages = []
    for begin in sorted({begin for begin, _ in (*lengths, *depths)} | {recipe.growth.order_from}):
        length_begin, length = [pair for pair in lengths if pair[0] <= begin][-1]
        depth = value_at(begin, depths)
        objective, flops, weights = _objective(recipe, encoder, train, length, depth, chunk)
        late = ("order", "shallow_order") if begin < recipe.growth.order_from else ()
        stages.append(
            Stage(
                name=f"length {length} from {length_begin:g}",
                begin=begin,
                source=sources[length_begin],
                objective=objective,
                flops=flops,
                weights={**weights, **dict.fromkeys(late, 0.0)},
            )
        )
    return stages


def _objective(
    recipe: Recipe, encoder: EncoderConfig, train: TrainSettings, length: int, depth: int, chunk: int
) -> tuple[Objective, Callable[[Batch], float], Mapping[str, float]]:
    """What is learnt at a length and a depth, its arithmetic, and the weights of its losses."""
    generator = generator_layers(recipe, encoder)
    if generator and depth == encoder.num_layers:
        assert recipe.objective != "masked"
        deep = Pretraining(length, chunk, depth, recipe.order_grad_ratio)
        objective = Replaced(
            deep,
            recipe.objective,
            generator,
            train.seed,
            masked_every=recipe.masked_every,
            fixed_embeddings=recipe.fixed_embeddings,
        )
        flops = partial(step_flops, encoder, generator_depth=generator, asks=recipe.objective)
        return objective, flops, {PART[recipe.objective]: recipe.replaced_weight}
    kind = NotYet if recipe.objective == "replaced" else Pretraining
    plain = kind(length, chunk, depth, recipe.order_grad_ratio)
    shallower = shallower_depths(depth, encoder.num_layers) if recipe.elastic else ()
    arithmetic = partial(batch_flops, encoder, depth=depth, heads=1 + bool(shallower) / EVERY)
    return Elastic(plain, shallower, train.seed) if shallower else plain, arithmetic, WEIGHTS


def held_out_scores(
    recipe: Recipe, layers: int, store: Store, train: TrainSettings, ranks: Ranks, *, last: Stage, most: int
) -> Evaluate | None:
    """Scores on held-out text, always the same ``most`` batches of a length at 15% masking, however the run masks.

    They are taken at the length and the depths that go with those in training, in the ``last`` stage also at that of
    all ``layers``. None where there is no held-out text.
    """
    if not store.split("held_out").num_tokens or not most:
        return None
    scorers = {}
    for length in {length for _, length in recipe.batches.lengths}:
        plain = _batch_settings(recipe, train, length)
        chosen = dataclasses.replace(plain, rate=HELD_OUT_RATE, masking=recipe.eval_masking)
        scorers[length] = HeldOut(Batches(store, "held_out", chosen), most, ranks)
    others = quarters(layers) if recipe.elastic else ()

    def evaluate(sums: SumsOf, objective: Objective) -> Mapping[str, float]:
        assert isinstance(objective, Pretraining | Elastic | Replaced) and objective.depth is not None
        generator = (objective.generator_depth,) if isinstance(objective, Replaced) else ()
        depths = scored_depths(objective.depth, layers, objective is last.objective, (*others, *generator))
        return scorers[objective.longest].score(sums, depths)

    return evaluate


def _batch_settings(recipe: Recipe, train: TrainSettings, length: int) -> BatchSettings:
    return BatchSettings(
        length=length,
        budget=train.micro_tokens,
        order=recipe.order,
        edges=recipe.edges,
        masking=recipe.masking,
        rate=recipe.mask_rate,
        seed=train.seed,
        fixed=True,
    )
