"""How much of the hardware a run makes use of: the arithmetic of real tokens, to hold against a matrix product."""

import dataclasses

import numpy as np

from litebert.corpus.batches import Batch
from litebert.nn.config import EncoderConfig
from litebert.plan.arithmetic import flops_per_token, head_flops


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
