"""Whether a run fits into memory, checked before it begins; if not, the largest micro-batch that does.

And the longest text that there is memory for now.
"""

import os
from dataclasses import replace
from pathlib import Path

import torch

from litebert.errors import InputError
from litebert.nn.attention import has_flash
from litebert.nn.config import EncoderConfig
from litebert.planning.arithmetic import Purpose
from litebert.planning.count import RUNTIME_BYTES, SHORT, count_parameters, longest_in, record_step
from litebert.planning.devices import USABLE_SHARE, Kind
from litebert.planning.step import StepSettings
from litebert.planning.table import gib
from litebert.pretraining.recipe import Recipe, generator_layers
from litebert.train.parallel import Ranks
from litebert.train.settings import Precision, TrainSettings

AVERAGE_BYTES = 4  # of a parameter in an average of the weights


def check_memory(model: str, config: EncoderConfig, recipe: Recipe, train: TrainSettings, ranks: Ranks) -> None:
    """Refuse micro-batches that will not fit into free memory, as plan predicts."""
    free = available_memory(ranks.device)
    if free is None:
        return
    kind: Kind = "cuda" if ranks.device.type == "cuda" else "cpu"
    step = StepSettings(
        kind=kind,
        length=max(length for _, length in recipe.batches.lengths),
        precision=train.precision,
        optimiser=train.optimiser.name,
        checkpointing=train.checkpointing,
        compiled=train.compiled,
        flash=kind == "cuda" and has_flash(),
        mask_rate=recipe.highest_mask_rate,
        elastic=recipe.elastic,
    )
    generator = generator_layers(recipe, config)
    if generator and config.share == "all" and not config.custom_plan:  # the generator's activations are kept, too
        config = replace(config, num_layers=config.num_layers + generator, num_groups=1, layers_per_group=1)
        scored = 1.0 if recipe.objective == "all-tokens" else min(1.0, 2 * recipe.highest_mask_rate)
        step = replace(step, mask_rate=scored)
    record = record_step(config, step)
    # Python and torch are in memory already, and plan counts them.
    usable = USABLE_SHARE[step.kind] * (free + RUNTIME_BYTES[step.kind])
    if recipe.averaging.kind != "none":
        usable -= AVERAGE_BYTES * count_parameters(config).with_heads
    # The query stream of a permutation language model is about as many tokens more as it predicts.
    streams = 1 + recipe.highest_mask_rate if recipe.objective == "permutation" else 1.0
    needed = record.memory(round(streams * train.micro_tokens)).total
    if needed <= usable:
        return
    largest = largest_micro_tokens(train, step.length, ranks.world, int(record.largest_tokens(usable) / streams))
    fitting = f"--micro-tokens {largest}, the largest that fits" if largest else "a smaller model"
    less = "" if train.checkpointing else ", or --checkpointing, which takes less"
    raise InputError(
        f"{model} needs about {gib(needed)} for {train.micro_tokens:,} tokens at once, but "
        f"{gib(usable)} are free; use {fitting}{less}"
    )


def largest_micro_tokens(train: TrainSettings, length: int, world: int, most: int) -> int:
    """The largest micro-batch of at most ``most`` tokens that every batch of the run divides into; 0: none."""
    batches = [tokens for _, tokens in train.batch_tokens]
    for parts in range(1, max(batches) // (length * world) + 1):
        micro, rest = divmod(batches[0], parts * world)
        if not rest and micro <= most and all(tokens % (micro * world) == 0 for tokens in batches):
            return micro if micro >= length else 0
    return 0


def longest_that_fits(
    config: EncoderConfig, purpose: Purpose, device: torch.device, precision: Precision, pass_tokens: int
) -> int:
    """Tokens of the longest input for which there is free memory, in passes of ``pass_tokens``."""
    limit = config.input_limit()
    free = available_memory(device)
    if free is None or limit <= SHORT:
        return limit
    kind: Kind = "cuda" if device.type == "cuda" else "cpu"
    step = StepSettings(
        purpose=purpose, kind=kind, length=limit, precision=precision, flash=kind == "cuda" and has_flash()
    )
    return longest_in(config, step, USABLE_SHARE[kind] * (free + RUNTIME_BYTES[kind]), pass_tokens)


def available_memory(device: torch.device) -> float | None:
    """Bytes that this process may still take, its share where several ranks share a machine; None: not known."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    lines = Path("/proc/meminfo")
    if not lines.is_file():
        return None
    fields = dict(line.split(":", 1) for line in lines.read_text().splitlines())
    free = 1024.0 * float(fields["MemAvailable"].split()[0])
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.is_file() and used.is_file() and limit.read_text().strip().isdigit():  # a container's own limit
        free = min(free, float(limit.read_text()) - float(used.read_text()))
    return free / int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
