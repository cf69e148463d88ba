"""Batches of a task: every example once an epoch, the same from any position, and filling that changes nothing."""

import numpy as np
import pytest
import torch
import toy_tasks as toy

from litebert.checkpoints.folder import load_model
from litebert.tasks.encoding import TaskBatches, filled_size
from litebert.tasks.examples import EncodingSettings
from litebert.tasks.kinds import KINDS
from litebert.tasks.objective import TaskObjective
from litebert.tasks.prepare import start_network, task_heads
from litebert.tasks.recipes import FinetuneRecipe


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return load_model(toy.make_model(tmp_path_factory.mktemp("bert")))


def made(source, kind: str, count: int = 30, **how):
    data = toy.task(kind, count)
    inputs = KINDS[data.kind].encode(data.train, source.tokenizer, EncodingSettings(length=24, stride=8))
    targets = KINDS[data.kind].targets(data.train, inputs, len(data.labels))
    return data, TaskBatches(inputs, targets, choosing=data.kind == "choice", **{"batch": 8, **how})


def texts(batch) -> list[tuple[int, ...]]:
    return sorted(tuple(batch.ids[a:b].tolist()) for a, b in zip(batch.starts[:-1], batch.starts[1:], strict=True))


def test_an_epoch_has_every_example_once_and_epochs_differ(source):
    _, batches = made(source, "classify")
    inputs = batches.inputs
    whole = sorted(tuple(inputs.ids[a:b].tolist()) for a, b in zip(inputs.starts[:-1], inputs.starts[1:], strict=True))
    assert batches.len() == 4
    for epoch in (0, 1):
        assert sorted(text for index in range(4) for text in texts(batches.batch(epoch, index))) == whole
    assert texts(batches.batch(0, 0)) != texts(batches.batch(1, 0))
    assert [batches.batch(0, index).num_units for index in range(4)] == [8, 8, 8, 6]


def test_labels_stay_with_their_texts(source):
    _, batches = made(source, "classify")
    good, bad = (source.tokenizer.ids(word)[0] for word in ("good", "bad"))
    for index in range(4):
        batch = batches.batch(0, index)
        for row, label in enumerate(batch.labels):
            ids = batch.ids[batch.starts[row] : batch.starts[row + 1]]
            assert (good in ids) == (label == 1) and (bad in ids) == (label == 0)


def test_a_stream_goes_on_from_any_position_and_ranks_share_it(source):
    _, batches = made(source, "classify")
    stream = batches.stream((0, 0))
    first = [texts(next(stream)) for _ in range(9)]
    later = batches.stream(batches.advance((0, 0), 5))
    assert [texts(next(later)) for _ in range(4)] == first[5:]
    ranks = [batches.stream((0, 0), rank=rank, world=2) for rank in (0, 1)]
    assert [texts(next(ranks[n % 2])) for n in range(8)] == first[:8]


def test_passes_of_a_step_add_up_to_the_step(source):
    _, whole = made(source, "classify", 17)
    _, split = made(source, "classify", 17, passes=3)
    assert split.len() == 9
    for step in range(2):
        parts = [text for part in range(3) for text in texts(split.batch(0, 3 * step + part))]
        assert sorted(parts) == texts(whole.batch(0, step))
    assert all(split.batch(0, index).num_units for index in range(9))  # the last step has one example and three passes


@pytest.mark.parametrize("kind", ["classify", "multilabel", "regress", "choice", "span", "span2"])
def test_filling_changes_neither_losses_nor_gradients(kind, source):
    data, plain = made(source, kind)
    _, filled = made(source, kind, filled=True)
    heads = task_heads(data, answerable=True)
    network, _ = start_network(source.network, heads, FinetuneRecipe(classifier_dropout=0.0), 0)
    shapes = set()
    for index in range(plain.len()):
        found = []
        for batches in (plain, filled):
            batch = batches.batch(0, index)
            objective = TaskObjective(
                data.kind, batches.inputs.longest, options=batches.options, answerable=heads.answerable
            )
            parts = objective.parts(network, objective.tensors(batch, torch.device("cpu")))
            loss = sum(part.loss for part in parts.values())
            network.zero_grad()
            loss.backward()
            gradients = [p.grad.clone() for p in network.parameters() if p.grad is not None]
            rights = [float(part.right) for part in parts.values()]
            found.append((float(loss.detach()), objective.counts(batch), rights, gradients))
            if batches is filled:
                shapes.add((len(batch.ids), len(batch.starts)))
        (loss, counts, rights, gradients), (loss2, counts2, rights2, gradients2) = found
        assert counts == counts2 and np.allclose(loss, loss2, atol=1e-4)
        assert rights == rights2 or kind == "regress"
        for one, other in zip(gradients, gradients2, strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    assert len({sequences for _, sequences in shapes}) <= 3


def test_few_sizes_and_little_filling():
    sizes = {filled_size(tokens) for tokens in range(256, 4097)}
    assert len(sizes) <= 18
    assert all(tokens <= filled_size(tokens) <= 1.25 * tokens + 16 for tokens in range(1, 5000))
