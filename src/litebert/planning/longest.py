"""The longest text for which there is memory: the limit that fine-tuning and encoding take where none is given."""

from dataclasses import replace

from litebert.nn.config import EncoderConfig
from litebert.planning.count import record_step
from litebert.planning.step import StepSettings

SHORT = 512  # tokens for which there is always memory


def longest_in(config: EncoderConfig, step: StepSettings, usable: float, pass_tokens: int = 0) -> int:
    """Tokens of the longest input: all that have a position, or half as often as it takes to fit into ``usable`` bytes.

    A forward pass holds ``pass_tokens`` or, where that is more, one input.
    """
    limit = config.input_limit()
    while limit > SHORT:
        record = record_step(config, replace(step, length=limit))
        if record.memory(max(limit, pass_tokens)).total <= usable:
            break
        limit = max(SHORT, limit // 2)
    return limit
