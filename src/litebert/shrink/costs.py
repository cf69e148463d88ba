"""How long inference takes with fewer layers, on the machine at hand."""

import time
from collections.abc import Sequence
from itertools import cycle, islice

import torch

from litebert.nn.network import Network
from litebert.shrink.drop import drop_layers
from litebert.shrink.strategies import Layers
from litebert.tasks.encoding import encode
from litebert.tasks.finetune import Prepared
from litebert.tasks.predicting import Predictor
from litebert.tasks.prepare import start_network, task_heads
from litebert.train.precision import default_precision

ROUNDS = 5  # of which the fastest counts: others may use the machine, too
TIMED = {"cpu": 128, "cuda": 8192}  # inputs that are timed


def with_head(prepared: Prepared, kept: Layers) -> Network:
    """These layers with the head of the task, as a run begins with them."""
    heads = task_heads(prepared.data, answerable=prepared.recipe.answerable)
    return start_network(drop_layers(prepared.source.network, kept), heads, prepared.recipe, 0)[0]


def inference_seconds(
    networks: Sequence[Network], prepared: Prepared, where: str, *, inputs: int | None = None, rounds: int = ROUNDS
) -> list[float]:
    """Seconds an input that each network takes; rounds go over all of them, so that a busy spell hits none alone."""
    device = torch.device(where)
    items = list(islice(cycle(prepared.dev[0].items), inputs or TIMED[device.type]))  # few would leave a GPU idle
    encoded = encode(items, prepared.tokenizer, prepared.note.encoding())
    numbers = default_precision(device)
    predictors = [
        Predictor(network.to(device), prepared.tokenizer, prepared.note, device, kind_of_numbers=numbers)
        for network in networks
    ]
    best = [float("inf")] * len(predictors)
    for turn in range(rounds + 1):
        for place, predictor in enumerate(predictors):
            begun = time.perf_counter()
            predictor.scores(encoded)
            if turn:  # the first one warms up
                best[place] = min(best[place], time.perf_counter() - begun)
    return [seconds / len(items) for seconds in best]
