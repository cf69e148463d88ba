"""Replaced tokens: what is drawn, what is lost on it, whose gradients go where, and a tiny model that learns it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from litebert.errors import InputError
from litebert.nn.layout import Layout
from litebert.nn.network import pretraining_network
from litebert.pretraining.objective import Pretraining, batch_flops
from litebert.pretraining.recipe import Recipe, generator_layers
from litebert.pretraining.replaced import BeforeReplaced, Replaced, sample_tokens, step_flops, uniform_draws
from litebert.train.objective import Learner
from litebert_lab.bench.random_batches import random_batch

CPU = torch.device("cpu")


@pytest.fixture
def network(tiny_config):
    torch.manual_seed(0)
    return pretraining_network(tiny_config, ("masked_lm", "order", "replaced"))


def replaced(question="replaced", chunk=0, seed=0, masked_every=2, **how) -> Replaced:
    return Replaced(Pretraining(32, chunk, 4), question, 2, seed, masked_every=masked_every, **how)


def shown(objective: Replaced, network, tensors) -> torch.Tensor:
    layout = Layout(tensors["starts"], tensors["positions"], 32)
    states = network.encoder(tensors["ids"], layout, tensors["segments"], depth=2)
    return objective._shown(network, states[tensors["mask_positions"]], tensors)


def test_guesses_follow_the_probabilities():
    logits = torch.tensor([[0.0, 1.0, 2.0, -torch.inf]]).expand(20_000, -1)
    guesses = sample_tokens(logits, torch.rand(20_000, generator=torch.Generator().manual_seed(0)))
    shares = torch.bincount(guesses, minlength=4) / 20_000
    torch.testing.assert_close(shares, logits[0].softmax(-1), atol=0.01, rtol=0)
    last = torch.tensor([np.nextafter(np.float32(1), np.float32(0))])
    assert (
        sample_tokens(torch.zeros(1, 5), last).item() == 4
        and sample_tokens(torch.zeros(1, 5), torch.zeros(1)).item() == 0
    )


def test_a_batch_draws_the_same_anywhere(batch):
    first = uniform_draws(0, batch)
    assert first.dtype == np.float32 and first.shape == batch.mask_positions.shape
    np.testing.assert_array_equal(first, uniform_draws(0, replace(batch)))
    for other in (
        uniform_draws(1, batch),
        uniform_draws(0, replace(batch, index=7)),
        uniform_draws(0, replace(batch, epoch=1)),
    ):
        assert (first != other).any()


@torch.no_grad()
def test_only_masks_are_filled_and_every_second_sequence_keeps_its_own(network, batch):
    objective = replaced()
    tensors = objective.tensors(batch, CPU)
    seen = shown(objective, network, tensors)
    sequence = np.searchsorted(batch.starts, np.arange(64), side="right")
    keeps = torch.from_numpy((sequence + batch.index) % 2 == 0)
    assert torch.equal(seen[keeps], tensors["ids"][keeps]) and 0 < keeps.sum() < 64
    masked = torch.zeros(64, dtype=torch.bool)
    masked[torch.from_numpy(batch.mask_positions[: batch.num_masked]).long()] = True
    assert torch.equal(seen[~masked], tensors["original"][~masked])
    assert (seen[masked & ~keeps] != tensors["original"][masked & ~keeps]).any()
    assert torch.equal(seen, shown(objective, network, tensors))
    assert torch.equal(seen, shown(replaced(chunk=4), network, tensors))


@torch.no_grad()
def test_parts_are_what_they_say(network, batch):
    objective = replaced()
    tensors = objective.tensors(batch, CPU)
    parts, counts = objective.parts(network, tensors), objective.counts(batch)
    assert set(parts) == set(counts) == {"generator", "replaced", "mlm", "order"}
    generator = Pretraining(32, 0, 2).parts(network, tensors)["mlm"]
    torch.testing.assert_close(parts["generator"].loss, generator.loss)
    seen = shown(objective, network, tensors)
    states = network.encoder(seen, Layout(tensors["starts"], tensors["positions"], 32), tensors["segments"])
    real = (torch.arange(64) < batch.num_tokens) & ~tensors["keeps"]
    wanted = (seen != tensors["original"])[real].float()
    loss = F.binary_cross_entropy_with_logits(network.heads["replaced"](states)[real], wanted, reduction="sum")
    torch.testing.assert_close(parts["replaced"].loss, loss)
    assert counts["replaced"] == int(real.sum())
    kept = tensors["kept_targets"] != -100
    assert counts["mlm"] == int(kept.sum()) > 0
    logits = network.masked_lm(states, tensors["mask_positions"])[kept]
    wanted = tensors["mask_targets"][kept]
    torch.testing.assert_close(parts["mlm"].loss, F.cross_entropy(logits, wanted, reduction="sum"))
    torch.testing.assert_close(objective.parts(network, tensors)["order"].loss, parts["order"].loss)


@torch.no_grad()
def test_all_tokens_predicts_what_was_there(network, batch):
    objective = replaced("all-tokens", masked_every=0)
    tensors = objective.tensors(batch, CPU)
    parts, counts = objective.parts(network, tensors), objective.counts(batch)
    assert set(parts) == set(counts) == {"generator", "tokens", "order"} and counts["tokens"] == batch.num_tokens
    seen = shown(objective, network, tensors)
    states = network.encoder(seen, Layout(tensors["starts"], tensors["positions"], 32), tensors["segments"])
    real = torch.arange(batch.num_tokens)
    loss = F.cross_entropy(network.masked_lm(states, real), tensors["original"][real], reduction="sum")
    torch.testing.assert_close(parts["tokens"].loss, loss)
    chunked = replaced("all-tokens", chunk=8, masked_every=0).parts(network, tensors)
    torch.testing.assert_close(chunked["tokens"].loss, loss)


def gradients(network, objective: Replaced, part: str, tensors) -> dict[str, torch.Tensor]:
    network.zero_grad()
    objective.parts(network, tensors)[part].loss.backward()
    return {name: p.grad.clone() for name, p in network.named_parameters() if p.grad is not None}


def test_no_gradient_passes_through_guesses(network, batch):
    """Detection's gradient is that of a pass over the changed text, as if somebody else had written it."""
    objective = replaced()
    tensors = objective.tensors(batch, CPU)
    ours = gradients(network, objective, "replaced", tensors)
    assert not any(name.startswith("heads.masked_lm") for name in ours)
    seen = shown(objective, network, tensors)
    network.zero_grad()
    states = network.encoder(seen, Layout(tensors["starts"], tensors["positions"], 32), tensors["segments"])
    logits, wanted = network.heads["replaced"](states), (seen != tensors["original"]).float()
    (F.binary_cross_entropy_with_logits(logits, wanted, reduction="none") * tensors["counted"]).sum().backward()
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, dict(network.named_parameters())[name].grad, msg=name)
    generator = gradients(network, objective, "generator", tensors)
    assert not any(name.startswith("heads.replaced") for name in generator)


def test_fixed_embeddings_are_the_generators_alone(network, batch):
    objective = replaced(fixed_embeddings=True)
    tensors = objective.tensors(batch, CPU)
    assert not any(".embeddings." in name for name in gradients(network, objective, "replaced", tensors))
    assert any(".embeddings." in name for name in gradients(network, objective, "generator", tensors))
    free = gradients(network, replaced(), "replaced", tensors)
    torch.testing.assert_close(
        gradients(network, objective, "replaced", tensors)["heads.replaced.score.weight"],
        free["heads.replaced.score.weight"],
    )


@pytest.mark.parametrize(("question", "part"), [("replaced", "replaced"), ("all-tokens", "tokens")])
def test_a_tiny_model_learns_it(question, part, network, tiny_config):
    batches = [random_batch(tiny_config, [30, 30], tokens=64, length=32, sequences=4, seed=n) for n in range(2)]
    objective = replaced(question, masked_every=0)
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3)
    losses = []
    for step in range(120):
        batch = batches[step % 2]
        parts, counts = objective.parts(network, objective.tensors(batch, CPU)), objective.counts(batch)
        optimiser.zero_grad()
        sum(parts[name].loss / max(counts[name], 1) for name in parts).backward()
        optimiser.step()
        losses.append([float(parts[name].loss.detach()) / counts[name] for name in ("generator", part)])
    begun, ended = np.mean(losses[:4], 0), np.mean(losses[-4:], 0)
    assert (ended < 0.7 * begun).all(), (begun, ended)


def test_one_graph_for_all_batches(network, batch):
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    objective, counter = replaced(), CompileCounter()
    learner = Learner(network, objective)
    learner.compile(backend=counter)
    for index in range(3):
        tensors = objective.tensors(replace(batch, index=index), CPU)
        compiled, plain = learner(tensors), objective.parts(network, tensors)
        for name, (loss, _) in compiled.items():
            torch.testing.assert_close(loss, plain[name].loss)
    assert counter.frame_count == 1


def test_before_its_time_the_head_takes_part_for_nothing(network, batch):
    plain, waiting = Pretraining(32, 0, 2), BeforeReplaced(32, 0, 2)
    tensors = plain.tensors(batch, CPU)
    parts = waiting.parts(network, tensors)
    torch.testing.assert_close(parts["mlm"].loss, plain.parts(network, tensors)["mlm"].loss)
    sum(part.loss for part in parts.values()).backward()
    assert all(not parameter.grad.any() for parameter in network.heads["replaced"].parameters())
    assert set(parts) == set(waiting.counts(batch))


def test_arithmetic_and_depth(tiny_config, batch):
    both = batch_flops(tiny_config, batch, depth=2) + batch_flops(tiny_config, batch)
    assert step_flops(tiny_config, batch, generator_depth=2, question="replaced") == both
    assert step_flops(tiny_config, batch, generator_depth=2, question="all-tokens") > both
    assert generator_layers(Recipe(), tiny_config) == 0
    assert generator_layers(Recipe(objective="replaced", generator_depth=0.25), tiny_config) == 1
    with pytest.raises(InputError, match="generator_depth is 4"):
        generator_layers(Recipe(objective="replaced"), tiny_config)
    with pytest.raises(InputError, match="elastic"):
        Recipe(objective="replaced", elastic=True)
