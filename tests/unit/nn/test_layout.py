"""Layouts: where sequences start, empty ones among them."""

import torch

from litebert.nn.layout import Layout


def test_a_layout_counts_from_each_start():
    layout = Layout.of([2, 0, 3])
    assert layout.starts.tolist() == [0, 2, 2, 5] and layout.starts.dtype == torch.int32
    assert layout.positions.tolist() == [0, 1, 0, 1, 2]
    assert (layout.num_sequences, layout.num_tokens, layout.longest) == (3, 5, 3)
    assert layout.first.tolist() == [0, 2, 2] and layout.last.tolist() == [1, 1, 4]
    assert layout.sequence_of_token().tolist() == [0, 0, 2, 2, 2]


def test_empty_sequences_at_the_end_fill_up_a_fixed_shape():
    layout = Layout.of([2, 3, 0, 0, 0])
    assert layout.starts.tolist() == [0, 2, 5, 5, 5, 5]
    assert layout.longest == 3 and layout.lengths.tolist() == [2, 3, 0, 0, 0]
    assert layout.first.tolist() == [0, 2, 4, 4, 4] and layout.last.tolist() == [1, 4, 4, 4, 4]
