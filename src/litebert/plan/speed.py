"""How long a step takes: the arithmetic at the rate of large products, plus the traffic to and from memory.

The traffic is taken to be a multiple of what a layer keeps for its backward pass. One multiple each for training and
inference, eager and compiled, fits the measured speeds of four model sizes on an H200 within a seventh (docs/plan.md).
"""

from dataclasses import replace

from litebert.nn.config import EncoderConfig
from litebert.plan.activations import layer_activations
from litebert.plan.arithmetic import flops_per_token, layer_flops
from litebert.plan.devices import Device
from litebert.plan.work import Work

# (training, compiled): bytes moved for each byte that a layer's backward pass needs kept
TRAFFIC = {(True, False): 16.0, (True, True): 8.5, (False, False): 4.2, (False, True): 3.5}
# (training, compiled): kernels a layer launches one after another; short steps take as long as starting them
LAUNCHES = {(True, False): 70, (True, True): 25, (False, False): 20, (False, True): 8}
LAUNCH_SECONDS = 6e-6


def seconds_per_step(config: EncoderConfig, work: Work, device: Device) -> float:
    """The time one batch takes."""
    training = work.purpose != "infer"
    flops = flops_per_token(config, work.longest, work.purpose)
    passes = 1.0
    if work.checkpointing and training:
        flops += config.num_layers * layer_flops(config, work.longest)
        passes = 4 / 3
    kept = config.num_layers * layer_activations(config, replace(work, compiled=False)).kept
    arithmetic = work.tokens * flops / device.flops[work.precision]
    traffic = TRAFFIC[training, work.compiled] * passes * kept / device.bandwidth
    if device.kind == "cpu":
        return arithmetic + traffic
    launches = LAUNCHES[training, work.compiled] * config.num_layers * passes * LAUNCH_SECONDS
    return max(arithmetic + traffic, launches)
