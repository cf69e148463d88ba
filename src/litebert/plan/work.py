"""What a model is to be used for: how many tokens at once, of what length, in which precision, with which optimiser."""

from dataclasses import dataclass, field
from typing import Literal

from litebert.plan.arithmetic import MASKED_SHARE, Purpose

Precision = Literal["fp32", "bf16", "fp16"]
Optimiser = Literal["adamw", "lamb", "muon", "sgd"]
Kind = Literal["cuda", "cpu"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16", "fp16")
OPTIMISERS: tuple[Optimiser, ...] = ("adamw", "lamb", "muon", "sgd")


@dataclass(frozen=True, kw_only=True)
class Scores:
    """How pretraining comes to the scores of the vocabulary."""

    share: float = MASKED_SHARE  # of the tokens are predicted
    chunk: int = 0  # positions whose scores are held at once; 0: all
    elastic: bool = False  # at a second depth, too, which learns from the first


@dataclass(frozen=True, kw_only=True)
class Work:
    """One batch and all that decides what it costs."""

    purpose: Purpose
    kind: Kind
    tokens: int
    sequences: int
    longest: int
    precision: Precision
    optimiser: Optimiser = "adamw"
    checkpointing: bool = False
    compiled: bool = False
    flash: bool = True  # whether the GPU is new enough for flash attention
    narrow: bool = False  # a residual stream as wide as the products' numbers, which pretraining has
    scores: Scores = field(default_factory=Scores)

    @property
    def is_half(self) -> bool:
        return self.precision != "fp32"

    @property
    def number_bytes(self) -> int:
        """Bytes of a number in the matrix products."""
        return 2 if self.is_half else 4


def lengths_for(tokens: int, length: int, mixed: bool) -> list[int]:
    """Sequence lengths that add up to ``tokens``: all of ``length``, or mixed, evenly from 1 / 8 of it to all of it."""
    lengths: list[int] = []
    left, turn = tokens, 0
    while left > 0:
        size = max(1, length * (1 + (5 * turn) % 8) // 8) if mixed else length  # 5 and 8 share no factor: each eighth
        lengths.append(min(size, left))
        left -= lengths[-1]
        turn += 1
    return lengths
