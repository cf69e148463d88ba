"""Permutation language modelling: who sees whom, what is lost on it, its order, its arithmetic, a model that learns."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from litebert.corpus.batches import original_ids
from litebert.nn.config import preset_config
from litebert.nn.layout import Layout
from litebert.nn.network import pretraining_network
from litebert.planning.arithmetic import query_flops
from litebert.pretraining.objective import batch_flops
from litebert.pretraining.permutation import (
    Permutation,
    PermutationAtDepths,
    drawn_order,
    query_places,
    step_flops,
    with_cls_last,
)
from litebert.train.objective import Learner
from litebert_lab.bench.random_batches import random_batch

CPU = torch.device("cpu")
TINY = ("vocab_size=60", "num_layers=4", "width=16", "embedding_width=16", "num_heads=2", "feed_forward_width=32")


@pytest.fixture(scope="module")
def config():
    return preset_config("xlnet-small", TINY)


@pytest.fixture
def network(config):
    """With weights large enough that what a token sees shows in its state."""
    torch.manual_seed(0)
    made = pretraining_network(config)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.3)
    return made


@pytest.fixture(scope="module")
def batch(config):
    made = random_batch(config, [16, 9, 30], tokens=64, length=32, sequences=4)
    return replace(made, order_labels=np.array([0, 1, 1, -100], np.int32))


def queries(network, tensors) -> torch.Tensor:
    """(M, H) what the query stream has at every masked position."""
    layout = Layout(tensors["starts"], tensors["positions"], 32)
    states = network.encoder.two_streams(
        *(tensors["ids"], layout, tensors["ranks"], tensors["segments"]), places=tensors["places"]
    )[1]
    return states.flatten(0, 1)[tensors["slots"]]


@torch.no_grad()
@pytest.mark.parametrize("all_at_once", [False, True])
def test_a_prediction_depends_on_its_context_and_on_earlier_tokens_of_the_order_alone(network, batch, all_at_once):
    """Neither on the token itself nor on later ones, through however many layers."""
    tensors = Permutation(32, seed=3, all_at_once=all_at_once).tensors(batch, CPU)
    before, number = queries(network, tensors)[: batch.num_masked], batch.num_masked
    sequence = np.searchsorted(batch.starts, np.arange(64), side="right")
    masked, ranks = batch.mask_positions[:number], tensors["ranks"]
    seen = unseen = 0
    for place in range(batch.num_tokens):
        ids = tensors["ids"].clone()
        ids[place] = (ids[place] + 7) % 60
        moved = (queries(network, {**tensors, "ids": ids})[:number] - before).abs().amax(-1) > 1e-6
        for one, other in enumerate(masked):
            visible = sequence[other] == sequence[place] and ranks[place] < ranks[other]
            assert bool(moved[one]) == bool(visible), (place, other)
            seen, unseen = seen + visible, unseen + (sequence[other] == sequence[place] and not visible)
    assert seen > 50 and unseen > 10


@torch.no_grad()
def test_parts_are_what_they_say(network, batch):
    objective = Permutation(32)
    tensors = objective.tensors(batch, CPU)
    assert torch.equal(tensors["ids"], torch.from_numpy(original_ids(batch)).long())
    parts, counts = objective.parts(network, tensors), objective.counts(batch)
    assert set(parts) == set(counts) == {"permutation", "order"} and counts["permutation"] == batch.num_masked
    layout = Layout(tensors["starts"], tensors["positions"], 32)
    content, query = network.encoder.two_streams(tensors["ids"], layout, tensors["ranks"], tensors["segments"])
    number = batch.num_masked
    logits = network.masked_lm(query, tensors["mask_positions"][:number])
    wanted = F.cross_entropy(logits, tensors["mask_targets"][:number], reduction="sum")
    torch.testing.assert_close(parts["permutation"].loss, wanted)
    torch.testing.assert_close(Permutation(32, chunk=8).parts(network, tensors)["permutation"].loss, wanted)
    answers = network.heads["order"](network.pooled(content, layout))
    torch.testing.assert_close(
        parts["order"].loss, F.cross_entropy(answers, tensors["order_labels"], ignore_index=-100, reduction="sum")
    )
    shallow = Permutation(32, depth=2).parts(network, tensors)["permutation"].loss
    assert shallow != wanted


def test_orders_are_permutations_that_belong_to_a_batch(batch):
    first = drawn_order(0, batch)
    assert sorted(first.tolist()) == list(range(batch.num_masked)) and first.tolist() != sorted(first.tolist())
    np.testing.assert_array_equal(first, drawn_order(0, replace(batch)))
    elsewhere = (replace(batch, index=7), replace(batch, epoch=1))
    for other in (drawn_order(1, batch), *(drawn_order(0, other) for other in elsewhere)):
        assert (first != other).any()


def test_every_masked_position_has_a_query_of_its_own(batch):
    places, slots = query_places(batch, 32)
    number = batch.num_masked
    assert len(set(slots[:number].tolist())) == number
    row, column = np.divmod(slots[:number], places.shape[1])
    np.testing.assert_array_equal(batch.starts[row] + places[row, column], batch.mask_positions[:number])
    nothing = replace(batch, num_masked=0)
    assert query_places(nothing, 32)[0].shape[0] == len(batch.starts) - 1


def test_cls_goes_to_the_end_in_a_segment_of_its_own(batch):
    moved = with_cls_last(batch)
    for begin, end in zip(batch.starts[:-1], batch.starts[1:], strict=True):
        if end > begin:
            assert moved.ids[end - 1] == batch.ids[begin] and moved.segments[end - 1] == 2
            np.testing.assert_array_equal(moved.ids[begin : end - 1], batch.ids[begin + 1 : end])
            np.testing.assert_array_equal(moved.segments[begin : end - 1], batch.segments[begin + 1 : end])
    number = batch.num_masked
    before, after = original_ids(batch), original_ids(moved)
    np.testing.assert_array_equal(before[batch.mask_positions[:number]], after[moved.mask_positions[:number]])
    np.testing.assert_array_equal(moved.positions, batch.positions)


def test_arithmetic_is_what_torch_counts(config):
    # Attention weights are dropped so that attention is written as products, which the counter knows.
    dropping = replace(config, attention_dropout=0.1)
    full = random_batch(dropping, [32] * 16, tokens=512, length=32, sequences=16)
    objective, network = Permutation(32), pretraining_network(dropping).train()
    tensors = objective.tensors(full, CPU)
    with FlopCounterMode(display=False) as counter:
        sum(part.loss for part in objective.parts(network, tensors).values()).backward()
    # The counter has the queries that pad the table and the head's, and the key terms of distances once a layer.
    padded = 3 * (tensors["places"].numel() - full.num_masked) * query_flops(dropping, 32)
    assert step_flops(dropping, full) + padded == pytest.approx(counter.get_total_flops(), rel=0.12)
    assert step_flops(dropping, full, 2) < 0.6 * step_flops(dropping, full)
    assert step_flops(dropping, replace(full, num_masked=0)) == batch_flops(dropping, replace(full, num_masked=0))


def test_checkpointing_changes_no_gradient(network, batch):
    objective = Permutation(32)
    tensors = objective.tensors(batch, CPU)

    def gradients(again):
        network.zero_grad()
        network.encoder.checkpointing = again
        objective.parts(network, tensors)["permutation"].loss.backward()
        return {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}

    plain = gradients(False)
    assert "encoder.embeddings.mask" in plain
    for name, gradient in gradients(True).items():
        torch.testing.assert_close(gradient, plain[name], msg=name)


@torch.no_grad()
def test_scores_at_depths_are_those_of_words_hidden_at_once_and_in_an_order(network, batch):
    scored = PermutationAtDepths(32, 8, (4, 2), cls_last=True)
    parts, counts = scored.parts(network, scored.tensors(batch, CPU)), scored.counts(batch)
    assert set(parts) == set(counts)
    for depth in (2, 4):
        alone = Permutation(32, depth=depth, cls_last=True, all_at_once=True)
        found = alone.parts(network, alone.tensors(batch, CPU))
        torch.testing.assert_close(parts[f"depth_{depth}_mlm"].loss, found["mlm"].loss)
        torch.testing.assert_close(parts[f"depth_{depth}_order"].loss, found["order"].loss)
    in_order = Permutation(32, cls_last=True)
    expected = in_order.parts(network, in_order.tensors(batch, CPU))["permutation"].loss
    torch.testing.assert_close(parts["depth_4_permutation"].loss, expected)
    assert expected != parts["depth_4_mlm"].loss


def test_a_tiny_model_learns_it(config):
    torch.manual_seed(0)
    network = pretraining_network(config)
    batches = [random_batch(config, [30, 30], tokens=64, length=32, sequences=4, seed=n) for n in range(2)]
    objective = Permutation(32)
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3)
    losses = []
    for step in range(120):
        batch = batches[step % 2]
        part = objective.parts(network, objective.tensors(batch, CPU))["permutation"].loss / batch.num_masked
        optimiser.zero_grad()
        part.backward()
        optimiser.step()
        losses.append(float(part.detach()))
    assert np.mean(losses[-4:]) < 0.7 * np.mean(losses[:4])


def test_one_graph_for_all_batches(network, batch):
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    objective, counter = Permutation(32), CompileCounter()
    learner = Learner(network, objective)
    learner.compile(backend=counter)
    for index in range(3):
        tensors = objective.tensors(replace(batch, index=index), CPU)
        compiled, plain = learner(tensors), objective.parts(network, tensors)
        for name, (loss, _) in compiled.items():
            torch.testing.assert_close(loss, plain[name].loss)
    assert counter.frame_count == 1
