"""What a recipe trains on and is scored on.

A stage is a span of the run in which length, depth and the weights of the losses stay the same.
"""

import dataclasses
from collections.abc import Mapping
from functools import partial

import numpy as np

from litebert.corpus.batches import Batch, Batches
from litebert.corpus.settings import BatchSettings
from litebert.corpus.store import Store
from litebert.nn.config import EncoderConfig
from litebert.planning.arithmetic import flops_per_token, head_flops
from litebert.pretraining.elastic import EVERY, WEIGHTS, Elastic, quarters, shallower_depths
from litebert.pretraining.held_out import HELD_OUT_RATE, HeldOut, scored_depths
from litebert.pretraining.objective import LOGIT_CHUNK, Pretraining
from litebert.pretraining.recipe import Recipe, depth_stages
from litebert.train.objective import Objective, Stage, SumsOf
from litebert.train.parallel import Ranks
from litebert.train.schedules import stage as stage_value
from litebert.train.settings import TrainSettings
from litebert.train.trainer import Evaluate


def pretraining_stages(recipe: Recipe, encoder: EncoderConfig, store: Store, train: TrainSettings) -> list[Stage]:
    """The stages of a run, one from each point on at which the recipe changes something."""
    chunk, depths = 0 if train.compiled else LOGIT_CHUNK, depth_stages(recipe, encoder)
    lengths = recipe.batches.lengths
    sources = {begin: Batches(store, "train", _batch_settings(recipe, train, length)) for begin, length in lengths}
    stages = []
    for begin in sorted({begin for begin, _ in (*lengths, *depths)} | {recipe.growth.order_from}):
        length_begin, length = [pair for pair in lengths if pair[0] <= begin][-1]
        depth = stage_value(begin, depths)
        plain = Pretraining(length, chunk, depth, recipe.order_grad_ratio)
        shallower = shallower_depths(depth, encoder.num_layers) if recipe.elastic else ()
        late = ("order", "shallow_order") if begin < recipe.growth.order_from else ()
        stages.append(
            Stage(
                name=f"length {length} from {length_begin:g}",
                begin=begin,
                source=sources[length_begin],
                objective=Elastic(plain, shallower, train.seed) if shallower else plain,
                flops=partial(batch_flops, encoder, depth=depth, heads=1 + bool(shallower) / EVERY),
                weights={**WEIGHTS, **dict.fromkeys(late, 0.0)},
            )
        )
    return stages


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
        assert isinstance(objective, Pretraining | Elastic) and objective.depth is not None
        depths = scored_depths(objective.depth, layers, objective is last.objective, others)
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


def batch_flops(config: EncoderConfig, batch: Batch, depth: int | None = None, heads: float = 1.0) -> float:
    """Arithmetic of one training step on a batch as plan counts it, at the real lengths; padding counts nothing.

    ``heads`` is how often the masked-LM head runs at each masked position.
    """
    if depth is not None and depth != config.num_layers:
        config = dataclasses.replace(config, num_layers=depth, num_groups=1, layers_per_group=1, custom_plan=())
    lengths = np.diff(batch.starts[: batch.num_sequences + 1]).astype(np.float64)
    # Scores grow with the length of the sequence a token is in, so the mean over tokens is what counts.
    length = round(float((lengths**2).sum() / max(batch.num_tokens, 1)))
    return batch.num_tokens * flops_per_token(config, length, "finetune") + 3 * heads * batch.num_masked * head_flops(
        config
    )
