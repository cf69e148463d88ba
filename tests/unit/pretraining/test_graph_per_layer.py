"""A graph of one layer for all depths gives the losses and gradients of a graph of all layers, and those uncompiled."""

import copy

import pytest
import torch

from litebert.nn.network import HeadsConfig, Network, NetworkConfig
from litebert.pretraining.objective import Pretraining
from litebert.pretraining.replaced import Replaced
from litebert.train.objective import Learner, prepare_compiler


@pytest.fixture
def network(tiny_config):
    torch.manual_seed(0)
    return Network(NetworkConfig(encoder=tiny_config, heads=HeadsConfig(names=("masked_lm", "order", "replaced"))))


def learnt(network, objectives, batch, backend: str | None, *, apart: bool) -> list[torch.Tensor]:
    """Losses and gradients of one pass for each objective."""
    torch.compiler.reset()
    network = copy.deepcopy(network)
    network.encoder.graph_per_layer = apart
    learner = Learner(network, objectives[0])
    if backend:
        learner.compile(backend=backend)
    found = []
    for objective in objectives:
        learner.objective = objective
        parts = learner(objective.tensors(batch, torch.device("cpu")))
        sum(loss for loss, _ in parts.values()).backward()
        found += [loss.detach() for loss, _ in parts.values()]
        found += [parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None]
        network.zero_grad()
    return found


@pytest.mark.long
def test_losses_and_gradients_are_the_same(network, batch):
    prepare_compiler(2)
    shallow, deep = (Pretraining(32, 0, depth, 1.0) for depth in (2, 4))
    objectives = [shallow, Replaced(deep, "replaced", 1, 0, masked_every=2)]
    plain = learnt(network, objectives, batch, None, apart=False)
    for apart in (False, True):
        torch.testing.assert_close(learnt(network, objectives, batch, "aot_eager", apart=apart), plain)


@pytest.mark.long
def test_a_layer_is_compiled_once_for_all_depths(network, batch):
    graphs = []

    def count(graph, inputs):
        graphs.append(sum("linear" in str(node.target) for node in graph.graph.nodes))
        return graph.forward

    prepare_compiler(2)
    objectives = [Pretraining(32, 0, depth, 1.0) for depth in (2, 4)]
    learnt(network, objectives, batch, count, apart=True)
    apart, graphs[:] = graphs[:], []
    learnt(network, objectives, batch, count, apart=False)
    assert apart.count(4) == 1 and max(apart) < 8  # four products in a layer
    assert max(graphs) > 16 and len(graphs) == 2  # of four layers, and those of the heads
