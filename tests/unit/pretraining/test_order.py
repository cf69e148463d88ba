"""The order loss kept alive: both answers count the same, and it pulls at the layers as hard as masked words do."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from litebert.pretraining.elastic import Elastic
from litebert.pretraining.objective import Pretraining, balanced_weights, scale_order_gradient
from litebert.train.objective import Learner

CPU = torch.device("cpu")


def gradients(network, objective, batch, weight=1.0):
    """Of masked words plus order, by name."""
    parts = objective.parts(network, objective.tensors(batch, CPU))
    network.zero_grad()
    sum((weight if "order" in name else 1.0) * part.loss for name, part in parts.items()).backward()
    return {name: parameter.grad.clone() for name, parameter in network.named_parameters()}


def test_both_answers_count_the_same():
    labels = torch.tensor([0, 1, 1, 1, -100])
    weights = balanced_weights(labels)
    assert weights.tolist() == pytest.approx([2.0, 2 / 3])
    assert weights[labels[:4]].sum() == pytest.approx(4.0)
    assert (
        balanced_weights(torch.tensor([1, 1, -100]))[1] == 1 / 2
        and balanced_weights(torch.tensor([-100])).isfinite().all()
    )


def test_a_batch_with_more_of_one_answer_says_nothing_by_that(network, batch):
    """All pooled tokens are alike here: what is left to learn from is how many pairs have which answer."""
    with torch.no_grad():
        network.pooler.dense.weight.zero_()
    plain, even = (gradients(network, Pretraining(32, 0, 4, pull), batch) for pull in (0.0, 1.0))
    for name in ("heads.order.linear.bias", "pooler.dense.bias"):
        assert plain[name].norm() > 1e-3 and even[name].norm() < 1e-3 * plain[name].norm(), name


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_order_pulls_as_hard_as_asked_whatever_its_head(scale):
    torch.manual_seed(0)
    states = torch.randn(6, 8, requires_grad=True)
    words, order = scale_order_gradient(states, states, 3.0)
    first, second = torch.randn(6, 8), scale * torch.randn(6, 8)
    ((words * first).sum() + (order * second).sum()).backward()
    pulled = states.grad - first
    assert pulled.norm() / first.norm() == pytest.approx(3, rel=1e-4)
    torch.testing.assert_close(pulled / pulled.norm(), second / second.norm(), rtol=1e-4, atol=1e-5)


def test_only_the_layers_feel_the_pull(network, batch):
    even = replace(batch, order_labels=np.array([0, 1, -100, -100], np.int32))
    plain, pulled = (gradients(network, Pretraining(32, 0, 4, pull), even) for pull in (0.0, 5.0))
    for name, gradient in plain.items():
        same = torch.allclose(gradient, pulled[name], rtol=1e-4, atol=1e-6)
        assert same == (not name.startswith("encoder.")), name


def test_before_order_counts_nothing_pulls(network, batch):
    none, zero = (gradients(network, Pretraining(32, 0, 4, pull), batch, weight=0.0) for pull in (0.0, 3.0))
    for name, gradient in none.items():
        torch.testing.assert_close(gradient, zero[name])


def test_elastic_depths_are_pulled_too(network, batch):
    even = replace(batch, order_labels=np.array([0, 1, -100, -100], np.int32))
    plain, pulled = (Elastic(Pretraining(32, 0, 4, pull), (1, 2, 3), 0) for pull in (0.0, 3.0))
    losses = [each.parts(network, each.tensors(even, CPU)) for each in (plain, pulled)]
    for name, part in losses[0].items():
        torch.testing.assert_close(part.loss, losses[1][name].loss)
    before, after = (gradients(network, each, even) for each in (plain, pulled))
    assert any(not torch.allclose(before[name], after[name], rtol=1e-3) for name in before if "encoder" in name)
    torch.testing.assert_close(before["pooler.dense.weight"], after["pooler.dense.weight"])


def test_it_compiles(network, batch):
    objective = Pretraining(32, 0, 4, 2.0)
    tensors = objective.tensors(batch, CPU)
    learner = Learner(network, objective)
    found = []
    for run in (learner, torch.compile(learner, backend="aot_eager")):
        network.zero_grad()
        sums = run(tensors)
        (sums["mlm"][0] + sums["order"][0]).backward()
        found.append({name: parameter.grad.clone() for name, parameter in network.named_parameters()})
    for name, gradient in found[0].items():
        torch.testing.assert_close(gradient, found[1][name], msg=name)
