"""The inputs of a task as packed batches for looking at a model."""

from collections.abc import Iterator

import torch

from litebert.analyse.inputs import BATCH_TOKENS, Inputs
from litebert.nn.layout import Layout
from litebert.tasks.encoding import Inputs as Encoded


def packed(encoded: Encoded, device: str) -> Iterator[Inputs]:
    """The inputs of a task as batches of a bounded number of tokens."""
    lengths = encoded.lengths.tolist()
    first = 0
    while first < len(lengths):
        last = first + 1
        while last < len(lengths) and sum(lengths[first : last + 1]) <= BATCH_TOKENS:
            last += 1
        some = slice(int(encoded.starts[first]), int(encoded.starts[last]))
        ids, segments = (torch.from_numpy(part[some]).long().to(device) for part in (encoded.ids, encoded.segments))
        yield Inputs(ids, Layout.of(lengths[first:last], device), segments)
        first = last
