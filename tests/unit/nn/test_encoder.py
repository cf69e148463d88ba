"""The encoder as a torch module: compiled without breaks, checkpointed, with dropout where the paper has it."""

from dataclasses import replace

import pytest
import torch
import torch._dynamo.testing

from litebert.errors import InputError
from litebert.families import FAMILIES
from litebert.nn.config import family_config
from litebert.nn.layout import Layout
from litebert.nn.network import HeadsConfig, Network, NetworkConfig, pretraining_network

SMALL = {
    "vocab_size": 50,
    "width": 32,
    "embedding_width": 16,
    "num_layers": 3,
    "num_heads": 4,
    "feed_forward_width": 64,
}


def network(family="albert", **fields) -> Network:
    torch.manual_seed(0)
    sizes = SMALL if FAMILIES[family].embedding_projection != "never" else {**SMALL, "embedding_width": 32}
    config = family_config({"family": family, **sizes, "dropout": 0.0, "attention_dropout": 0.0, **fields})
    return pretraining_network(config)


def batch(lengths):
    torch.manual_seed(1)
    return torch.randint(0, 50, (sum(lengths),)), Layout.of(lengths)


def loss_of(net, encoder, ids, layout):
    states = encoder(ids, layout)
    return net.masked_lm(states, torch.tensor([0, 2])).logsumexp(-1).sum() + net.pooled(states, layout).sum()


def gradients(net):
    found = {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}
    net.zero_grad()
    return found


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_compiled_equals_eager_without_graph_breaks(family):
    net = network(family, activation_dropout=0.0)
    torch._dynamo.reset()
    compiled = torch.compile(net.encoder, backend="aot_eager", fullgraph=True)  # fullgraph: a break is an error
    for lengths in ([3, 1, 7], [5, 5, 1], [2, 9]):
        ids, layout = batch(lengths)
        loss_of(net, net.encoder, ids, layout).backward()
        expected = gradients(net)
        loss_of(net, compiled, ids, layout).backward()
        for name, grad in gradients(net).items():
            torch.testing.assert_close(grad, expected[name], msg=name)


def test_a_fixed_budget_never_compiles_again():
    net = network()
    torch._dynamo.reset()
    frames = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(net.encoder, backend=frames, fullgraph=True)
    for lengths in ([3, 1, 7, 5], [16], [8, 8], [1] * 16):
        ids, layout = batch(lengths)
        fixed = compiled(ids, replace(Layout.of([*lengths, *[0] * (16 - len(lengths))]), longest=16))
        torch.testing.assert_close(fixed, net.encoder(ids, layout))
    assert frames.frame_count == 1


@pytest.mark.long
def test_varying_batches_compile_at_most_a_few_times():
    net = network()
    torch._dynamo.reset()
    frames = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(net.encoder, backend=frames, fullgraph=True, dynamic=True)
    for count in range(2, 12):
        ids, layout = batch([count, 3, 2 * count])
        torch.testing.assert_close(compiled(ids, layout), net.encoder(ids, layout))
    assert frames.frame_count <= 2


@pytest.mark.parametrize("family", ["albert", "xlnet"])
def test_checkpointing_changes_no_gradient(family):
    net = network(family, dropout=0.2).train()
    ids, layout = batch([3, 1, 7])

    def run(checkpointing):
        net.encoder.checkpointing = checkpointing
        torch.manual_seed(5)
        loss_of(net, net.encoder, ids, layout).backward()
        return gradients(net)

    plain, again = run(False), run(True)
    assert plain.keys() == again.keys()
    for name in plain:
        torch.testing.assert_close(again[name], plain[name], msg=name)


@pytest.mark.parametrize("share", ["all", "none"])
def test_compiled_with_checkpointing_every_layer_is_the_same_graph(share):
    """The compiler sees one layer, not all: a graph of all would have every depth computed again at once."""
    net = network(num_layers=6, share=share).train()
    net.encoder.checkpointing = True
    ids, layout = batch([3, 1, 7])
    loss_of(net, net.encoder, ids, layout).backward()
    expected = gradients(net)
    torch._dynamo.reset()
    frames = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(net.encoder, backend=frames)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.shape) or x, lambda x: x):
        loss = loss_of(net, compiled, ids, layout)
    loss.backward()
    assert frames.frame_count == 2  # the embeddings and the layer
    assert not [shape for shape in kept if shape == (11, SMALL["feed_forward_width"])]
    for name, gradient in gradients(net).items():
        torch.testing.assert_close(gradient, expected[name], msg=name)


def test_dropout_is_where_the_paper_has_it():
    """After the attention projection and after the feed-forward block (which Hugging Face's ALBERT leaves out)."""
    net = network(dropout=0.5)
    block_a, block_f = net.encoder.attention[0], net.encoder.feed_forward[0]
    x, layout = torch.randn(11, 32), Layout.of([11])
    for run in (lambda: block_a(x, layout), lambda: block_f(x)):
        net.train()
        assert not torch.equal(run(), run())
        net.eval()
        assert torch.equal(run(), run())


def test_shared_blocks_collect_the_gradient_of_every_depth():
    net = network(share="all")
    apart = network(share="none")
    for name, parameter in apart.named_parameters():
        parts = name.split(".")
        if parts[1] in ("attention", "feed_forward"):
            parts[2] = "0"
        parameter.data.copy_(net.get_parameter(".".join(parts)))
    ids, layout = batch([3, 8])
    for one in (net, apart):
        loss_of(one, one.encoder, ids, layout).backward()
    shared = net.encoder.attention[0].qkv.weight.grad
    total = sum(block.qkv.weight.grad for block in apart.encoder.attention)
    torch.testing.assert_close(shared, total)


def test_new_weights_follow_the_paper():
    net = network(width=256, num_heads=4, feed_forward_width=1024)
    weight = net.encoder.feed_forward[0].up.weight
    assert weight.abs().max() <= 0.04 and 0.015 < weight.std() < 0.02
    assert net.encoder.attention[0].qkv.bias.abs().max() == 0
    assert torch.equal(net.encoder.attention[0].norm.weight, torch.ones(256))


def test_a_depth_that_is_not_there():
    ids, layout = batch([4])
    with pytest.raises(InputError, match="depths 0 to 3"):
        network().encoder(ids, layout, depth=4)


def test_two_streams_need_relative_positions():
    ids, layout = batch([4])
    with pytest.raises(InputError, match="relative positions"):
        network().encoder.two_streams(ids, layout, torch.zeros(4, dtype=torch.long))


def test_answerability_and_choices():
    heads = HeadsConfig(names=("span", "choice"), answerable=True)
    net = Network(NetworkConfig(encoder=family_config(SMALL), heads=heads)).eval()
    ids, layout = batch([3, 5, 2, 6])
    states = net.encoder(ids, layout)
    assert net.heads["span"].has_answer(states, layout).shape == (4,)
    assert net.heads["choice"](net.pooled(states, layout), 2).shape == (2, 2)


def test_replaced_head_gives_one_logit_a_token():
    net = Network(NetworkConfig(encoder=network().config.encoder, heads=HeadsConfig(names=("replaced",))))
    ids, layout = batch([3, 5])
    states = net.encoder(ids, layout)
    logits = net.heads["replaced"](states)
    assert logits.shape == (8,)
    head = net.heads["replaced"]
    expected = torch.nn.functional.gelu(head.dense(states), approximate="tanh") @ head.score.weight[0] + head.score.bias
    torch.testing.assert_close(logits, expected)
