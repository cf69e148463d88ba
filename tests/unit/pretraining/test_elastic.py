"""Elastic depth: both depths' losses out of one pass, the same draw wherever a batch is trained, one graph for all."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from litebert.nn.layout import Layout
from litebert.pretraining.elastic import EVERY, Elastic, quarters, shallower_depths
from litebert.pretraining.held_out import scored_depths
from litebert.pretraining.objective import Pretraining
from litebert.train.objective import Learner

CPU = torch.device("cpu")


@pytest.fixture
def network(network):
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(10 if parameter.ndim == 2 else 1)  # or all depths would predict the same
    return network


def elastic(chunk: int = 0, seed: int = 0) -> Elastic:
    return Elastic(Pretraining(32, chunk, 4), (1, 2, 3), seed)


def test_depths_to_draw_from_and_to_report():
    assert shallower_depths(12, 12) == tuple(range(3, 12))
    assert shallower_depths(24, 24)[0] == 3 and shallower_depths(6, 6) == (2, 3, 4, 5)
    assert shallower_depths(3, 12) == () and shallower_depths(4, 4) == (1, 2, 3)
    assert quarters(12) == (3, 6, 9, 12) and quarters(4) == (1, 2, 3, 4) and quarters(2) == (1, 2)
    assert scored_depths(6, 12, False, quarters(12)) == (6, 3)
    assert scored_depths(12, 12, True, quarters(12)) == (12, 3, 6, 9)


@torch.no_grad()
def test_both_depths_lose_what_they_lose_alone(network, batch):
    objective = elastic()
    tensors = objective.tensors(batch, CPU)
    parts = objective.parts(network, tensors)
    depth = objective.shallower[objective.choice(batch)]
    deep, shallow = (Pretraining(32, 0, d).parts(network, tensors) for d in (4, depth))
    torch.testing.assert_close(parts["mlm"].loss, deep["mlm"].loss)
    torch.testing.assert_close(parts["order"].loss, deep["order"].loss)
    torch.testing.assert_close(parts["shallow_order"].loss, shallow["order"].loss)
    some = {**tensors, **{name: tensors[name][::EVERY] for name in ("mask_positions", "mask_targets")}}
    alone = Pretraining(32, 0, depth).parts(network, some)
    torch.testing.assert_close(parts["shallow_mlm"].loss, alone["mlm"].loss)
    assert set(parts) == set(objective.counts(batch))
    assert objective.counts(batch)["shallow_mlm"] == int((some["mask_targets"] != -100).sum()) > 0


def test_the_teacher_is_not_taught(network, batch):
    """The gradient of the divergence is that of cross entropy with the deeper depth's fixed predictions."""
    objective = elastic()
    tensors = objective.tensors(batch, CPU)
    objective.parts(network, tensors)["taught"].loss.backward()
    ours = {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}
    network.zero_grad()
    layout = Layout(tensors["starts"], tensors["positions"], 32)
    states = network.encoder.states(tensors["ids"], layout, tensors["segments"])
    places, targets = tensors["mask_positions"][::EVERY], tensors["mask_targets"][::EVERY]
    real = targets != -100
    teacher = network.masked_lm(states[4], places).softmax(-1).detach()
    student = network.masked_lm(states[objective.shallower[objective.choice(batch)]], places)
    F.cross_entropy(student[real], teacher[real], reduction="sum").backward()
    for name, gradient in ours.items():
        other = dict(network.named_parameters())[name].grad
        torch.testing.assert_close(gradient, torch.zeros_like(gradient) if other is None else other, msg=name)


def test_chunks_change_nothing(network, batch):
    losses, gradients = [], []
    for chunk in (0, 4):
        network.zero_grad()
        parts = elastic(chunk).parts(network, elastic().tensors(batch, CPU))
        sum(part.loss for part in parts.values()).backward()
        losses.append({name: part.loss.item() for name, part in parts.items()})
        gradients.append(network.encoder.attention[0].qkv.weight.grad.clone())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    torch.testing.assert_close(gradients[0], gradients[1])


def test_a_batch_draws_the_same_anywhere_and_shallow_depths_are_drawn_more_often(batch):
    batches = [replace(batch, epoch=epoch, index=index) for epoch in range(2) for index in range(600)]
    drawn = [elastic().choice(each) for each in batches]
    assert drawn == [elastic().choice(each) for each in batches]
    assert drawn != [elastic(seed=1).choice(each) for each in batches]
    counts = np.bincount(drawn, minlength=3)  # of depths 1, 2 and 3: as 1 to 1/2 to 1/3
    np.testing.assert_allclose(counts / 1200, np.array([6, 3, 2]) / 11, atol=0.04)


def test_one_graph_for_all_depths(network, batch):
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    objective, counter = elastic(), CompileCounter()
    learner = Learner(network, objective)
    learner.compile(backend=counter)
    batches = [replace(batch, index=index) for index in range(6)]
    assert len({objective.choice(each) for each in batches}) == 3
    for each in batches:
        tensors = objective.tensors(each, CPU)
        compiled, plain = learner(tensors), objective.parts(network, tensors)
        for name, (loss, _) in compiled.items():
            torch.testing.assert_close(loss, plain[name].loss)
    assert counter.frame_count == 1
