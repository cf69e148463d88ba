"""Whether a run will fit into memory, asked before it begins; if not, the largest micro-batch that does."""

import os
from dataclasses import replace
from pathlib import Path

import torch

from litebert.errors import InputError
from litebert.nn.config import EncoderConfig
from litebert.plan.answer import Answer, Asked, answer, gib
from litebert.plan.devices import Device
from litebert.plan.memory import RUNTIME_BYTES
from litebert.plan.work import Kind, Scores
from litebert.pretrain.depths import generator_layers
from litebert.pretrain.objective import LOGIT_CHUNK
from litebert.pretrain.recipe import Recipe
from litebert.train.parallel import Ranks
from litebert.train.settings import TrainSettings


def check_memory(model: str, config: EncoderConfig, recipe: Recipe, train: TrainSettings, ranks: Ranks) -> None:
    """Refuse micro-batches that plan says will not fit into the memory that is free."""
    free = available_memory(ranks.device)
    if free is None:
        return
    length = max(length for _, length in recipe.lengths)
    chunk = 0 if train.compiled else LOGIT_CHUNK
    generator = generator_layers(recipe, config)
    if generator and config.share == "all" and not config.custom_plan:  # its layers' activations are held, too
        config = replace(config, num_layers=config.num_layers + generator, num_groups=1, layers_per_group=1)
    share = recipe.mask_rate * (2 if generator else 1) + (recipe.objective == "all-tokens")
    scores = Scores(share=share, chunk=chunk, elastic=recipe.elastic)
    found = predicted(model, config, train, length, ranks.device, free, scores)
    if found.fits:
        return
    largest = largest_micro_tokens(train, length, ranks.world, found.largest_tokens)
    way = f"--micro-tokens {largest}, the largest that fits" if largest else "a smaller model"
    less = "" if train.checkpointing else ", or --checkpointing, which takes less"
    raise InputError(
        f"{model} needs about {gib(found.peak.total)} for {train.micro_tokens:,} tokens at once, but "
        f"{gib(found.asked.device.usable_bytes)} are free; use {way}{less}"
    )


def predicted(
    model: str,
    config: EncoderConfig,
    train: TrainSettings,
    length: int,
    device: torch.device,
    free: float,
    scores: Scores,
) -> Answer:
    """What plan says of a step in so much memory."""
    kind: Kind = "cuda" if device.type == "cuda" else "cpu"
    here = Device(
        name="here",
        label="this machine",
        kind=kind,
        # Python and torch are in memory already, and plan counts them.
        memory_bytes=free + RUNTIME_BYTES[kind],
        flops={train.precision: 1.0},
        bandwidth=1.0,
        figures="only the memory is known",
    )
    asked = Asked(
        purpose="pretrain",
        device=here,
        precision=train.precision,
        tokens=train.micro_tokens,
        length=length,
        mixed=False,
        optimiser=train.optimiser.name,
        checkpointing=train.checkpointing,
        compiled=train.compiled,
        budget_seconds=None,
        measure_steps=0,
        scores=scores,
    )
    return answer(model, config, asked)


def largest_micro_tokens(train: TrainSettings, length: int, world: int, most: int) -> int:
    """The largest micro-batch of at most so many tokens that every batch of the run divides into; 0: none."""
    batches = [tokens for _, tokens in train.batch_tokens]
    for parts in range(1, max(batches) // (length * world) + 1):
        micro, rest = divmod(batches[0], parts * world)
        if not rest and micro <= most and all(tokens % (micro * world) == 0 for tokens in batches):
            return micro if micro >= length else 0
    return 0


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
