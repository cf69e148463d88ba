"""Where sequences begin in a flat row of tokens. A batch is such a row: there is no padding anywhere.

T tokens, S sequences.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from litebert.nn.attention_pattern import FULL, Pattern


@dataclass(frozen=True)
class Layout:
    """Sequences laid end to end. ``longest`` is a bound on their lengths that attention kernels plan with."""

    starts: Tensor  # (S + 1) int32: where each sequence begins, then where the last one ends
    positions: Tensor  # (T) int64: the place of each token within its own sequence
    longest: int
    limit: Pattern | None = None  # of what a token sees in the present layer; None compiles, an object would not
    chosen: Tensor | None = None  # (any number) flat indices of tokens that are global where attention is sparse

    @classmethod
    def of(
        cls, lengths: Sequence[int], device: torch.device | str = "cpu", *, chosen: Sequence[int] | None = None
    ) -> "Layout":
        """The layout of sequences of these lengths; ``chosen`` are flat indices of further global tokens."""
        sizes = torch.tensor(lengths, dtype=torch.int64)
        ends = sizes.cumsum(0)
        starts = torch.cat([ends.new_zeros(1), ends])
        positions = torch.arange(int(starts[-1])) - torch.repeat_interleave(starts[:-1], sizes)
        marked = None if chosen is None else torch.tensor(chosen, dtype=torch.int64, device=device)
        longest = max(lengths, default=0)
        return cls(starts.to(device, torch.int32), positions.to(device), longest, chosen=marked)

    def with_pattern(self, pattern: Pattern) -> "Layout":
        """The same sequences where a token sees this much."""
        limit = None if pattern.kind == "full" else pattern
        return self if limit == self.limit else Layout(self.starts, self.positions, self.longest, limit, self.chosen)

    @property
    def pattern(self) -> Pattern:
        """What a token sees in the present layer."""
        return self.limit or FULL

    @property
    def is_full(self) -> bool:
        """Whether every token sees all of its sequence."""
        return self.limit is None or self.limit.sees_all(self.longest)

    @property
    def num_sequences(self) -> int:
        return self.starts.shape[0] - 1

    @property
    def num_tokens(self) -> int:
        return self.positions.shape[0]

    @property
    def first(self) -> Tensor:
        """The flat index of each sequence's first token (of an empty one at the end: some token, for fixed shapes)."""
        return self.starts[:-1].long().clamp(max=self.num_tokens - 1)

    @property
    def last(self) -> Tensor:
        """The flat index of each sequence's last token."""
        return (self.starts[1:].long() - 1).clamp(min=0)

    @property
    def lengths(self) -> Tensor:
        return (self.starts[1:] - self.starts[:-1]).long()

    def sequence_of_token(self) -> Tensor:
        """(T) the number of the sequence each token is in."""
        # Counts the ends passed so far. (torch 2.11 compiles searchsorted on a slice of ``starts`` wrongly.)
        ends = self.starts[1:].long()
        passed = torch.zeros(self.num_tokens + 1, dtype=torch.int64, device=ends.device)
        return passed.index_add(0, ends, torch.ones_like(ends)).cumsum(0)[:-1]

    def to(self, device: torch.device | str) -> "Layout":
        """The same layout on another device."""
        chosen = None if self.chosen is None else self.chosen.to(device)
        return Layout(self.starts.to(device), self.positions.to(device), self.longest, self.limit, chosen)
