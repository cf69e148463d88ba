"""CKA against its definition, and what it must not see."""

from itertools import permutations

import numpy as np
import pytest
import torch

from litebert.analyse.layer_statistics import GROUP, Similarity, group_hsic


def hsic_by_definition(x: np.ndarray, y: np.ndarray) -> float:
    """The unbiased HSIC as a mean over ordered quadruples of different tokens (Song et al. 2012, theorem 3)."""
    k, m = x @ x.T, y @ y.T
    terms = [k[i, j] * (m[i, j] + m[q, r] - 2 * m[i, q]) for i, j, q, r in permutations(range(len(x)), 4)]
    return float(np.mean(terms))


def test_unbiased_hsic_follows_its_definition():
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(7, 3)), generator.normal(size=(7, 3)) + 5
    found = group_hsic(torch.tensor(np.stack([x, y])))
    for a, first in enumerate((x, y)):
        for b, second in enumerate((x, y)):
            assert float(found[a, b]) == pytest.approx(hsic_by_definition(first, second), rel=1e-9)


def value(*states: torch.Tensor) -> list[list[float]]:
    similarity = Similarity()
    similarity.add(list(states))
    return similarity.value()


def test_rotated_scaled_and_shifted_states_are_the_same():
    torch.manual_seed(0)
    x = torch.randn(300, 8)
    rotation, _ = torch.linalg.qr(torch.randn(8, 8))
    matrix = value(x, 3 * x @ rotation + 7)
    assert np.allclose(matrix, 1.0, atol=1e-6)


def test_unrelated_states_are_unlike_and_parts_are_between():
    torch.manual_seed(0)
    x, y = torch.randn(4000, 8), torch.randn(4000, 8)
    matrix = value(x, y, x + y)
    assert matrix[0][1] < 0.02
    assert 0.3 < matrix[0][2] < 0.7
    assert np.allclose(np.diag(matrix), 1.0)


def test_batches_add_up():
    torch.manual_seed(0)
    x = torch.randn(4 * GROUP, 8)
    y = x + torch.randn_like(x)
    similarity = Similarity()
    for part in range(4):
        similarity.add([x[part * GROUP : (part + 1) * GROUP], y[part * GROUP : (part + 1) * GROUP]])
    assert similarity.value()[0][1] == pytest.approx(value(x, y)[0][1], abs=0.03)


def test_too_few_tokens_give_no_matrix():
    assert value(torch.randn(3, 4), torch.randn(3, 4)) == []
